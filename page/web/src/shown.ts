import { button, h, plain, plainLine, show, type Child } from "./dom";
import { mostColumns, mostRows, tableOf, tablesOf, type Rows } from "./table";

interface Display { mime: string; data: string }

/** An object that code has shown. Whoever wrote the code wrote all of it: each part is looked at before it is used. */
export interface Shown { main: boolean; text: string; display?: Display[]; data?: unknown; chart?: unknown; json?: unknown }

const mostText = 200_000; // characters

/** A text of many lines, with what could steer written out. */
export function textOf(text: string): string {
  return text.slice(0, mostText).split("\n").map((l) => plainLine(l)).join("\n") + (text.length > mostText ? `\n… (${text.length - mostText} more characters)` : "");
}

const pre = (label: string, text: string) => h("pre", { class: "text", tabindex: 0, role: "region", "aria-label": label }, textOf(text));

const word = (v: unknown): string => (typeof v === "string" ? v : v === null || v === undefined ? "" : typeof v === "object" ? JSON.stringify(v) : String(v));

/** A picture of bytes, or of SVG, which runs nothing and loads nothing where it is an image. */
export function image(mime: string, data: string, alt: string): HTMLElement {
  const url = mime === "image/svg+xml" ? `data:image/svg+xml,${encodeURIComponent(data)}` : `data:${mime};base64,${data.replace(/[^A-Za-z0-9+/=]/g, "")}`;
  const box = h("div", { class: "picture" });
  box.append(h("img", { src: url, alt: plain(alt, 200), error: () => box.replaceChildren(h("p", { class: "fault" }, "This image is broken.")) }));
  return box;
}

/** An SVG of code, once somebody wants it: a short one can keep a browser busy for hours. */
function drawing(data: string, alt: string): HTMLElement {
  const box: HTMLElement = h("div", { class: "row" }, button("Show the SVG picture", () => show(box, image("image/svg+xml", data, alt))),
    h("small", {}, "The browser draws it; a hostile one can stop this tab until you close it."));
  return box;
}

const images = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]);

/** The columns of a DataFrame, with the order and the index of its HTML table where that has each row. */
function columnsOf(data: unknown, html: { head: string[]; rows: string[][] } | undefined): { head: string[]; rows: Rows; numbered: boolean } | undefined {
  if (typeof data !== "object" || data === null || Array.isArray(data)) return undefined;
  let columns = Object.entries(data).filter((c): c is [string, unknown[]] => Array.isArray(c[1]));
  const most = Math.min(mostRows, columns.reduce((n, [, v]) => Math.max(n, v.length), 0));
  const all = columns.length;
  const index = html !== undefined && html.rows.length === most && html.head.length > all ? html : undefined;
  if (index) {
    const places = new Map(index.head.slice(-all).map((t, i) => [t, i]));
    if (columns.every(([k]) => places.has(k))) columns.sort(([a], [b]) => places.get(a)! - places.get(b)!);
  }
  const head = columns.map(([k]) => k);
  columns = columns.slice(0, mostColumns); // tables never show more
  const label = (r: string[]) => r.slice(0, Math.max(0, r.length - all)).join(" ");
  return {
    head: index ? [label(index.head), ...head] : head, numbered: !index,
    rows: { length: most, at: (i) => [...(index ? [label(index.rows[i] ?? [])] : []), ...columns.map(([, v]) => word(v[i]))] },
  };
}

/** What a chart draws, as rows. */
function pointsOf(chart: unknown): { title: string; head: string[]; rows: string[][] } | undefined {
  if (typeof chart !== "object" || chart === null) return undefined;
  const c = chart as Record<string, unknown>;
  const elements = Array.isArray(c["elements"]) ? (c["elements"] as unknown[]) : [];
  const rows: string[][] = [];
  let head: string[] = [];
  for (const e of elements) {
    if (typeof e !== "object" || e === null) continue;
    const { label, points, ...rest } = e as Record<string, unknown>;
    if (Array.isArray(points)) {
      head = ["Series", word(c["x_label"]) || "x", word(c["y_label"]) || "y"];
      for (const p of points) rows.push([word(label), ...(Array.isArray(p) ? p.slice(0, 2).map(word) : [word(p)])]);
    } else {
      head = ["Name", ...Object.keys(rest)];
      rows.push([word(label), ...Object.values(rest).map(word)]);
    }
  }
  return rows.length === 0 ? undefined : { title: word(c["title"]), head, rows };
}

function save(d: Display, name: string): HTMLElement {
  return button(`Download ${name}`, () => {
    const raw = Uint8Array.from(atob(d.data), (ch) => ch.charCodeAt(0));
    const url = URL.createObjectURL(new Blob([raw], { type: "application/octet-stream" }));
    const link = h("a", { href: url, download: name });
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
}

/** An object with the best that is known of it: its picture, its table, or its text. */
export function objectOf(o: Shown): HTMLElement {
  const parts: Child[] = [];
  const all = (Array.isArray(o.display) ? o.display : []).filter((d) => typeof d?.mime === "string" && typeof d.data === "string");
  const tables = all.filter((d) => d.mime === "text/html").map((d) => tablesOf(d.data));
  const chart = pointsOf(o.chart), data = columnsOf(o.data, tables.length === 1 && tables[0]!.length === 1 ? tables[0]![0] : undefined);
  for (const d of all.filter((d) => images.has(d.mime))) {
    const alt = chart?.title ? `Chart: ${chart.title}` : `Picture: ${word(o.text)}`;
    parts.push(d.mime === "image/svg+xml" ? drawing(d.data, alt) : image(d.mime, d.data, alt));
  }
  if (chart) parts.push(h("details", {}, h("summary", {}, "Numbers of the chart"), tableOf(`Numbers of the chart ${plain(chart.title, 80)}`, chart.head, chart.rows)));
  if (data && data.rows.length > 0) parts.push(tableOf("Table", data.head, data.rows, data.numbered));
  for (const d of all.filter((d) => !images.has(d.mime) && d.mime !== "text/plain")) {
    const found = d.mime === "text/html" ? tables.shift()! : [];
    if (d.mime === "application/json" && data && data.rows.length > 0) continue; // the same table again
    if (d.mime === "application/pdf") parts.push(save(d, "document.pdf"));
    else if (found.length > 0 && data && data.rows.length > 0) continue;
    else if (found.length > 0) parts.push(...found.slice(0, 20).map((t) => tableOf("Table", t.head, t.rows)));
    else parts.push(h("p", { class: "none" }, `${plain(d.mime, 60)}, as it is written:`), pre(plain(d.mime, 60), d.data));
  }
  if (parts.length === 0) parts.push(pre(o.main ? "Value" : "Shown", all.find((d) => d.mime === "text/plain")?.data ?? word(o.text)));
  return h("div", { class: "shown" }, ...parts);
}
