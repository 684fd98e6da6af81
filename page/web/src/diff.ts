import type { Compared } from "./api";
import { button, h, plain, plainLine, type Child } from "./dom";

const shownLines = 3000; // initial maximum; a button shows more

/** A line of a patch: its kind, its text, and its numbers before and after. */
interface Line { kind: " " | "+" | "-" | "@" | "#"; text: string; old?: number; new?: number }

function lines(patch: string): Line[] {
  const out: Line[] = [];
  let before = 0, after = 0, left = 0, right = 0;
  for (const text of patch.split("\n")) {
    const kind = text[0];
    if (left > 0 || right > 0) {
      if (kind === "-") { out.push({ kind, text: text.slice(1), old: before++ }); left--; continue; }
      if (kind === "+") { out.push({ kind, text: text.slice(1), new: after++ }); right--; continue; }
      if (kind === " ") { out.push({ kind, text: text.slice(1), old: before++, new: after++ }); left--; right--; continue; }
    }
    const at = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(text);
    if (at) {
      before = Number(at[1]); after = Number(at[3]);
      left = Number(at[2] ?? 1); right = Number(at[4] ?? 1);
    }
    if (text !== "") out.push({ kind: at ? "@" : "#", text });
  }
  return out;
}

const names: Record<Line["kind"], string> = { " ": "same", "+": "added", "-": "removed", "@": "hunk", "#": "head" };

const cell = (l: Line | undefined, number: number | undefined): Child[] => [
  h("td", { class: "no" }, number ?? ""),
  h("td", { class: l ? names[l.kind] : "empty" }, l && (l.kind === "+" || l.kind === "-") && h("span", { class: "sign" }, l.kind), l && plainLine(l.text)),
];

const unified = (all: Line[]): HTMLElement[] => all.map((l) => h("tr", {}, h("td", { class: "no" }, l.old ?? ""), ...cell(l, l.new)));

/** Removed lines stand beside the added ones that follow them. */
function split(all: Line[]): HTMLElement[] {
  const rows: HTMLElement[] = [];
  for (let i = 0; i < all.length;) {
    const l = all[i]!;
    if (l.kind === " ") { rows.push(h("tr", {}, ...cell(l, l.old), ...cell(l, l.new))); i++; continue; }
    if (l.kind === "@" || l.kind === "#") { rows.push(h("tr", {}, h("td", { class: names[l.kind], colspan: 4 }, plainLine(l.text)))); i++; continue; }
    const gone: Line[] = [], come: Line[] = [];
    while (all[i]?.kind === "-") gone.push(all[i++]!);
    while (all[i]?.kind === "+") come.push(all[i++]!);
    for (let n = 0; n < Math.max(gone.length, come.length); n++) rows.push(h("tr", {}, ...cell(gone[n], gone[n]?.old), ...cell(come[n], come[n]?.new)));
  }
  return rows;
}

/** What differs: the list of files, then the patch. A button calls all, which shows the files that are left out too. */
export function diffOf(d: Compared, all: () => Promise<void>): HTMLElement {
  const left = [d.git_left_out && `${d.git_left_out} in .git and the like`, d.ignored_left_out && `${d.ignored_left_out} that .gitignore ignores`,
    d.byproducts_left_out && `${d.byproducts_left_out} that programs write by themselves`].filter(Boolean);
  const note = left.length > 0 && h("p", { class: "none" }, `Left out: ${left.join(", ")}. `, (d.ignored_left_out || d.byproducts_left_out) && button("Show all files", all));
  const text = lines(d.patch);
  const body = h("tbody"), more = h("div", { class: "row" });
  let beside = false, drawn = 0;
  const draw = () => {
    const next = text.slice(drawn, drawn + shownLines);
    drawn += next.length;
    body.append(...(beside ? split(next) : unified(next)));
    more.replaceChildren(...(drawn < text.length ? [button(`More lines (${text.length - drawn})`, draw)] : []));
  };
  const turn = h("button", { type: "button", "aria-pressed": "false", click: () => {
    beside = !beside;
    turn.setAttribute("aria-pressed", String(beside));
    drawn = 0;
    body.replaceChildren();
    draw();
  } }, "Side by side");
  draw();
  if (d.changes.length === 0 && !d.more_changes) return h("div", {}, h("p", { class: "none" }, "No differences."), note);
  return h("section", { class: "diff", "aria-label": "Diff" },
    h("div", { class: "row" }, h("strong", {}, `${d.changes.length + (d.more_changes ?? 0)} changed, +${d.added_lines ?? 0} −${d.removed_lines ?? 0} lines`), turn),
    h("ul", { class: "paths" }, ...d.changes.slice(0, 200).map((c) => h("li", {}, h("span", { class: `status ${c.status}` }, c.status), " ", h("bdi", {}, plain(c.path)),
      c.from !== undefined && h("span", {}, " from ", h("bdi", {}, plain(c.from))), c.binary === true && " (binary)"))),
    note,
    d.cut && h("p", { class: "none" }, "The patch is too large to show completely; download it."),
    text.length > 0 && h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Patch" }, h("table", { class: "patch" }, body)), more);
}
