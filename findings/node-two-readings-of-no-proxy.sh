#!/bin/bash
# Node.js 22.23.3, 24.21.0 and 26.10.0 (npm: node), with NODE_USE_ENV_PROXY=1.
#
# What one would guess: a process reads NO_PROXY in one way. So with NO_PROXY=::1, requests for http://[::1]:PORT/ go
# directly, whether the program uses fetch or http.get; and Node.js tunnels plain HTTP either always or never.
#
# What happens in 22 and 24: with ::1 http.get goes directly and fetch by the proxy, in one process. Brackets, [::1], turn
# that around. So the address needs both entries. fetch also sends http:// through a CONNECT tunnel, which many proxies
# allow only for port 443, where http.get sends the absolute form. In 26 fetch takes both spellings and sends the absolute
# form, but http.get still doesn't know the brackets.
#
# Output seen (version, NO_PROXY, fetch, http.get):
EXPECTED="\
22 ::1 CONNECT direct
22 [::1] direct GET
22 none CONNECT GET
24 ::1 CONNECT direct
24 [::1] direct GET
24 none CONNECT GET
26 ::1 direct direct
26 [::1] direct GET
26 none GET GET"
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >ask.mjs <<'JS'
import http from 'node:http'
import { spawn } from 'node:child_process'
// The server answers on ::1 what it is asked directly; the proxy, on 127.0.0.1, says by which method it was asked.
const listen = (server, host) => new Promise(done => server.listen(0, host, () => done(server.address().port)))
const site = http.createServer((_, res) => res.end('direct'))
const proxy = http.createServer((_, res) => res.end('GET'))
proxy.on('connect', (_, socket) => {
  socket.on('error', () => {})
  socket.write('HTTP/1.1 200 OK\r\n\r\n')
  socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nCONNECT'))
})
const [port, by] = [await listen(site, '::1'), await listen(proxy, '127.0.0.1')]
const client = `
const url = 'http://[::1]:${port}/'
const a = await (await fetch(url)).text()
const b = await new Promise((done, bad) => require('http').get(url, res => { let t = ''; res.on('data', d => t += d).on('end', () => done(t)) }).on('error', bad))
console.log(a, b)
process.exit()`
for (const noProxy of ['::1', '[::1]', 'none']) {
  const env = { PATH: process.env.PATH, NODE_USE_ENV_PROXY: '1', http_proxy: `http://127.0.0.1:${by}`, no_proxy: noProxy }
  const child = spawn(process.execPath, ['--no-warnings', '-e', `(async () => {${client}})()`], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  let out = ''
  for await (const part of child.stdout) out += part
  console.log(process.versions.node.split('.')[0], noProxy, out.trim())
}
process.exit()
JS
seen=
for version in 22.23.3 24.21.0 26.10.0; do
    npm install --silent --no-audit --no-fund --prefix "$version" "node@$version" >/dev/null
    seen+=$("$version/node_modules/node/bin/node" --no-warnings ask.mjs)$'\n'
done
seen=${seen%$'\n'}
[ "$seen" = "$EXPECTED" ] || { echo "it changed:"; diff <(echo "$EXPECTED") <(echo "$seen"); exit 1; }
echo "$seen"
