import { ask as asked, download, get, of, type Compared, type Snapshot } from "./api";
import { diffOf } from "./diff";
import { ask, button, bytes, h, plain, say, show, when } from "./dom";

export async function snapshots(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const body = h("tbody"), patch = h("div", { "aria-live": "polite" });
  const from = h("select", { id: "from" }), to = h("select", { id: "to" });
  const named = (s: Snapshot) => `${plain(s.label || s.snapshot_id, 60)}${s.call ? ` (${s.call.slice(0, 10)})` : ""}`;
  const load = async () => {
    const { snapshots: all } = await get<{ snapshots: Snapshot[] }>(of(id, "snapshots"), gone);
    all.reverse();
    const chosen = [from.value, to.value];
    show(from, h("option", { value: "" }, "what the session was given"), ...all.map((s) => h("option", { value: s.snapshot_id }, named(s))));
    show(to, h("option", { value: "" }, "now"), ...all.map((s) => h("option", { value: s.snapshot_id }, named(s))));
    [from, to].forEach((s, i) => { if (all.some((k) => k.snapshot_id === chosen[i])) s.value = chosen[i]!; });
    show(body, ...all.map((s) => row(id, s, named(s), load, (f) => { from.value = f; to.value = ""; return compare(); })));
    if (all.length === 0) show(body, h("tr", {}, h("td", { colspan: 5, class: "none" }, "No snapshots yet.")));
  };
  const compare = async (all = "") => {
    const query = { from: from.value, to: to.value, ...(all && { all }) };
    const d = await get<Compared>(of(id, "diff", query), gone);
    show(patch, h("p", {}, button("Download the patch", () => download(of(id, "patch", query), `${id}.patch`))), diffOf(d, () => compare("1")));
  };
  show(into, h("div", { class: "row" }, button("Keep the files as they are", () =>
    ask("New snapshot", "", [{ name: "label", label: "Name" }], "Keep", async (a) => { await asked("POST", of(id, "snapshots"), { label: a["label"] }); await load(); }), { class: "main" })),
    h("div", { class: "row" }, h("label", { for: "from" }, "From"), from, h("label", { for: "to" }, "to"), to, button("Compare", () => compare())),
    patch,
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Snapshots" }, h("table", {}, h("thead", {}, h("tr", {}, ...["Snapshot", "Made", "Files", "Size", "Actions"].map((t) => h("th", { scope: "col" }, t)))), body)));
  await load();
}

function row(id: string, s: Snapshot, name: string, load: () => Promise<void>, compare: (from: string) => Promise<void>): HTMLElement {
  return h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, name)), h("td", {}, when(s.created_at)), h("td", {}, s.files), h("td", {}, bytes(s.bytes)),
    h("td", { class: "row" },
      button("Compare with now", () => compare(s.snapshot_id), { "aria-label": `Compare with now: ${name}` }),
      button("Restore", () => ask(`Restore ${name}?`, "All files return to their state in this snapshot. Files that are in no snapshot are lost.", [], "Restore", async () => {
        const done = await asked<{ added: number; changed: number; removed: number }>("POST", of(id, "restore"), { snapshot_id: s.snapshot_id });
        say(`Restored: ${done.added} added, ${done.changed} changed, ${done.removed} removed.`);
        await load();
      }, true), { "aria-label": `Restore ${name}` }),
      button("Forget", () => ask(`Forget ${name}?`, "This frees the space that only this snapshot uses.", [], "Forget", async () => { await asked("DELETE", of(id, `snapshots/${s.snapshot_id}`)); await load(); }, true),
        { class: "danger", "aria-label": `Forget ${name}` })));
}
