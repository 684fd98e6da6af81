import { ask as asked, events, get, of, reach } from "./api";
import { button, guard, h, plain, say, show } from "./dom";
import { objectOf, textOf, type Shown } from "./shown";

const cells = 30; // maximum shown by the page
const mostOutput = 200_000; // characters of one cell

interface Part { stdout?: string; stderr?: string; shown?: Shown; raised?: { traceback: string }; count?: number }
interface End { status: string; value_repr?: string; message?: string; error?: { message: string } }

const drafts = new Map<string, string>(); // content of the editor, by session

/** Python in an interpreter that keeps its names: the page's own, or one of the agents'. */
export async function evaluate(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const code = h("textarea", { id: "code", class: "editor code", rows: 6, spellcheck: "false", autocapitalize: "off", "aria-describedby": "code-hint", input: () => drafts.set(id, code.value) }, drafts.get(id) ?? "");
  const where = h("select", { id: "where" });
  const time = h("input", { type: "number", id: "time", value: 5, min: 1, step: "any", class: "number" });
  const out = h("ol", { class: "cells", "aria-label": "Results, newest first" });
  let running: AbortController | undefined;
  const run = button("Run", () => start(), { class: "main" });
  const stop = button("Stop", () => running?.abort(), { disabled: true });

  async function start(): Promise<void> {
    const text = code.value;
    if (text.trim() === "" || running) return;
    const now = running = new AbortController();
    stop.disabled = false;
    const state = h("span", { class: "live", role: "status" }, "● runs");
    const given = h("div");
    out.prepend(h("li", {}, h("pre", { class: "text", tabindex: 0, role: "region", "aria-label": "Code" }, textOf(text)), state, given));
    while (out.childElementCount > cells) out.lastElementChild!.remove();
    try {
      show(state, await cell(id, text, where.value, Number(time.value) || 5, given, now.signal));
    } catch (e) {
      show(state, now.signal.aborted ? "stopped" : h("span", { class: "fault" }, plain(e instanceof Error ? e.message : String(e), 1000)));
    } finally {
      running = undefined;
      if (document.activeElement === stop) code.focus();
      stop.disabled = true;
    }
  }

  code.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); void start(); }
  });
  show(into, h("div", { class: "row" }, h("label", { for: "where" }, "Runs in"), where, h("label", { for: "time" }, "for at most"), time, "seconds",
    button("Forget its names", async () => {
      await asked("POST", of(id, "restart"), { context: where.value });
      say("The interpreter restarts and loses all variables.");
    })),
    h("label", { for: "code" }, "Python"), code,
    h("div", { class: "row" }, run, stop, h("small", { id: "code-hint" }, "Ctrl+Enter runs it. Figures of Matplotlib, tables of pandas and display(…) are shown below.")), out);
  gone.addEventListener("abort", () => running?.abort());
  guard(() => into.isConnected && running !== undefined, { title: "Stop the code?", text: "It is still running, and stops if you leave this view.", yes: "Stop it" });
  const { contexts } = await get<{ contexts: { name: string; language?: string }[] }>(of(id, "contexts"), gone);
  show(where, h("option", { value: "page" }, "the page's own interpreter"), h("option", { value: "" }, "the agents' kept interpreter"),
    ...contexts.filter((c) => c.name !== "page" && c.name !== "").map((c) => h("option", { value: c.name }, `${plain(c.name, 40)} ${plain(c.language ?? "", 20)}`)));
  code.focus();
}

/** Runs code, shows what it gives as it comes, and returns how it ended. */
async function cell(id: string, code: string, context: string, timeout: number, into: HTMLElement, signal: AbortSignal): Promise<string> {
  const answer = await reach("POST", of(id, "evaluate"), { code, context, timeout }, signal);
  let end: End | undefined, written = 0;
  const write = (text: string, bad: boolean) => {
    const last = into.lastElementChild;
    const kind = bad ? "text bad" : "text";
    const pre = last?.tagName === "PRE" && last.className === kind ? last : h("pre", { class: kind, tabindex: 0, role: "region", "aria-label": bad ? "Errors" : "Output" });
    pre.append(textOf(text));
    if (pre !== last) into.append(pre);
  };
  const output = (text: string, bad: boolean) => {
    if (written >= mostOutput) return;
    written += text.length;
    write(text, bad);
    if (written >= mostOutput) into.append(h("p", { class: "none" }, "The output is too long to show completely."));
  };
  await events(answer, (event, data) => {
    if (event === "end") { end = JSON.parse(data) as End; return; }
    const p = JSON.parse(data) as Part;
    if (p.stdout !== undefined) output(p.stdout, false);
    if (p.stderr !== undefined) output(p.stderr, true);
    if (p.shown) into.append(objectOf(p.shown));
    if (p.raised) write(p.raised.traceback, true);
  });
  if (!end) throw new Error("The connection was lost, and the code was stopped.");
  if (end.error) throw new Error(end.error.message);
  return [end.status === "exited" ? "✓ done" : end.status.replaceAll("_", " "), end.message ?? ""].filter((t) => t !== "").map((t) => plain(t, 500)).join(": ");
}
