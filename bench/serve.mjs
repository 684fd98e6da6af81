// A client of E2B's SDK that does what a line asks, and says how many nanoseconds it took.
import { createInterface } from 'node:readline'
import { Sandbox } from 'e2b'

let sandbox
const can = {
  connect: async (id) => { sandbox = await Sandbox.connect(id) },
  run: async () => { await sandbox.commands.run('true') },
  create: async () => { await (await Sandbox.create()).kill() },
}
for await (const line of createInterface({ input: process.stdin })) {
  const [what, argument] = line.split(' ')
  const began = process.hrtime.bigint()
  try {
    await can[what](argument)
    console.log(String(process.hrtime.bigint() - began))
  } catch (err) {
    console.log(`failed: ${String(err).replaceAll('\n', ' ')}`)
  }
}
