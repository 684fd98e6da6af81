#!/bin/bash
# Gemini CLI 0.61.0 (npm: @google/gemini-cli), without a terminal: gemini --prompt PROMPT.
#
# What one would guess: when the API refuses the request, the exit code is 1 or another small one that is documented, and
# --output-format json changes only the output.
#
# What happens: with text the exit code is 1. With JSON it is the HTTP status, of which the system keeps the lowest byte:
# 144 for 400, 145 for 401. A shell takes these for the ends of programs that signals 16 and 17 have killed. A status of 512
# was 0, success; the run below leaves that out, as gemini first tries again for minutes.
#
# Output seen (HTTP status, format, exit code):
EXPECTED="\
400 text 1
400 json 144
401 text 1
401 json 145"
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p home/.gemini work
echo '{"security":{"auth":{"selectedType":"gemini-api-key"}},"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false}}' >home/.gemini/settings.json
npm install --silent --no-audit --no-fund --prefix . @google/gemini-cli@0.61.0 >/dev/null
cat >refuse.mjs <<'JS'
import http from 'node:http'
import { spawn } from 'node:child_process'
const [status, format, program] = process.argv.slice(2)
const api = http.createServer((req, res) => {
  req.resume()
  res.writeHead(Number(status), { 'Content-Type': 'application/json' })
  res.end(JSON.stringify({ error: { code: Number(status), message: 'refused', status: 'REFUSED' } }))
})
await new Promise(done => api.listen(0, '127.0.0.1', done))
const env = {
  PATH: process.env.PATH, HOME: `${process.cwd()}/home`, TMPDIR: process.cwd(), GEMINI_API_KEY: 'none',
  GOOGLE_GEMINI_BASE_URL: `http://127.0.0.1:${api.address().port}`, GEMINI_CLI_TRUST_WORKSPACE: 'true',
}
const child = spawn(program, ['--output-format', format, '--prompt', 'hello'], { env, cwd: 'work', stdio: 'ignore' })
child.on('close', (code, by) => { console.log(status, format, code ?? by); process.exit() })
JS
seen=$(for status in 400 401; do for format in text json; do node refuse.mjs "$status" "$format" "$dir/node_modules/.bin/gemini"; done; done)
[ "$seen" = "$EXPECTED" ] || { echo "it changed:"; diff <(echo "$EXPECTED") <(echo "$seen"); exit 1; }
echo "$seen"
