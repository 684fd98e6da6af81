// The official client of the tasks extension against a server over HTTP: node tasks.mjs URL TOKEN
// It holds every answer about a task against the extension's schemas.
import assert from "node:assert/strict";
import { withTasks } from "@modelcontextprotocol/ext-tasks/client";

const [url, token] = process.argv.slice(2);
const revision = "2026-07-28";
const meta = {
  "io.modelcontextprotocol/protocolVersion": revision,
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": { extensions: { "io.modelcontextprotocol/tasks": {} } },
};
const named = { "tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId" };
let id = 0;

// dispatch sends a request on a connection of its own: nothing of the one before is left.
async function dispatch({ method, params }, { signal } = {}) {
  const headers = {
    Authorization: `Bearer ${token}`, "Content-Type": "application/json", Accept: "application/json, text/event-stream", Connection: "close",
    "MCP-Protocol-Version": revision, "Mcp-Method": method,
  };
  if (named[method]) headers["Mcp-Name"] = params[named[method]];
  const body = JSON.stringify({ jsonrpc: "2.0", id: ++id, method, params: { ...params, _meta: { ...params._meta, ...meta } } });
  const text = await (await fetch(url, { method: "POST", headers, body, signal })).text();
  const messages = text.startsWith("{") ? [text] : text.split("\n").filter((l) => l.startsWith("data: {")).map((l) => l.slice(6));
  const { result, error } = messages.map((m) => JSON.parse(m)).find((m) => m.id === id || m.result || m.error);
  return error ? { kind: "error", error } : { kind: "result", result };
}

const { result: found } = await dispatch({ method: "server/discover", params: {} });
const capabilities = found.capabilities.extensions["io.modelcontextprotocol/tasks"];
assert.deepEqual(capabilities, {});

const connect = () => withTasks({
  endpointId: url, taskCapabilities: { generation: "v2", capabilities }, invalidated: false, dispatch,
  onServerRequest: () => () => {}, onNotification: () => () => {}, onInvalidated: () => () => {},
});
const done = async (execution) => {
  const { outcome } = await execution.settle();
  assert.equal(outcome.status, "completed", JSON.stringify(outcome));
  return outcome.result.structuredContent;
};

let client = connect();
const opened = await client.callTool("session_open", {});
const { session } = await done(opened);
const call = (name, args) => client.callTool(name, { session, ...args });

// A task is another connection's as well, with the same token.
const waiting = await call("shell_execute", { script: "echo begun; until [ -e go ]; do sleep 0.1; done" });
assert.equal(waiting.kind, "task");
const reference = waiting.serializeReference();
client = connect(); // The first is left as in a crash: its close would cancel the task.
// The status message is what the program wrote, as soon as that came: the bound is for a hang.
const until = Date.now() + 60_000;
let view;
do {
  view = await client.task(reference.taskId).snapshot();
  assert.equal(view.status, "working");
} while (!/begun/.test(view.statusMessage) && Date.now() < until);
assert.match(view.statusMessage, /begun/);
await done(await call("write_file", { file_path: "go", content: "" }));
assert.equal((await done(await client.resumeTask(reference))).stdout, "begun\n");

// Cancelling stops the evaluation and leaves what was there before.
await done(await call("evaluate_python", { code: "x = 41", state: "kept" }));
const endless = await call("evaluate_python", { code: "while True: pass", state: "kept", timeout: 600 });
assert.equal(endless.kind, "task");
await endless.cancel();
const taskId = endless.handle.taskId;
let status = "working";
while (status === "working") ({ result: { status } } = await dispatch({ method: "tasks/get", params: { taskId } }));
assert.equal(status, "cancelled");
assert.equal((await done(await call("evaluate_python", { code: "x + 1", state: "kept" }))).value_repr, "42");

await assert.rejects(client.task("nope").snapshot(), /task not found/);
await done(await client.callTool("session_close", { session }));
await client.close();
console.log("fine");
process.exit(0);
