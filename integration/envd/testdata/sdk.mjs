// What an application does with a sandbox: programs and files, by the published SDK.
import assert from 'node:assert/strict'
import { Sandbox, CommandExitError, FileType, FilesystemEventType, NotFoundError, InvalidArgumentError } from 'e2b'

const box = await Sandbox.create({ timeoutMs: 60_000 })
const tests = {
  async run() {
    const done = await box.commands.run('echo out; echo err >&2; pwd')
    assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n/home/user\n', 'err\n', 0])
  },
  async exitCode() {
    await assert.rejects(box.commands.run('echo partly; exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3 && e.stdout === 'partly\n')
  },
  async signal() {
    await assert.rejects(box.commands.run('kill -9 $$'), (e) => e instanceof CommandExitError && e.exitCode === -1 && /killed/.test(e.error))
  },
  async streams() {
    const seen = []
    await box.commands.run('echo 1; echo 2', { onStdout: (d) => void seen.push(d) })
    assert.equal(seen.join(''), '1\n2\n')
  },
  async environment() {
    const done = await box.commands.run('echo $A $FROM; pwd', { envs: { A: 'a b' }, cwd: '/tmp' })
    assert.equal(done.stdout, 'a b options\n/tmp\n')
    await assert.rejects(box.commands.run('true', { cwd: '/nowhere' }), InvalidArgumentError)
  },
  async background() {
    const p = await box.commands.run('echo up; sleep 600', { background: true })
    assert.ok((await box.commands.list()).some((one) => one.pid === p.pid))
    assert.equal(await p.kill(), true)
    await assert.rejects(p.wait(), CommandExitError)
    assert.equal(await box.commands.kill(p.pid), false)
  },
  async stdin() {
    const p = await box.commands.run('cat', { background: true, stdin: true })
    await box.commands.sendStdin(p.pid, 'hello')
    await box.commands.closeStdin(p.pid)
    assert.equal((await p.wait()).stdout, 'hello')
  },
  async connect() {
    const p = await box.commands.run('read x; echo got $x', { background: true, stdin: true })
    await p.disconnect()
    const again = await box.commands.connect(p.pid)
    await box.commands.sendStdin(p.pid, 'it\n')
    assert.equal((await again.wait()).stdout, 'got it\n')
  },
  async timeout() {
    await assert.rejects(box.commands.run('sleep 600', { timeoutMs: 300 }), (e) => e.name === 'TimeoutError')
  },
  async terminal() {
    let seen = ''
    const p = await box.pty.create({ cols: 80, rows: 24, onData: (d) => { seen += Buffer.from(d).toString() } })
    await box.pty.resize(p.pid, { cols: 100, rows: 30 })
    await box.pty.sendInput(p.pid, new TextEncoder().encode('stty size; exit 4\n'))
    await assert.rejects(p.wait(), (e) => e.exitCode === 4)
    assert.match(seen, /30 100/)
  },
  async files() {
    for (const size of [0, 1, 100 << 20]) {
      const content = Buffer.alloc(size, 'ab\0\xff', 'latin1')
      const info = await box.files.write('some/' + size, new Blob([content]))
      assert.equal(info.path, '/home/user/some/' + size)
      const back = Buffer.from(await box.files.read('some/' + size, { format: 'bytes' }))
      assert.ok(back.equals(content), String(size))
    }
    await box.files.write([{ path: 'many/a', data: 'A' }, { path: '/tmp/many/ü b', data: 'B' }])
    assert.equal(await box.files.read('many/a'), 'A')
    assert.equal(await box.files.read('/tmp/many/ü b'), 'B')
    await assert.rejects(box.files.read('nowhere'), NotFoundError)
    assert.equal(await box.files.exists('many/a'), true)
    assert.equal(await box.files.exists('many/b'), false)
    assert.equal((await box.files.rename('many/a', 'many/c')).path, '/home/user/many/c')
    const list = await box.files.list('many')
    assert.deepEqual(list.map((e) => [e.name, e.type, e.size]), [['c', FileType.FILE, 1]])
    assert.equal(await box.files.makeDir('dir'), true)
    assert.equal(await box.files.makeDir('dir'), false)
    assert.equal((await box.files.getInfo('dir')).type, FileType.DIR)
    await box.files.remove('many')
    assert.equal(await box.files.exists('many'), false)
  },
  async metadata() {
    await box.files.write('meta', 'x', { metadata: { who: 'me' } })
    assert.equal((await box.files.getInfo('meta')).metadata.who, 'me')
  },
  async watch() {
    await box.files.makeDir('watched')
    const seen = []
    let done
    const all = new Promise((resolve) => { done = resolve })
    const handle = await box.files.watchDir('watched', (e) => {
      seen.push(e.type)
      if (e.type === FilesystemEventType.REMOVE) done()
    })
    await box.files.write('watched/f', 'x')
    await box.files.remove('watched/f')
    await all
    assert.deepEqual(seen, [FilesystemEventType.CREATE, FilesystemEventType.WRITE, FilesystemEventType.REMOVE])
    await handle.stop()
    await assert.rejects(box.files.watchDir('nowhere', () => {}), NotFoundError)
  },
  async signed() {
    await box.files.write('s', 'signed')
    const url = await box.downloadUrl('s', { useSignatureExpiration: 10_000 })
    assert.equal(await (await fetch(url)).text(), 'signed')
    const to = await box.uploadUrl('t')
    const form = new FormData()
    form.append('file', new Blob(['up']), 't')
    assert.equal((await fetch(to, { method: 'POST', body: form })).status, 200)
    assert.equal(await box.files.read('t'), 'up')
  },
  async root() {
    await assert.rejects(box.commands.run('true', { user: 'root' }), (e) => e.name === 'AuthenticationError')
  },
  async git() {
    await box.git?.init('repo')
    assert.equal(await box.files.exists('repo/.git'), true)
  },
  async ended() {
    assert.equal(await box.isRunning(), true)
    const p = await box.commands.run('sleep 600', { background: true })
    const lost = assert.rejects(p.wait())
    await box.kill()
    await lost
    assert.equal(await box.isRunning(), false)
  },
}
let failed = 0
for (const [name, test] of Object.entries(tests)) {
  try {
    await test()
    console.log('ok', name)
  } catch (e) {
    failed++
    console.log('not ok', name, e)
  }
}
process.exit(failed && 1)
