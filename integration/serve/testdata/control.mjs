// The work of an application, with the published SDK of E2B, that needs no program in the
// sandbox. Its environment names the server and the key.
import assert from 'node:assert/strict'
import { Sandbox, NotFoundError, AuthenticationError, Template } from 'e2b'

const metadata = { app: 'control test', 'a&b=c': 'd%20e+f/ü', run: String(process.pid) }
const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata, envs: { GREETING: 'hello' } })
assert.match(sandbox.sandboxId, /^[a-z0-9]{20}$/)
assert.equal(await sandbox.isRunning(), true)

const info = await sandbox.getInfo()
assert.equal(info.sandboxId, sandbox.sandboxId)
assert.equal(info.templateId, 'base')
assert.deepEqual(info.metadata, metadata)
assert.equal(info.state, 'running')
assert.equal(info.allowInternetAccess, false)
assert.ok(info.cpuCount >= 1 && info.memoryMB >= 16)
assert.ok(info.endAt - info.startedAt <= 120_000 && info.endAt - info.startedAt > 60_000)

// The list: by the metadata, by the start that getInfo told, and in pages.
const listed = async (opts) => {
  const all = []
  for (const pages = Sandbox.list(opts); pages.hasNext; ) all.push(...(await pages.nextItems()))
  return all.map((s) => s.sandboxId)
}
assert.deepEqual(await listed({ query: { metadata } }), [sandbox.sandboxId])
assert.deepEqual(await listed({ query: { metadata: { ...metadata, run: 'other' } } }), [])
assert.deepEqual(await listed({ query: { metadata: { run: metadata.run }, startedAfter: info.startedAt, state: ['running', 'paused'] } }), [sandbox.sandboxId])
assert.deepEqual(await listed({ query: { state: ['paused'] } }), [])
const second = await Sandbox.create({ timeoutMs: 60_000, metadata: { run: metadata.run } })
assert.deepEqual(await listed({ limit: 1, query: { metadata: { run: metadata.run } } }), [second.sandboxId, sandbox.sandboxId])
assert.deepEqual(await listed({ limit: 1, order: 'asc', query: { metadata: { run: metadata.run } } }), [sandbox.sandboxId, second.sandboxId])

// Timeouts: longer, shorter, and a connect that never shortens.
await sandbox.setTimeout(600_000)
const longer = (await sandbox.getInfo()).endAt
assert.ok(longer - info.endAt > 300_000)
const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_000 })
assert.equal(again.sandboxId, sandbox.sandboxId)
assert.equal(+(await again.getInfo()).endAt, +longer)
await sandbox.setTimeout(100_000)
assert.ok((await sandbox.getInfo()).endAt < longer)

// Metrics: a sample each few seconds, of what the sandbox takes.
let metrics = []
for (let tries = 0; metrics.length === 0 && tries < 300; tries++) {
  metrics = await sandbox.getMetrics()
  if (metrics.length === 0) await new Promise((done) => setTimeout(done, 100))
}
assert.ok(metrics[0].memTotal >= metrics[0].memUsed && metrics[0].memTotal > 0)
assert.ok(metrics[0].cpuUsedPct >= 0 && metrics[0].cpuUsedPct <= 100)
assert.ok(metrics[0].diskTotal > 0)
assert.ok(metrics[0].timestamp instanceof Date)
assert.deepEqual(await sandbox.getMetrics({ end: new Date(0) }), [])
assert.equal(await Template.exists('base'), true)
assert.equal(await Template.exists('no-such-template'), false)
assert.match(sandbox.getHost(3000), new RegExp(`^3000-${sandbox.sandboxId}\\.`))

// Errors are the SDK's own.
await assert.rejects(Sandbox.create('no-such-template'), (err) => err instanceof Error && /404/.test(err.message))
await assert.rejects(Sandbox.connect('a'.repeat(20)), NotFoundError)
await assert.rejects(Sandbox.getInfo('a'.repeat(20)), NotFoundError)
await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
await assert.rejects(Sandbox.create({ timeoutMs: -1000 }), (err) => /400/.test(err.message))
assert.deepEqual(await Sandbox.listSnapshots().nextItems(), [])
await assert.rejects(sandbox.createSnapshot({ name: '../x' }), (err) => /400/.test(err.message))
await assert.rejects(Template.build(Template().fromBaseImage(), 'mine'), (err) => /404|build templates/.test(err.message))

// The end.
assert.equal(await sandbox.kill(), true)
assert.equal(await sandbox.isRunning(), false)
assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
assert.equal(await Sandbox.kill(second.sandboxId), true)
assert.deepEqual(await listed({ query: { metadata: { run: metadata.run } } }), [])
console.log('done')
