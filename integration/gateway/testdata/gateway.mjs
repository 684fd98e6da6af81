// An application with the published SDK of E2B and two servers of one cluster: its calls go to one
// of them, its programs and files to the other. Then the first is killed.
import assert from 'node:assert/strict'
import http from 'node:http'
import { Sandbox, CommandExitError, NotFoundError } from 'e2b'

const [first, second, stranger, pid] = process.argv.slice(2)
const here = { apiUrl: first, sandboxUrl: second }
const there = { apiUrl: second, sandboxUrl: first }
const after = { apiUrl: second, sandboxUrl: second }
const metadata = { app: 'gateway test', 'a&b=c': 'd%20e+f/ü' }

const began = performance.now()
const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata, envs: { GREETING: 'hello' }, ...here })
const created = performance.now() - began
const id = sandbox.sandboxId
assert.match(id, /^[a-z0-9]{20}$/)
assert.equal(await sandbox.isRunning(), true)

// Programs, with their output as it comes.
const said = []
const run = await sandbox.commands.run('echo $GREETING; echo oops >&2; whoami; pwd', { onStdout: (text) => { said.push(text) } })
assert.equal(run.stdout, 'hello\nuser\n/home/user\n')
assert.equal(run.stderr, 'oops\n')
assert.equal(said.join(''), run.stdout)
await assert.rejects(sandbox.commands.run('exit 3'), (err) => err instanceof CommandExitError && err.exitCode === 3)
const times = []
for (let n = 0; n < 20; n++) {
  const start = performance.now()
  await sandbox.commands.run('true')
  times.push(performance.now() - start)
}
times.sort((a, b) => a - b)
console.log(`created in ${Math.round(created)} ms; true takes ${times[10].toFixed(1)} ms (median of 20)`)

// Files.
await sandbox.files.write('notes/täglich.txt', 'eins\n')
assert.deepEqual((await sandbox.files.list('notes')).map((e) => e.name), ['täglich.txt'])
const large = 'x'.repeat(4 << 20)
await sandbox.files.write('large.txt', large)
assert.equal(await sandbox.files.read('large.txt'), large)
await assert.rejects(sandbox.files.read('nowhere'), NotFoundError)

// The other server has the sandbox too, and all that is to be known of it.
const other = await Sandbox.connect(id, { timeoutMs: 1_000, ...there })
assert.equal(await other.files.read('notes/täglich.txt'), 'eins\n')
const info = await other.getInfo()
assert.deepEqual(info.metadata, metadata)
assert.equal(info.templateId, 'base')
const listed = async (query, opts) => (await Sandbox.list({ query, ...opts }).nextItems()).map((s) => s.sandboxId)
for (const opts of [here, there]) {
  assert.deepEqual(await listed({ metadata }, opts), [id])
  assert.deepEqual(await listed({ metadata: { app: 'another' } }, opts), [])
}
assert.ok((await other.getMetrics())[0].memTotal > 0)

// A time that one server sets holds for the other: the sandbox outlives what it was made with.
const short = await Sandbox.create({ timeoutMs: 4_000, ...here })
const end = Date.now() + 4_000
await Sandbox.setTimeout(short.sandboxId, 120_000, there)
while (Date.now() < end + 1_500) await new Promise((done) => setTimeout(done, 100))
assert.equal(await short.isRunning(), true)
await Sandbox.setTimeout(short.sandboxId, 0, there)
for (let tries = 0; (await short.isRunning()) && tries < 300; tries++) await new Promise((done) => setTimeout(done, 100))
assert.equal(await short.isRunning(), false)

// Another key sees nothing of it, at either.
for (const opts of [{ ...here, apiKey: stranger }, { ...there, apiKey: stranger }]) {
  assert.deepEqual(await listed(undefined, opts), [])
  await assert.rejects(Sandbox.getInfo(id, opts), /404|not found/)
  await assert.rejects(Sandbox.connect(id, opts), /404|not found/)
  await assert.rejects(Sandbox.setTimeout(id, 1_000, opts), /404|not found/)
  assert.equal(await Sandbox.kill(id, opts), false)
}

// What Pods can't do is refused as the contract has it.
await assert.rejects(sandbox.pause(), /501/)
await assert.rejects(sandbox.createSnapshot(), /501/)
await assert.rejects(sandbox.updateNetwork({ allowOut: ['example.com'] }), /501/)
await assert.rejects(Sandbox.create({ lifecycle: { onTimeout: 'pause' }, ...here }), /501/)

// A server in the sandbox, by the host of its port, over either gateway.
await sandbox.commands.run('python3 -m http.server 8000', { background: true })
const get = (url, path) => new Promise((resolve, reject) => {
  const { hostname, port } = new URL(url)
  http.get({ host: hostname, port, path, headers: { Host: `8000-${id}.localhost:${port}` } }, (res) => {
    let body = ''
    res.on('data', (part) => (body += part))
    res.on('end', () => resolve({ status: res.statusCode, body }))
  }).on('error', reject)
})
for (let tries = 0; (await get(first, '/')).status === 502 && tries < 300; tries++) await new Promise((done) => setTimeout(done, 100))
for (const url of [first, second]) assert.deepEqual(await get(url, '/notes/t%C3%A4glich.txt'), { status: 200, body: 'eins\n' })

// One server is killed while a program runs over the other: that goes on, and all else does too.
let ticks = 0
const stream = await sandbox.commands.run('while :; do echo tick; sleep 0.1; done', { background: true, onStdout: () => { ticks++ } })
while (ticks < 3) await new Promise((done) => setTimeout(done, 20))
const cut = await other.commands.run('sleep 600', { background: true })
process.kill(Number(pid), 'SIGKILL')
await assert.rejects(cut.wait())
const seen = ticks
while (ticks < seen + 5) await new Promise((done) => setTimeout(done, 20))
const left = await Sandbox.connect(id, after)
assert.equal((await left.commands.run('echo still $GREETING')).stdout, 'still hello\n')
assert.ok((await left.commands.list()).some((p) => p.pid === cut.pid), 'what ran over the killed one goes on')
const again = await left.commands.connect(cut.pid)
assert.equal(await left.commands.kill(cut.pid), true)
await assert.rejects(again.wait())
assert.deepEqual(await listed({ metadata }, after), [id])

// The end cuts the stream.
assert.equal(await left.kill(), true)
await assert.rejects(stream.wait())
assert.equal(await left.isRunning(), false)
assert.equal(await left.kill(), false)
console.log('done')
