#!/bin/bash
# Claude Code 2.1.330 (npm: @anthropic-ai/claude-code), without a terminal: claude -p PROMPT.
#
# What one would guess: a task that SIGINT interrupts ends by that signal or with 130, as one that SIGTERM ends has 143. So
# a script sees that the task isn't done.
#
# What happens: it prints "Execution error" and ends with 0.
#
# Output seen (signal, exit code, stdout; the API has the request and hasn't answered yet):
EXPECTED="\
SIGINT 0 'Execution error'
SIGTERM 143 ''"
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir home work
npm install --silent --no-audit --no-fund --prefix . @anthropic-ai/claude-code@2.1.330 >/dev/null
cat >signal.mjs <<'JS'
import http from 'node:http'
import { spawn } from 'node:child_process'
const [signal, program] = process.argv.slice(2)
let child
const api = http.createServer((req, res) => {
  if (req.method === 'POST' && req.url.startsWith('/v1/messages')) child.kill(signal)
  else res.end('{}')
})
await new Promise(done => api.listen(0, '127.0.0.1', done))
const env = {
  PATH: process.env.PATH, HOME: `${process.cwd()}/home`, TMPDIR: process.cwd(), ANTHROPIC_API_KEY: 'none', ANTHROPIC_BASE_URL: `http://127.0.0.1:${api.address().port}`,
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1',
}
child = spawn(program, ['-p', 'hello'], { env, cwd: 'work', stdio: ['ignore', 'pipe', 'ignore'] })
let out = ''
child.stdout.on('data', d => out += d)
child.on('close', (code, by) => { console.log(signal, code ?? by, `'${out.trim()}'`); process.exit() })
JS
seen=$(for signal in SIGINT SIGTERM; do node signal.mjs "$signal" "$dir/node_modules/.bin/claude"; done)
[ "$seen" = "$EXPECTED" ] || { echo "it changed:"; diff <(echo "$EXPECTED") <(echo "$seen"); exit 1; }
echo "$seen"
