// The official TypeScript client against a server on pipes: node client.mjs COMMAND ARG...
// It holds every result with structured content against the tool's output schema.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
assert.match(client.getInstructions(), /workspace/);

const { tools } = await client.listTools();
assert.ok(tools.some((one) => one.name === "shell_execute"));
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);

await call("write_file", { file_path: "a.txt", content: "one\ntwo\n" });
const read = await call("read_file", { file_path: "a.txt" });
assert.equal(read.structuredContent.content, "one\ntwo\n");
assert.equal(read.content[0].text, "   1 | one\n   2 | two\n");

const nothing = await call("evaluate_python", { code: "x = 1" });
assert.equal(nothing.structuredContent.value_repr, null);

const plot = await call("evaluate_python", { code: "class Plot:\n  def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\nPlot()" });
assert.deepEqual(plot.content[1], { type: "image", mimeType: "image/png", data: "iVBORw0KGgo=" });

const wrong = await call("read_file", { file_path: "../etc/passwd" });
assert.equal(wrong.isError, true);
assert.equal(wrong._meta["wisbox/error"].kind, "invalid");

// The program goes on once progress has told what it wrote. Before that it may tell how long it runs.
let goes;
const script = "echo begun; until [ -e go ]; do sleep 0.1; done; rm go";
const onprogress = (p) => { if (p.message.startsWith("begun")) goes ??= call("shell_execute", { commands: ["touch", "go"] }); };
const slow = await call("shell_execute", { script }, { onprogress });
assert.equal(slow.structuredContent.exit_code, 0, "no progress told the output so far");
assert.equal(slow.structuredContent.stdout, "begun\n");
await goes;

const cancel = new AbortController();
const waiting = call("shell_execute", { commands: ["sleep", "100"], timeout: 100 }, { signal: cancel.signal });
setTimeout(() => cancel.abort(), 500);
await assert.rejects(waiting);
// A client that cancels gets no word of the end.
const { structuredContent: left } = await call("shell_execute", { script: "while pgrep -xf 'sleep 100'; do sleep 0.1; done" });
assert.equal(left.exit_code, 0);

const { resources } = await client.listResources();
assert.deepEqual(resources.map((one) => one.name), ["digest", "a.txt"]);
const { contents } = await client.readResource({ uri: resources[1].uri });
assert.equal(contents[0].text, "one\ntwo\n");
const { prompts } = await client.listPrompts();
assert.equal(prompts[0].name, "guide");

const many = await Promise.all(Array.from({ length: 64 }, (_, i) => call("shell_execute", { commands: ["echo", String(i)] })));
many.forEach((one, i) => assert.equal(one.structuredContent.stdout, `${i}\n`));

await client.close();
console.log("fine");
