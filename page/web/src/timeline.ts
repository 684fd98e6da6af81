import { ask as request, get, listen, of, Refused, type Call, type Compared, type Connection, type Inspection, type Records, type Step, type Undone, type Verification } from "./api";
import { objectOf, type Shown } from "./shown";
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

// Calls that the page itself makes for display: hidden by default.
const looks = new Set(["diff", "snapshot_list", "process_attach", "export"]);

const atOnce = 1000; // maximum number of calls on the page

export async function timeline(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const info = await get<Inspection>(of(id), gone);
  const seen = h("ol", { class: "calls", "aria-label": "Calls, newest first" });
  const pages = h("nav", { class: "row", "aria-label": "Pages of the log" });
  const live = h("span", { class: "live" });
  const all = h("input", { type: "checkbox", id: "own" });
  const verified = h("div", { role: "status" });
  const marks = new Map<string, Marks>();
  let first = 0, last = 0; // numbers of the shown ones
  let end = 0; // of the log
  let atEnd = true, asked = 0;

  const add = (c: Call, newest: boolean) => {
    const row = item(c, id, info.auto_snapshot === true, marks);
    newest ? seen.prepend(row) : seen.append(row);
  };
  const turn = (name: string, to: string, does: () => Promise<void> | void) => button(name, does, { "data-to": to });
  const turns = () => {
    const focused = pages.contains(document.activeElement) ? document.activeElement!.getAttribute("data-to") : null;
    show(pages,
      first > 1 && turn(`Older calls (${first - 1})`, "older", () => page(first)),
      !atEnd && turn(`Newer calls (${end - last})`, "newer", () => page(last + 501)),
      !atEnd && turn("The last calls", "last", () => page()),
      end > 500 && turn("Go to a call", "one", () => ask("Go to a call", `The log has ${end} records.`, [{ name: "seq", label: "Number in the log", kind: "number", required: true }], "Go", (a) => page(Number(a["seq"]) + 1))));
    if (focused !== null) (pages.querySelector<HTMLElement>(`[data-to="${focused}"]`) ?? pages.querySelector("button"))?.focus();
  };
  /** Shows the calls before a number, or the last ones. Of two that are asked for the later one is shown. */
  const page = async (before?: number): Promise<void> => {
    const mine = ++asked;
    const p = await get<Records<Call>>(of(id, "log", { before: before !== undefined && before <= end ? Math.max(2, before) : undefined }), gone);
    if (mine !== asked) return;
    atEnd = before === undefined || before > end;
    if (atEnd && p.last < end) return page(); // more calls came meanwhile, which this page lacks
    if (atEnd) end = p.last;
    show(seen);
    marks.clear();
    for (const c of p.records.toReversed()) add(c, false);
    first = p.first;
    last = p.last;
    turns();
    if (end === 0) show(pages, h("p", { class: "none" }, "No calls yet. Open the terminal, or let an agent work here."));
    mark();
  };
  let marking = 0;
  /** Adds soon what isn't in the records of calls: their number, connections, and what was shown. */
  const mark = () => {
    marking ||= window.setTimeout(() => {
      marking = 0;
      if (end > 0) turns();
      void Promise.all([connections(id, marks, gone), displays(id, marks, gone)]).catch(() => undefined);
    }, 300);
  };
  gone.addEventListener("abort", () => window.clearTimeout(marking));

  all.addEventListener("change", () => seen.classList.toggle("all", all.checked));
  show(into, h("div", { class: "row" },
    button("Undo the last change", () => undoLast(id), { disabled: !info.auto_snapshot }),
    button("Verify the log", async () => show(verified, await verification(id))),
    h("label", { class: "inline", for: "own" }, all, " also what this page looked at"), live), verified,
    !info.auto_snapshot && h("p", { class: "none" }, "This session makes no steps, so its calls can't be undone. Sessions created with steps can."),
    seen, pages);
  await page();
  follow(id, () => end, gone, live, async () => {
    if (atEnd) return page();
    const p = await get<Records<Call>>(of(id, "log"), gone);
    end = Math.max(end, p.last);
    turns();
  }, (c) => {
    if (c.seq <= end) return;
    end = c.seq;
    if (!atEnd) return mark();
    last = c.seq;
    if (first === 0) first = c.seq;
    add(c, true);
    if (seen.childElementCount > atOnce) {
      while (seen.childElementCount > atOnce / 2) {
        marks.delete(seen.lastElementChild!.getAttribute("data-call")!);
        seen.lastElementChild!.remove();
      }
      first = Number(seen.lastElementChild!.getAttribute("data-seq"));
    }
    mark();
  });
}

/** Where of a call's row stands what its record doesn't have. */
interface Marks { network: HTMLElement; shown: HTMLElement }

async function connections(id: string, marks: Map<string, Marks>, gone: AbortSignal): Promise<void> {
  const p = await get<Records<Connection>>(of(id, "connections"), gone);
  const by = new Map<string, Set<string>>();
  for (const r of p.records) for (const call of r.calls ?? []) {
    if (!by.has(call)) by.set(call, new Set());
    by.get(call)!.add(`${r.event === "denied" ? "denied " : ""}${r.host}${r.port ? `:${r.port}` : ""}`);
  }
  for (const [call, names] of by) { const at = marks.get(call); if (at) show(at.network, "network: ", plain([...names].slice(0, 5).join(", "))); }
}

async function displays(id: string, marks: Map<string, Marks>, gone: AbortSignal): Promise<void> {
  for (const call of (await get<{ calls: string[] }>(of(id, "shown"), gone)).calls) { const at = marks.get(call); if (at) show(at.shown, "shows something "); }
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

function item(c: Call, id: string, steps: boolean, marks: Map<string, Marks>): HTMLElement {
  const changes = c.changes ?? [];
  const more = c.more_changes ?? 0;
  const network = h("span", { class: "network" }), shown = h("span", { class: "changed" });
  marks.set(c.call, { network, shown });
  const body = h("div", { class: "detail" });
  const details = h("details", {}, h("summary", {},
    when(c.time), " ", h("strong", {}, plain(c.tool, 60)), " ", outcome(c), " ", h("span", { class: "took" }, took(c.duration_ns)), " ",
    h("span", { class: "what" }, h("bdi", {}, plain(about(c), 300))), " ",
    (changes.length > 0 || c.changes_unknown) && h("span", { class: "changed" }, c.rolled_back ? "rolled back" : changed(c, changes.length + more)), " ", shown, network), body);
  details.addEventListener("toggle", () => {
    if (details.open && body.childElementCount === 0) fill(body, c, id, steps && changes.length > 0 && !c.rolled_back);
  });
  return h("li", { "data-seq": c.seq, "data-call": c.call, class: looks.has(c.tool) && c.caller === "page" ? "own" : "" }, details);
}

const changed = (c: Call, n: number) => (n === 0 && c.changes_unknown ? "changes unknown" : `${n} ${n === 1 ? "file" : "files"} changed`);

function fill(body: HTMLElement, c: Call, id: string, canUndo: boolean): void {
  const patch = h("div"), shown = h("div");
  const diff = async (all?: string): Promise<void> => show(patch, diffOf(await get<Compared>(of(id, `steps/${encodeURIComponent(c.call)}`, { all })), () => diff("1")));
  const facts: [string, Child][] = [["Call", c.call], ["Caller", plain(c.caller)], ["Number in the log", c.seq], ["Result", `${c.result_bytes} bytes`]];
  for (const [k, v] of Object.entries(c.args ?? {})) if (v !== "") facts.push([plain(k, 60), plain(Array.isArray(v) ? v.join(" ") : String(v))]);
  if (c.message) facts.push(["Message", plain(c.message)]);
  show(body, h("dl", {}, ...facts.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, h("bdi", {}, v))])),
    (c.changes ?? []).length > 0 && h("ul", { class: "paths" }, ...(c.changes ?? []).map((f) => h("li", {}, f.removed ? "− " : "± ", h("bdi", {}, plain(f.path))))),
    canUndo && h("div", { class: "row" },
      button("Show the diff", () => diff(), { "aria-label": `Show the diff: ${c.tool} ${c.call}` }),
      button("Undo this call and all after it", () => undo(id, c.call, c.tool), { class: "danger", "aria-label": `Undo this call and all after it: ${c.tool} ${c.call}` })), patch, shown);
  void get<{ objects: Shown[] }>(of(id, `shown/${encodeURIComponent(c.call)}`)).then(({ objects }) => show(shown, ...objects.map(objectOf)), (e: unknown) => {
    if (c.tool === "evaluate_python" && e instanceof Refused && e.status === 404) show(shown, h("p", { class: "none" }, "No picture or table of this evaluation is kept."));
  });
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
    const done = await request<Undone>("POST", of(id, "undo"), { call });
    say(`${done.calls === 1 ? "One call was" : `${done.calls} calls were`} undone, from ${done.tool ?? ""} ${done.call} on: ${done.restored.added} files added, ${done.restored.changed} changed, ${done.restored.removed} removed.` +
      (done.unkept ? ` The state before is lost: ${done.unkept}` : ""), Boolean(done.unkept));
  });
}

async function verification(id: string): Promise<HTMLElement> {
  const v = await get<Verification>(of(id, "verify"));
  const problems = [...(v.calls.problems ?? []), ...(v.connections.problems ?? [])];
  if (problems.length === 0) {
    return h("p", { class: "good" }, `The log is unchanged: ${v.calls.records} calls and ${v.connections.records} connections. Its head is ${v.calls.head.seq} `,
      h("code", {}, v.calls.head.hash), ".");
  }
  return h("div", { class: "fault", role: "alert" }, "The log was changed:", h("ul", {}, ...problems.slice(0, 20).map((p) => h("li", {}, `${p.file}:${p.line}: ${p.kind}: ${plain(p.message)}`))));
}
