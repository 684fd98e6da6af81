import { button, h, plain, show } from "./dom";

const rowsAtOnce = 200;
export const mostColumns = 50;
export const mostRows = 100_000;

/** Rows of texts. Those of large tables are made when they are asked for. */
export interface Rows { readonly length: number; at(i: number): string[] | undefined }

/** A table of texts, a part at a time: the page has never more of it than that. */
export function tableOf(label: string, head: string[], rows: Rows, numbered = false): HTMLElement {
  const body = h("tbody"), turn = h("div", { class: "row" });
  let columns = head.length;
  for (let i = 0; i < Math.min(rows.length, 1000); i++) columns = Math.max(columns, rows.at(i)!.length);
  columns = Math.min(columns, mostColumns);
  const draw = (from: number) => {
    const to = Math.min(from + rowsAtOnce, rows.length);
    show(body, ...Array.from({ length: to - from }, (_, i) => {
      const r = rows.at(from + i)!;
      return h("tr", {}, numbered && h("th", { scope: "row", class: "no" }, from + i + 1), ...Array.from({ length: columns }, (_, c) => h("td", {}, plain(r[c] ?? "", 300))));
    }));
    const move = (name: string, at: number) => button(name, () => { draw(at); turn.querySelector("button")?.focus(); });
    show(turn, h("span", { class: "none" }, rows.length === 0 ? "No rows." : `Rows ${from + 1} to ${to} of ${rows.length}`,
      head.length > columns && `, ${columns} of ${head.length} columns`),
      from > 0 && move("Earlier rows", Math.max(0, from - rowsAtOnce)), to < rows.length && move("Later rows", to));
  };
  draw(0);
  return h("div", {}, h("div", { class: "wide sheet", tabindex: 0, role: "region", "aria-label": label }, h("table", {},
    head.length > 0 && h("thead", {}, h("tr", {}, numbered && h("th", { scope: "col" }, "#"), ...head.slice(0, columns).map((t) => h("th", { scope: "col" }, plain(t, 100) || "\u00a0")))), body)), turn);
}

/** The rows of a CSV or TSV text, which may be any text. */
export function rowsOf(text: string, tab: boolean): string[][] {
  const end = text.indexOf("\n");
  const first = end < 0 ? text : text.slice(0, end);
  const between = tab ? "\t" : first.split(";").length > first.split(",").length ? ";" : ",";
  const rows: string[][] = [];
  let row: string[] = [], at = text.startsWith("\ufeff") ? 1 : 0;
  while (at < text.length && rows.length < mostRows) {
    let value = "";
    if (text[at] === '"') {
      for (at++; ;) {
        const quote = text.indexOf('"', at);
        value += text.slice(at, quote < 0 ? text.length : quote);
        at = quote < 0 ? text.length : quote + 1;
        if (text[at] !== '"' || quote < 0) break;
        value += '"';
        at++;
      }
    }
    let to = at;
    while (to < text.length && text[to] !== between && text[to] !== "\n") to++;
    value += text.slice(at, to);
    row.push(text[to] === between ? value : value.replace(/\r$/, ""));
    if (text[to] !== between || to + 1 === text.length) { rows.push(row); row = []; }
    at = to + 1;
  }
  return rows;
}

const entities: Record<string, string> = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'", nbsp: " " };

function unescaped(text: string): string {
  return text.replace(/&(#\d{1,7}|#x[0-9a-f]{1,6}|[a-z]{2,6});/gi, (whole, name: string) => {
    if (!name.startsWith("#")) return entities[name.toLowerCase()] ?? whole;
    const code = /^#x/i.test(name) ? parseInt(name.slice(2), 16) : Number(name.slice(1));
    return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  }).replace(/\s+/g, " ").trim();
}

/** One head of two rows, as pandas writes it where the index has a name. */
function beneath(head: string[], row: string[]): string[] {
  return Array.from({ length: Math.max(head.length, row.length) }, (_, i) => [head[i], row[i]].filter((t) => t).join(" "));
}

/** The cells of the tables in an HTML text, as texts: none of it becomes HTML here. */
export function tablesOf(html: string): { head: string[]; rows: string[][] }[] {
  const lower = html.replace(/[A-Z]+/g, (t) => t.toLowerCase()); // for other letters toLowerCase may make the text longer
  const tables: { head: string[]; rows: string[][] }[] = [];
  let row: string[] | undefined, heads = 0, cell: string[] | undefined;
  const endCell = () => { if (cell && row) row.push(unescaped(cell.join(""))); cell = undefined; };
  const endRow = () => {
    endCell();
    const now = tables.at(-1);
    if (row && now && row.length > 0) {
      if (heads === row.length && now.rows.length === 0) now.head = beneath(now.head, row);
      else if (now.rows.length < mostRows) now.rows.push(row);
    }
    row = undefined;
    heads = 0;
  };
  for (let at = 0, open = false; at < html.length;) {
    const tag = html.indexOf("<", at), end = tag < 0 ? -1 : html.indexOf(">", tag);
    if (cell) cell.push(html.slice(at, tag < 0 ? html.length : tag));
    if (end < 0) break;
    at = end + 1;
    const name = /^<\/?[a-z]*/.exec(lower.slice(tag, tag + 12))?.[0] ?? "";
    if (name === "<script" || name === "<style") {
      const close = lower.indexOf(`</${name.slice(1)}`, at);
      at = close < 0 ? html.length : close;
    } else if (name === "<table") { endRow(); tables.push({ head: [], rows: [] }); open = true; }
    else if (name === "</table") { endRow(); open = false; }
    else if (!open) continue;
    else if (name === "<tr") { endRow(); row = []; }
    else if (name === "</tr") endRow();
    else if (name === "<td" || name === "<th") { endCell(); row ??= []; cell = []; if (name === "<th") heads++; }
    else if (name === "</td" || name === "</th") endCell();
    else if (name === "<br" && cell) cell.push(" ");
  }
  endRow();
  return tables.filter((t) => t.rows.length + t.head.length > 0);
}
