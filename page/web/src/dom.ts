// Only this file creates elements: programs' output becomes text nodes, and never HTML.

export type Child = Node | string | number | null | undefined | false;
type Props = Record<string, string | number | boolean | EventListener | undefined>;

/** An element. A property whose value is a function is an event's listener; false leaves it out. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") e.addEventListener(name, value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value !== undefined) e.setAttribute(name, String(value));
  }
  append(e, children);
  return e;
}

export function append(to: Element, children: Child[]): void {
  for (const c of children) {
    if (c === null || c === undefined || c === false) continue;
    to.append(c instanceof Node ? c : String(c));
  }
}

const svgNamespace = "http://www.w3.org/2000/svg";

export function svg(tag: string, props: Record<string, string | number>, ...children: Element[]): SVGElement {
  const e = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(props)) e.setAttribute(name, String(value));
  e.append(...children);
  return e;
}

export function show(into: Element, ...children: Child[]): void {
  into.replaceChildren();
  append(into, children);
}

// Control characters, invisible ones, and those that change the direction or position of text: a name must look like
// its content.
const steering = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\ufff9-\ufffb\p{Default_Ignorable_Code_Point}]/gu;
const steeringText = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\ufff9-\ufffb\p{Default_Ignorable_Code_Point}]/gu;
const escaped = (c: string) => `\\u{${c.codePointAt(0)!.toString(16)}}`;

/** A name with what could steer written out, cut at max characters. */
export function plain(name: string, max = 500): string {
  return clip(name, max).replace(steering, escaped);
}

/** A line of a text, as plain, with its tabs. */
export function plainLine(line: string, max = 2000): string {
  return clip(line, max).replace(steeringText, escaped);
}

function clip(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max)}… (${text.length - max} more characters)` : text;
}

const whens = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clocks = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** A moment in the reader's zone; of today only the clock. */
export function when(iso: string): HTMLElement {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime()) || at.getFullYear() < 1971) return h("span", {}, "–");
  const today = at.toDateString() === new Date().toDateString();
  return h("time", { datetime: iso, title: whens.format(at) }, (today ? clocks : whens).format(at));
}

export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function took(ns: number): string {
  const ms = ns / 1e6;
  if (ms < 1) return `${Math.round(ns / 1e3)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  return s < 120 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

let clearing = 0;

/** Says a sentence, to screen readers too. */
export function say(text: string, bad = false): void {
  const box = document.getElementById("said")!;
  box.className = bad ? "bad" : "";
  show(box, plain(text, 1000), h("button", { class: "plain", "aria-label": "Close this message", click: () => show(box) }, "×"));
  window.clearTimeout(clearing);
  if (!bad) clearing = window.setTimeout(() => show(box), 6000);
}

/** Does something that may fail, and says so. The button does nothing meanwhile, and keeps the focus: a disabled one would lose it. */
export async function attempt(what: () => Promise<unknown>, button?: HTMLButtonElement): Promise<void> {
  if (button?.ariaDisabled === "true") return;
  if (button) button.ariaDisabled = "true";
  try {
    await what();
  } catch (e) {
    say(e instanceof Error ? e.message : String(e), true);
  } finally {
    if (button) button.ariaDisabled = null;
  }
}

export function button(text: string, does: () => Promise<unknown> | void, props: Props = {}): HTMLButtonElement {
  const b = h("button", { type: "button", ...props, click: () => void attempt(async () => does(), b) }, text);
  return b;
}

export interface Field {
  name: string;
  label: string;
  value?: string;
  hint?: string;
  kind?: "text" | "number" | "checkbox" | "textarea" | "select";
  options?: [value: string, text: string][]; // for a select
  required?: boolean;
}

/** Asks in a dialog, and does something with the answers; it stays open where that fails. */
export function ask(title: string, text: string, fields: Field[], yes: string, does: (answers: Record<string, string>) => Promise<unknown>, danger = false): void {
  const fault = h("p", { class: "fault", role: "alert" });
  const inputs = fields.map((f) => {
    const props: Props = { name: f.name, id: `f-${f.name}`, required: f.required ?? false };
    if (f.hint) props["aria-describedby"] = `h-${f.name}`;
    if (f.kind === "textarea") return h("textarea", { ...props, rows: 3 }, f.value ?? "");
    if (f.kind === "select") return h("select", props, ...(f.options ?? []).map(([value, text]) => h("option", { value, selected: value === f.value }, text)));
    if (f.kind === "checkbox") return h("input", { ...props, type: "checkbox", checked: f.value === "on" });
    return h("input", { ...props, type: f.kind ?? "text", value: f.value ?? "", autocomplete: "off", spellcheck: "false", step: "any" });
  });
  const submit = h("button", { type: "submit", class: danger ? "danger" : "main" }, yes);
  const form = h("form", { method: "dialog" }, h("h2", { id: "ask" }, title), text !== "" && h("p", {}, text),
    ...fields.map((f, i) => h("div", { class: f.kind === "checkbox" ? "field check" : "field" },
      h("label", { for: `f-${f.name}` }, f.label), inputs[i], f.hint !== undefined && h("small", { id: `h-${f.name}` }, f.hint))),
    fault, h("div", { class: "row end" }, h("button", { type: "button", click: () => dialog.close() }, "Cancel"), submit));
  const dialog = h("dialog", { "aria-labelledby": "ask", close: () => dialog.remove() }, form);
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    const answers: Record<string, string> = {};
    for (const i of inputs) answers[i.name] = i instanceof HTMLInputElement && i.type === "checkbox" ? (i.checked ? "on" : "") : i.value;
    submit.disabled = true;
    show(fault);
    does(answers).then(() => dialog.close(), (e: unknown) => {
      submit.disabled = false;
      show(fault, plain(e instanceof Error ? e.message : String(e), 1000));
    });
  });
  document.body.append(dialog);
  dialog.showModal();
}

interface Question { title: string; text: string; yes: string }

let unsaved = (): boolean => false;
let question: Question;

/** Asks the question before the page leaves a view, while leaving would lose something. */
export function guard(wouldLose: () => boolean, asks: Question): void { [unsaved, question] = [wouldLose, asks]; }

/** Reports whether leaving would lose something. */
export const guarded = (): boolean => unsaved();

/** Ends the guard: nothing is left to lose. */
export function release(): void { unsaved = () => false; }

window.addEventListener("beforeunload", (e) => { if (unsaved()) e.preventDefault(); });

/** Goes on; where something isn't saved only after a question, and false until then. */
export function leaving(go: () => void): boolean {
  if (!unsaved()) {
    go();
    return true;
  }
  ask(question.title, question.text, [], question.yes, async () => { release(); go(); }, true);
  return false;
}
