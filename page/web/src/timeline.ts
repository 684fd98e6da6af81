import { ask as asked, get, listen, of, Refused, type Call, type Compared, type Connection, type Inspection, type Records, type Step, type Undone, type Verification } from "./api";
import { diffOf } from "./diff";
import { ask, button, h, plain, say, show, took, when, type Child } from "./dom";

/** How a call ended, as a word with a colour. */
export function outcome(c: Call): HTMLElement {
  const code = c.args?.["exit_code"];
  const verdict = c.verdict ?? "";
  const text = verdict === "exited" && typeof code === "number" ? `exit ${code}` : verdict !== "" && verdict !== "exited" ? verdict : c.outcome;
  const good = c.outcome === "ok" && (verdict === "" || verdict === "exited") && !(typeof code === "number" && code !== 0);
  return h("span", { class: `outcome ${good ? "good" : "bad"}` }, plain(text, 40));
}

function about(c: Call): string {
  const command = c.args?.["command"] ?? c.args?.["script"] ?? c.args?.["commands"];
  const what = c.path ?? (Array.isArray(command) ? command.join(" ") : command !== undefined ? String(command) : "");
  return c.message ? (what === "" ? c.message : `${what}: ${c.message}`) : what;
}

// What the page itself does to show something: hidden unless it is asked for.
const looks = new Set(["diff", "snapshot_list", "process_attach", "export"]);

export async function timeline(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const info = await get<Inspection>(of(id), gone);
  const seen = h("ol", { class: "calls", "aria-label": "Calls, the last one first" });
  const older = h("div", { class: "row" });
  const live = h("span", { class: "live" });
  const all = h("input", { type: "checkbox", id: "own" });
  const verified = h("div", { role: "status" });
  const hosts = new Map<string, HTMLElement>();
  let first = 0, last = 0;

  const add = (c: Call, newest: boolean) => {
    const row = item(c, id, info.auto_snapshot === true, hosts);
    newest ? seen.prepend(row) : seen.append(row);
  };
  const page = async (before?: number) => {
    const p = await get<Records<Call>>(of(id, "log", { before }), gone);
    if (before === undefined) { show(seen); hosts.clear(); }
    for (const c of p.records.toReversed()) add(c, false);
    if (p.records.length > 0) first = p.first;
    if (before === undefined) last = p.last;
    show(older, p.records.length > 0 && first > 1 && button(`Older calls (${first - 1})`, () => page(first)));
  };
  const connections = async () => {
    const p = await get<Records<Connection>>(of(id, "connections"), gone);
    const by = new Map<string, Set<string>>();
    for (const r of p.records) for (const call of r.calls ?? []) {
      if (!by.has(call)) by.set(call, new Set());
      by.get(call)!.add(`${r.event === "denied" ? "denied " : ""}${r.host}${r.port ? `:${r.port}` : ""}`);
    }
    for (const [call, names] of by) { const at = hosts.get(call); if (at) show(at, "network: ", plain([...names].slice(0, 5).join(", "))); }
  };

  all.addEventListener("change", () => seen.classList.toggle("all", all.checked));
  show(into, h("div", { class: "row" },
    button("Undo the last change", () => undoLast(id), { disabled: !info.auto_snapshot }),
    button("Verify the log", async () => show(verified, await verification(id))),
    h("label", { class: "inline", for: "own" }, all, " also what this page looked at"), live), verified,
    !info.auto_snapshot && h("p", { class: "none" }, "This session makes no steps, so its calls can't be undone. Sessions created with steps can."),
    seen, older);
  await page();
  if (last === 0) show(older, h("p", { class: "none" }, "No call was made yet. Open the terminal, or let an agent work here."));
  void connections().catch(() => undefined);
  follow(id, () => last, gone, live, () => page(), (c) => {
    if (c.seq <= last) return;
    if (last === 0) show(older);
    last = c.seq;
    if (first === 0) first = c.seq;
    add(c, true);
    void connections().catch(() => undefined);
  });
}

/** Listens for new records, but not while nobody looks: a browser has few connections. Where too many came, again reads the log. */
function follow(id: string, after: () => number, gone: AbortSignal, live: HTMLElement, again: () => Promise<void>, each: (c: Call) => void): void {
  let watching: AbortController | undefined, waiting = 0, over = false;
  const stop = () => { window.clearTimeout(waiting); watching?.abort(); watching = undefined; };
  const begin = () => {
    if (gone.aborted || document.hidden || watching || over) return;
    const now = watching = new AbortController();
    let gap = false;
    void listen(of(id, "events", { after: after() }), now.signal, () => show(live, "● live"), (event, data) => {
      if (event === "end") over = true;
      else if (event === "gap") gap = true;
      else each(JSON.parse(data) as Call);
    }).then(() => (gap ? again() : undefined)).catch((e: unknown) => { gap = false; over = e instanceof Refused && e.status === 404; }).then(() => {
      if (watching !== now) return;
      watching = undefined;
      if (gap) return begin();
      show(live, over ? "The session is gone." : "○ waiting for the server");
      waiting = window.setTimeout(begin, 2000);
    });
  };
  const turn = () => (document.hidden ? stop() : begin());
  document.addEventListener("visibilitychange", turn);
  gone.addEventListener("abort", () => { stop(); document.removeEventListener("visibilitychange", turn); });
  begin();
}

function item(c: Call, id: string, steps: boolean, hosts: Map<string, HTMLElement>): HTMLElement {
  const changes = c.changes ?? [];
  const more = c.more_changes ?? 0;
  const network = h("span", { class: "network" });
  hosts.set(c.call, network);
  const body = h("div", { class: "detail" });
  const details = h("details", {}, h("summary", {},
    when(c.time), " ", h("strong", {}, plain(c.tool, 60)), " ", outcome(c), " ", h("span", { class: "took" }, took(c.duration_ns)), " ",
    h("span", { class: "what" }, h("bdi", {}, plain(about(c), 300))), " ",
    (changes.length > 0 || c.changes_unknown) && h("span", { class: "changed" }, c.rolled_back ? "rolled back" : changed(c, changes.length + more)), " ", network), body);
  details.addEventListener("toggle", () => {
    if (details.open && body.childElementCount === 0) fill(body, c, id, steps && changes.length > 0 && !c.rolled_back);
  });
  return h("li", { class: looks.has(c.tool) && c.caller === "page" ? "own" : "" }, details);
}

const changed = (c: Call, n: number) => (n === 0 && c.changes_unknown ? "changes unknown" : `${n} ${n === 1 ? "file" : "files"} changed`);

function fill(body: HTMLElement, c: Call, id: string, canUndo: boolean): void {
  const patch = h("div");
  const facts: [string, Child][] = [["Call", c.call], ["Caller", plain(c.caller)], ["Number in the log", c.seq], ["Result", `${c.result_bytes} bytes`]];
  for (const [k, v] of Object.entries(c.args ?? {})) facts.push([plain(k, 60), plain(Array.isArray(v) ? v.join(" ") : String(v))]);
  if (c.message) facts.push(["Message", plain(c.message)]);
  show(body, h("dl", {}, ...facts.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, h("bdi", {}, v))])),
    (c.changes ?? []).length > 0 && h("ul", { class: "paths" }, ...(c.changes ?? []).map((f) => h("li", {}, f.removed ? "− " : "± ", h("bdi", {}, plain(f.path))))),
    canUndo && h("div", { class: "row" },
      button("Show the diff", async () => show(patch, diffOf(await get<Compared>(of(id, `steps/${encodeURIComponent(c.call)}`)))), { "aria-label": `Show the diff: ${c.tool} ${c.call}` }),
      button("Undo this call and all after it", () => undo(id, c.call, c.tool), { class: "danger", "aria-label": `Undo this call and all after it: ${c.tool} ${c.call}` })), patch);
}

/** Asks about the last call that has changed something, by its name: another one may come meanwhile. */
async function undoLast(id: string): Promise<void> {
  const { steps } = await get<{ steps: Step[] }>(of(id, "steps"));
  const last = steps.find((s) => s.total_changes > 0);
  if (!last) throw new Error("There is nothing to undo.");
  undo(id, last.call, last.tool, `It has changed ${last.changes.slice(0, 3).map((c) => plain(c.path, 80)).join(", ")}${last.total_changes > 3 ? ` and ${last.total_changes - 3} more` : ""}. `);
}

function undo(id: string, call: string, tool: string, changes = ""): void {
  ask(`Undo ${plain(tool, 60)} ${call} and all after it?`, `${changes}Files become what they were before. The present state is kept as a snapshot.`, [], "Undo", async () => {
    const done = await asked<Undone>("POST", of(id, "undo"), { call });
    say(`${done.calls === 1 ? "One call was" : `${done.calls} calls were`} undone, from ${done.tool ?? ""} ${done.call} on: ${done.restored.added} files added, ${done.restored.changed} changed, ${done.restored.removed} removed.` +
      (done.unkept ? ` The state before is lost: ${done.unkept}` : ""), Boolean(done.unkept));
  });
}

async function verification(id: string): Promise<HTMLElement> {
  const v = await get<Verification>(of(id, "verify"));
  const problems = [...(v.calls.problems ?? []), ...(v.connections.problems ?? [])];
  if (problems.length === 0) {
    return h("p", { class: "good" }, `The log is what was written: ${v.calls.records} calls and ${v.connections.records} connections. Its head is ${v.calls.head.seq} `,
      h("code", {}, v.calls.head.hash), ".");
  }
  return h("div", { class: "fault", role: "alert" }, "The log is not what was written:", h("ul", {}, ...problems.slice(0, 20).map((p) => h("li", {}, `${p.file}:${p.line}: ${p.kind}: ${plain(p.message)}`))));
}
