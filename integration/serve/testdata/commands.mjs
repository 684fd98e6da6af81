// The work of an application in a sandbox, with the published SDKs of E2B: programs, files,
// a server that is reached from outside.
import assert from 'node:assert/strict'
import http from 'node:http'
import { Sandbox, CommandExitError, NotFoundError } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 600_000, envs: { GREETING: 'hello' } })
try {
  const said = []
  const run = await sandbox.commands.run('echo $GREETING; echo oops >&2; whoami; pwd', { onStdout: (text) => { said.push(text) } })
  assert.equal(run.stdout, 'hello\nuser\n/home/user\n')
  assert.equal(run.stderr, 'oops\n')
  assert.equal(said.join(''), run.stdout)
  await assert.rejects(sandbox.commands.run('exit 3'), (err) => err instanceof CommandExitError && err.exitCode === 3)

  await sandbox.files.write('notes/täglich.txt', 'eins\n')
  assert.equal(await sandbox.files.read('notes/täglich.txt'), 'eins\n')
  assert.deepEqual((await sandbox.files.list('notes')).map((e) => e.name), ['täglich.txt'])
  assert.equal(await sandbox.files.exists('nowhere'), false)
  await assert.rejects(sandbox.files.read('nowhere'), NotFoundError)
  assert.equal((await sandbox.commands.run('cat notes/*')).stdout, 'eins\n')

  // URLs that need no header: with one base URL for all sandboxes they name none.
  const up = await sandbox.uploadUrl('signed.txt', { useSignatureExpiration: 60_000 })
  const form = new FormData()
  form.append('file', new Blob(['by a form']), 'signed.txt')
  assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200)
  const down = await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: 60_000 })
  assert.equal(await (await fetch(down)).text(), 'by a form')
  assert.equal((await fetch(down.replace('signed.txt', 'other.txt'))).status, 401)

  // A program in the background, its input, its end.
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(cat.pid, 'typed\n')
  await sandbox.commands.closeStdin(cat.pid)
  assert.equal((await cat.wait()).stdout, 'typed\n')
  const sleeping = await sandbox.commands.run('sleep 600', { background: true })
  assert.ok((await sandbox.commands.list()).some((p) => p.pid === sleeping.pid))
  assert.equal(await sandbox.commands.kill(sleeping.pid), true)
  await assert.rejects(sleeping.wait())

  // A server: the name that getHost gives leads to it, once it listens.
  await sandbox.commands.run('python3 -m http.server 8000', { background: true })
  const host = sandbox.getHost(8000)
  const [, address] = process.env.E2B_API_URL.match(/^http:\/\/(.*)$/)
  const get = (path) => new Promise((resolve, reject) => {
    const [name, port] = address.split(':')
    http.get({ host: name, port, path, headers: { Host: host } }, (res) => {
      let body = ''
      res.on('data', (part) => (body += part))
      res.on('end', () => resolve({ status: res.statusCode, body }))
    }).on('error', reject)
  })
  for (let tries = 0; (await get('/')).status === 502 && tries < 300; tries++) await new Promise((done) => setTimeout(done, 100))
  assert.deepEqual(await get('/signed.txt'), { status: 200, body: 'by a form' })
  assert.equal((await get('/nowhere')).status, 404)

  // A sandbox that another part of the application connects to.
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('cat signed.txt')).stdout, 'by a form')

  // A fork begins with the files.
  const [fork] = await sandbox.fork({ count: 1 })
  assert.equal(await fork.files.read('signed.txt'), 'by a form')
  await fork.kill()

  // A snapshot outlives its sandbox: others begin with it, by its ID and by its name.
  const source = await Sandbox.create({ timeoutMs: 600_000, envs: { GREETING: 'kept' } })
  await source.files.write('deep/kept.txt', 'by a snapshot')
  await source.commands.run('chmod 700 deep/kept.txt; ln -s kept.txt deep/link')
  const first = await source.createSnapshot({ name: 'ready-for-work' })
  assert.ok(first.names.some((name) => name.includes('ready-for-work')))
  const second = await source.createSnapshot()
  const ids = []
  for (const pages = source.listSnapshots({ limit: 1 }); pages.hasNext; ) ids.push(...(await pages.nextItems()).map((s) => s.snapshotId))
  assert.deepEqual([...ids].sort(), [first.snapshotId, second.snapshotId].sort())
  await source.kill()
  for (const from of [first.snapshotId, 'ready-for-work', second.snapshotId]) {
    const begun = await Sandbox.create(from, { timeoutMs: 600_000 })
    assert.equal((await begun.commands.run('cat deep/link; test -x deep/kept.txt; whoami')).stdout, 'by a snapshotuser\n')
    assert.ok([first.snapshotId, second.snapshotId].includes((await begun.getInfo()).templateId))
    await begun.kill()
  }
  assert.equal(await Sandbox.deleteSnapshot(first.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(first.snapshotId), false)
  await assert.rejects(Sandbox.create(first.snapshotId), (err) => /404/.test(err.message))
  assert.equal(await Sandbox.deleteSnapshot(second.snapshotId), true)

  // The network: accepted, and replaced; without --allow-internet nothing is opened.
  await sandbox.updateNetwork({ allowOut: ['example.com'] })
  assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
  await assert.rejects(sandbox.updateNetwork({ allowOut: ['10.0.0.0/8'] }), (err) => /400/.test(err.message))

  // A pause keeps the programs and their memory; who connects has them go on.
  const standing = await sandbox.commands.run('read x; echo $x', { background: true, stdin: true })
  assert.equal(await sandbox.pause(), true)
  await assert.rejects(standing.wait())
  assert.equal(await sandbox.isRunning(), false)
  const resumed = await Sandbox.connect(sandbox.sandboxId)
  const same = await resumed.commands.connect(standing.pid)
  await resumed.commands.sendStdin(standing.pid, 'still here\n')
  assert.equal((await same.wait()).stdout, 'still here\n')

  // A file's metadata: extended attributes, the SDK's or a program's.
  const many = Array.from({ length: 2000 }, (_, i) => ({ path: `many/d${i % 20}/f${i}`, data: `${i}` }))
  assert.equal((await sandbox.files.write(many)).length, many.length)
  assert.equal((await sandbox.commands.run('find many -type f | wc -l; cat many/d19/f1999')).stdout, '2000\n1999')
  assert.deepEqual((await sandbox.files.write('said.txt', 'x', { metadata: { author: 'sdk' } })).metadata, { author: 'sdk' })
  await sandbox.commands.run('setfattr -n user.e2b.author -v program said.txt')
  assert.deepEqual((await sandbox.files.getInfo('said.txt')).metadata, { author: 'program' })

  // A pause without memory ends the programs, and cuts the streams; the files stay.
  for (const name of ['kept', 'lost']) await sandbox.files.write(name, name)
  for (const keepMemory of [false, true]) {
    const lost = await sandbox.commands.run('while sleep 0.1; do date >> lost; done', { background: true })
    assert.equal(await sandbox.pause({ keepMemory }), true)
    await assert.rejects(lost.wait())
    assert.equal(await sandbox.pause({ keepMemory: false }), false)
    await Sandbox.connect(sandbox.sandboxId, { onResume: 'reboot' })
    assert.equal(await sandbox.files.read('kept'), 'kept')
    assert.ok(!(await sandbox.commands.list()).some((one) => one.pid === lost.pid))
    assert.equal((await sandbox.commands.run('cat lost > before; sleep 0.3; cmp lost before && pgrep -c sleep || true')).stdout, '0\n')
  }

  // The end cuts a stream: nobody takes it for the program's own end.
  const cut = await sandbox.commands.run('sleep 600', { background: true })
  assert.equal(await sandbox.kill(), true)
  await assert.rejects(cut.wait())
  assert.equal(await sandbox.isRunning(), false)
} finally {
  await sandbox.kill()
}
console.log('done')
process.exit(0) // timers of the SDK would hold it for a minute
