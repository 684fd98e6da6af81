// @openai/agents with its E2B sandbox: a model whose answers are written here, and all else
// as npm has it. What each tool returned is what the next answer of the model is made of.
import assert from 'node:assert/strict'
import { Runner } from '@openai/agents'
import { Manifest, SandboxAgent, filesystem, shell } from '@openai/agents/sandbox'
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b'
import { ScriptedModel, assistantMessage, functionCall, modelResponder } from '@openai/agents/testing'
import { Sandbox } from 'e2b'

// said is what the tools gave the model until now.
const said = ({ request }) => request.input.filter((i) => i.type === 'function_call_result').map((i) => i.output.text ?? i.output)
const last = (call) => String(said(call).at(-1))
let calls = 0
const use = (name, args) => [functionCall(name, args, { callId: `call-${++calls}` })]
let terminal

// answered asks the terminal again until the program's answer is there.
function answered(call) {
  if (/got from the model/.test(last(call))) return [assistantMessage('it is 42')]
  model.enqueue(modelResponder(answered))
  return use('write_stdin', { session_id: terminal })
}

const model = new ScriptedModel([
  use('exec_command', { cmd: 'pwd; id -un; cat notes/task.txt; ls -l run.sh' }),
  modelResponder((call) => {
    const out = last(call)
    assert.match(out, /\/workspace\n/)
    assert.match(out, /\nuser\n/)
    assert.match(out, /multiply six by seven/)
    assert.match(out, /-rwxr-xr-x/)
    return [{ type: 'apply_patch_call', callId: 'patch', status: 'completed', operation: { type: 'create_file', path: 'sum.py', diff: '+print(6 * 7)\n' } }]
  }),
  modelResponder(() => use('exec_command', { cmd: 'python3 sum.py; false' })),
  modelResponder((call) => {
    assert.match(last(call), /exited with code 1[^]*\n42\n/, 'a program that fails has its output')
    return use('exec_command', { cmd: 'curl -sS -m 5 https://example.com; echo "curl $?"' })
  }),
  modelResponder((call) => {
    assert.match(last(call), /curl [1-9]/, 'there is no network')
    return use('exec_command', { cmd: 'nohup python3 -m http.server 8000 >/dev/null 2>&1 & until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done' })
  }),
  use('exec_command', { cmd: 'read line; echo "got $line"', tty: true, yield_time_ms: 100 }),
  modelResponder((call) => {
    terminal = Number(last(call).match(/session ID (\d+)/)[1])
    return use('write_stdin', { session_id: terminal, chars: 'from the model\n' })
  }),
  modelResponder(answered),
])

const client = new E2BSandboxClient({ timeout: 120, exposedPorts: [8000], metadata: { of: 'agents' }, workspacePersistence: 'tar' })
const session = await client.create({
  manifest: new Manifest({
    entries: {
      'notes/task.txt': { type: 'file', content: 'multiply six by seven\n' },
      'run.sh': { type: 'file', content: '#!/bin/sh\necho ran\n', permissions: '-rwxr-xr-x' },
    },
    environment: { OF_THE_MANIFEST: 'set' },
  }),
})
const agent = new SandboxAgent({ name: 'worker', instructions: 'Do the task.', model, capabilities: [shell(), filesystem()] })
const result = await new Runner({ tracingDisabled: true }).run(agent, 'What is it?', { sandbox: { client, session }, maxTurns: 1000 })
assert.equal(result.finalOutput, 'it is 42')
assert.equal(model.remainingSteps, 0)
const { sandboxId } = session.state

// Ports, by the name that the extension makes.
const port = await session.resolveExposedPort(8000)
assert.match(port.host, new RegExp(`^8000-${sandboxId}\\.`))
const page = await fetch(`${process.env.E2B_SANDBOX_URL}/sum.py`, { headers: { 'E2b-Sandbox-Id': sandboxId, 'E2b-Sandbox-Port': '8000' } })
assert.equal((await page.text()).trim(), 'print(6 * 7)')

// The workspace out and in again, and the session by what was kept of it.
const archive = await session.persistWorkspace()
assert.match(await session.execCommand({ cmd: 'rm sum.py; echo $OF_THE_MANIFEST' }), /set/)
await session.hydrateWorkspace(archive)
assert.match(await session.execCommand({ cmd: 'python3 sum.py && ./run.sh' }), /42\nran/)
const state = await client.serializeSessionState(session.state)
const again = await client.resume(await client.deserializeSessionState(state))
assert.equal(again.state.sandboxId, sandboxId)
assert.match(await again.execCommand({ cmd: 'cat sum.py' }), /print/)
await again.delete()
assert.deepEqual(await Sandbox.list().nextItems(), [])
console.log('done')
