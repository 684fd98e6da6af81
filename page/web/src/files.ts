import { ask as asked, download, get, of, reach, Refused, type Entry, type Listing, type Shown } from "./api";
import { ask, button, bytes, guard, h, leaving, plain, plainLine, release, say, show } from "./dom";
import { image } from "./shown";
import { rowsOf, tableOf } from "./table";

const linesAtOnce = 5000;
const entriesAtOnce = 1000; // of a directory, the same as in the server
const maxEdited = 48_000; // characters, the file tools' maximum
const maxImage = 16 << 20;

const join = (dir: string, name: string) => (dir === "." ? name : `${dir}/${name}`);

export async function files(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const view = h("section", { class: "viewer", "aria-label": "File", tabindex: -1 }, h("p", { class: "none" }, "Choose a file."));
  const tree = h("div", { class: "tree" });
  const reload = async () => show(tree, await directory(id, ".", (p) => open(id, p, view, gone), gone));
  show(into, h("div", { class: "row" }, button("Look again", reload),
    button("New file", () => void leaving(() => ask("New file", "", [{ name: "path", label: "Path in the workspace", required: true }], "Create", async (a) => {
      await asked("PUT", of(id, "file", { path: a["path"]! }), { text: "\n", was: "" });
      await reload();
      await open(id, a["path"]!, view, gone);
    }))),
    button("Download all as tar", () => download(of(id, "archive"), `${id}.tar`))), h("div", { class: "split" }, h("nav", { "aria-label": "Files of the workspace" }, tree), view));
  await reload();
}

/** A directory's entries, a part at a time: the page has never more of it than that. Those of directories come when they are opened. */
async function directory(id: string, path: string, choose: (path: string) => Promise<void>, gone: AbortSignal): Promise<HTMLElement> {
  const list = h("ul", {});
  const part = async (from: number): Promise<void> => {
    const l = await get<Listing>(of(id, "files", { path, from }), gone);
    const end = from + l.entries.length;
    const turn = (name: string, at: number) => h("li", {}, button(name, async () => { await part(at); list.querySelector<HTMLElement>("button, summary")?.focus(); }));
    show(list, from > 0 && turn(`Previous entries (${from})`, Math.max(0, from - entriesAtOnce)), ...l.entries.map((e) => entry(id, path, e, choose, gone)),
      end < l.total && turn(`More (${l.total - end})`, end), l.total === 0 && h("li", { class: "none" }, "empty"));
  };
  await part(0);
  return list;
}

function entry(id: string, dir: string, e: Entry, choose: (path: string) => Promise<void>, gone: AbortSignal): HTMLElement {
  const name = h("bdi", {}, plain(e.name, 255));
  if (e.odd) return h("li", {}, name, h("small", {}, " (its name is no UTF-8; use the terminal)"));
  const path = join(dir, e.name);
  if (e.kind === "dir") {
    const d = h("details", {}, h("summary", {}, name, "/"));
    d.addEventListener("toggle", () => {
      if (d.open && d.childElementCount === 1) void directory(id, path, choose, gone).then((l) => d.append(l), (err: Error) => say(err.message, true));
    });
    return h("li", {}, d);
  }
  if (e.kind === "other") return h("li", {}, name, h("small", {}, " (no regular file)"));
  return h("li", {}, h("button", { type: "button", class: "plain file", click: () => leaving(() => void choose(path).catch((err: Error) => say(err.message, true))) }, name),
    h("small", {}, e.kind === "link" ? ` → ${plain(e.target ?? "", 100)}` : ` ${bytes(e.size)}`));
}

/** The one end that all lines of a text have; undefined where they differ, as an editor makes them one. */
function lineEnd(text: string): string | undefined {
  const count = (what: RegExp) => text.match(what)?.length ?? 0;
  const returns = count(/\r/g);
  if (returns === 0) return "\n";
  return returns === count(/\r\n/g) && returns === count(/\n/g) ? "\r\n" : undefined;
}

/** The ways to look at a file beside the one that it is shown in at first. */
function waysOf(path: string, f: Shown): string[] {
  if (f.kind === "image") return ["Image", "Bytes"];
  if (f.kind === "bytes") return [];
  if (/\.svg$/i.test(path)) return ["Text", "Image", "Bytes"];
  return /\.(csv|tsv|tab)$/i.test(path) ? ["Table", "Text", "Bytes"] : ["Text", "Bytes"];
}

async function open(id: string, path: string, view: HTMLElement, gone: AbortSignal): Promise<void> {
  const f = await get<Shown>(of(id, "file", { path }), gone);
  const ways = waysOf(path, f), seen = h("div");
  const buttons = ways.map((way) => button(way, async () => { show(seen, await look(id, path, f, way, gone)); turned(way); }, { "aria-pressed": "false" }));
  const turned = (way: string) => { for (const b of buttons) b.setAttribute("aria-pressed", String(b.textContent === way)); };
  const whole = f.kind === "text" && !f.cut && f.text!.length <= maxEdited;
  const editable = whole && lineEnd(f.text ?? "") !== undefined;
  show(view, h("h2", {}, h("bdi", {}, plain(path))), h("div", { class: "row" }, h("span", {}, bytes(f.size)),
    button("Download", () => download(of(id, "raw", { path }), "")), editable && button("Edit", () => edit(id, path, f, view, gone)),
    buttons.length > 0 && h("span", { class: "row", role: "group", "aria-label": "Shown as" }, ...buttons)),
    whole && !editable && h("p", { class: "none" }, "The file mixes line endings, which this editor can't keep; edit it in the terminal."),
    f.cut && h("p", { class: "none" }, "Only the beginning is shown; download the file for the rest."), seen);
  show(seen, await look(id, path, f, ways[0] ?? "", gone));
  turned(ways[0] ?? "");
  view.focus({ preventScroll: true });
}

/** A file in one of its ways: a program has chosen its name and its bytes, and none of it becomes HTML. */
async function look(id: string, path: string, f: Shown, way: string, gone: AbortSignal): Promise<HTMLElement> {
  if (way === "Bytes") f = await get<Shown>(of(id, "file", { path, as: "hex" }), gone);
  if (way === "Table") {
    const [head, ...rows] = rowsOf(f.text ?? "", !/\.csv$/i.test(path));
    return tableOf(`Table of ${plain(path, 100)}`, head ?? [], rows, true);
  }
  if (way === "Image" && f.kind === "text") return image("image/svg+xml", f.text ?? "", `Image ${plain(path, 100)}`);
  if (f.kind === "image") return picture(id, path, f, gone);
  if (f.kind === "bytes") return h("pre", { tabindex: 0, "aria-label": "Bytes in hexadecimal" }, hex(f.hex ?? ""));
  const all = (f.text ?? "").split(lineEnd(f.text ?? "") ?? "\n");
  if (all.at(-1) === "") all.pop();
  const text = h("pre", { class: "text", tabindex: 0, "aria-label": "Text" });
  const more = h("div", { class: "row" });
  let drawn = 0;
  const draw = () => {
    const next = all.slice(drawn, drawn + linesAtOnce);
    drawn += next.length;
    text.append(next.map((l) => plainLine(l)).join("\n"), "\n");
    show(more, drawn < all.length && button(`More lines (${all.length - drawn})`, draw));
  };
  draw();
  return h("div", {}, text, more);
}

/** An image by its bytes, under a type that runs nothing: SVG is a text here. */
function picture(id: string, path: string, f: Shown, gone: AbortSignal): HTMLElement {
  const box = h("div", {}, h("p", { class: "none" }, "Loading the image…"));
  if (f.size > maxImage) {
    show(box, h("p", { class: "none" }, "The image is too large to be shown; download it."));
    return box;
  }
  void reach("GET", of(id, "raw", { path }), undefined, gone).then(async (r) => {
    const url = URL.createObjectURL(new Blob([await r.arrayBuffer()], { type: f.type! }));
    const img = h("img", { src: url, alt: `Image ${plain(path, 100)}`, error: () => show(box, h("p", { class: "fault" }, "This image is broken.")) });
    gone.addEventListener("abort", () => URL.revokeObjectURL(url));
    show(box, img);
  }).catch((e: Error) => show(box, h("p", { class: "fault" }, e.message)));
  return box;
}

function hex(text: string): string {
  const rows: string[] = [];
  for (let i = 0; i < text.length; i += 32) {
    const part = text.slice(i, i + 32).match(/../g) ?? [];
    const chars = part.map((b) => { const n = parseInt(b, 16); return n > 31 && n < 127 ? String.fromCharCode(n) : "."; }).join("");
    rows.push(`${(i / 2).toString(16).padStart(6, "0")}  ${part.join(" ").padEnd(47)}  ${chars}`);
  }
  return rows.join("\n");
}

function edit(id: string, path: string, f: Shown, view: HTMLElement, gone: AbortSignal): void {
  const area = h("textarea", { class: "editor", spellcheck: "false", rows: 24, "aria-label": `Text of ${path}` });
  const end = lineEnd(f.text ?? "")!;
  area.value = f.text ?? "";
  const save = async () => {
    try {
      await asked("PUT", of(id, "file", { path }), { text: area.value.replaceAll("\n", end), was: f.sha256 });
    } catch (e) {
      if (e instanceof Refused && e.kind === "exists") throw new Error("A file with that name exists.");
      if (e instanceof Refused && e.status === 401) throw new Error("This browser isn't signed in any more; the text is not saved. Copy it, or sign in in another tab and save again.");
      throw e;
    }
    release();
    say(`${path} is saved.`);
    await open(id, path, view, gone);
  };
  show(view, h("h2", {}, h("bdi", {}, plain(path))), h("div", { class: "row" }, button("Save", save, { class: "main" }), button("Cancel", () => void leaving(() => void open(id, path, view, gone).catch((err: Error) => say(err.message, true))))), area);
  const shown = area.value;
  guard(() => area.isConnected && area.value !== shown, { title: "Discard your changes?", text: "The text in the editor isn't saved.", yes: "Discard" });
  area.focus();
}
