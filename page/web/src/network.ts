import { ask as asked, get, of, type Connection, type Denial, type Network, type Records } from "./api";
import { ask, button, bytes, h, plain, say, show, when } from "./dom";

const rule = (d: Denial) => (d.allow ? d.allow.split(" ").at(-1)! : "");

export async function network(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const state = h("div"), body = h("tbody"), older = h("div", { class: "row" });
  let first = 0;
  const change = async (rules: { allow?: string[]; deny?: string[] }) => { draw(await asked<Network>("POST", of(id, "egress"), rules)); };
  const draw = (n: Network) => {
    const denied = (n.denied ?? []).toReversed();
    show(state, h("dl", {}, h("dt", {}, "Allowed"), h("dd", {}, n.allow?.length ? plain(n.allow.join(" ")) : "nothing: the session has no network"),
      h("dt", {}, "Denied"), h("dd", {}, n.deny?.length ? plain(n.deny.join(" ")) : "nothing beside"),
      h("dt", {}, "Traffic"), h("dd", {}, `${bytes(n.traffic.in)} in, ${bytes(n.traffic.out)} out`)),
      n.problem !== undefined && h("p", { class: "fault" }, plain(n.problem)),
      h("h2", {}, "Last denials"), denied.length === 0 ? h("p", { class: "none" }, "No recent denials.") :
      h("ul", { class: "paths" }, ...denied.map((d) => h("li", { class: "row" }, when(d.time), h("bdi", {}, plain(`${d.host}${d.port ? `:${d.port}` : ""}`)), h("span", {}, plain(d.reason)),
        rule(d) !== "" && button(`Allow ${plain(rule(d), Infinity)}`, async () => { await change({ allow: [rule(d)] }); say(`${rule(d)} is allowed from now on.`); })))));
  };
  const page = async (before?: number) => {
    const p = await get<Records<Connection>>(of(id, "connections", { before }), gone);
    show(body, ...p.records.toReversed().map(row));
    first = p.first;
    show(older, first > 1 && button(`Older connections (${first - 1})`, () => page(first)), before !== undefined && button("Recent connections", () => page()));
    if (before === undefined && p.records.length === 0) show(older, h("p", { class: "none" }, "No program has connected anywhere."));
  };
  const load = async () => { draw(await get<Network>(of(id, "egress"), gone)); await page(); };
  const words = (text: string | undefined) => (text ?? "").split(/\s+/).filter((w) => w !== "");
  show(into, h("div", { class: "row" }, button("Look again", load),
    button("Allow a host", () => ask("Allow a host", "Programs may connect to it from now on.", [{ name: "rule", label: "Host", required: true, hint: "Such as pypi.org, *.example.com:8443 or python." }], "Allow", (a) => change({ allow: words(a["rule"]) }))),
    button("Deny a host", () => ask("Deny a host", "Open connections to it are reset.", [{ name: "rule", label: "Host", required: true }], "Deny", (a) => change({ deny: words(a["rule"]) })))),
    state, h("h2", {}, "Connections"),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Connections" }, h("table", {}, h("thead", {}, h("tr", {}, ...["Time", "What", "Host", "Rule or reason", "In", "Out"].map((t) => h("th", { scope: "col" }, t)))), body)), older);
  await load();
}

function row(c: Connection): HTMLElement {
  const bad = c.event === "denied" || c.event === "failed";
  return h("tr", {}, h("td", {}, when(c.time)),
    h("td", {}, h("span", { class: `outcome ${bad ? "bad" : "good"}` }, c.event), c.method ? ` ${plain(c.method, 20)} ${plain(c.path ?? "", 100)} ${c.status ?? ""}` : "", c.count ? ` ×${c.count + 1}` : ""),
    h("td", {}, h("bdi", {}, plain(`${c.host}${c.port ? `:${c.port}` : ""}`, 260))), h("td", {}, plain(c.reason ?? c.rule ?? "")),
    h("td", {}, c.bytes_in ? bytes(c.bytes_in) : ""), h("td", {}, c.bytes_out ? bytes(c.bytes_out) : ""));
}
