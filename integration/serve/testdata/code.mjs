// The work of a notebook's client, with the published package of E2B's code interpreter.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create({ timeoutMs: 120_000, envs: { GREETING: 'hello' } })
try {
  const sum = await sandbox.runCode('x = 20 + 1\nx * 2')
  assert.equal(sum.text, '42')
  assert.equal(sum.error, undefined)
  assert.equal((await sandbox.runCode('x')).text, '21')

  const said = []
  const printed = await sandbox.runCode('print("täglich")\nimport sys; print("oops", file=sys.stderr)', {
    onStdout: (message) => { said.push(message.line) },
  })
  assert.deepEqual(printed.logs.stdout, ['täglich\n'])
  assert.deepEqual(printed.logs.stderr, ['oops\n'])
  assert.deepEqual(said, ['täglich\n'])
  assert.equal(printed.results.length, 0)

  const raised = await sandbox.runCode('1/0')
  assert.equal(raised.error.name, 'ZeroDivisionError')
  assert.match(raised.error.traceback, /ZeroDivisionError/)

  const rich = await sandbox.runCode('class Page:\n  def _repr_html_(self): return "<b>bold</b>"\nPage()')
  assert.equal(rich.results[0].html, '<b>bold</b>')
  assert.equal(rich.results[0].isMainResult, true)
  assert.deepEqual((await sandbox.runCode('{"a": [1, 2]}')).results[0].json, { a: [1, 2] })

  assert.equal((await sandbox.runCode('import os; os.environ["GREETING"]')).text, 'hello')
  assert.equal((await sandbox.runCode('os.environ["ONCE"]', { envs: { ONCE: 'now' } })).text, 'now')
  assert.equal((await sandbox.runCode('os.environ.get("ONCE", "gone")')).text, 'gone')
  assert.deepEqual((await sandbox.runCode('!echo from a shell')).logs.stdout.join(''), 'from a shell\n')

  await sandbox.files.write('data.csv', 'a,b\n1,2\n')
  assert.equal((await sandbox.runCode('open("data.csv").readline().strip()')).text, 'a,b')

  // Another context has names of its own.
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  assert.equal((await sandbox.runCode('x = "mine"; os_cwd = __import__("os").getcwd(); os_cwd', { context })).text, '/tmp')
  assert.equal((await sandbox.runCode('x')).text, '21')
  assert.equal((await sandbox.runCode('x', { context })).text, 'mine')

  const shell = await sandbox.runCode('y=3; echo $((y + 1))', { language: 'bash' })
  assert.equal(shell.logs.stdout.join(''), '4\n')

  // A client that gives up interrupts the code, and the names stay.
  await assert.rejects(sandbox.runCode('import time\nkept = 1\nwhile True: time.sleep(0.1)', { timeoutMs: 3_000 }))
  assert.equal((await sandbox.runCode('kept')).text, '1')
} finally {
  await sandbox.kill()
}
console.log('done')
process.exit(0) // timers of the SDK would hold it for a minute
