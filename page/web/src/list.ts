import { ask as asked, get, me, of, type Call, type Limits, type Listed, type Template } from "./api";
import { ask, button, bytes, h, plain, say, show, when, type Child } from "./dom";
import { outcome } from "./timeline";

const size = (text: string): number => {
  if (text === "") return 0;
  const m = /^\s*([0-9.]+)\s*([kmgt]?)i?b?\s*$/i.exec(text);
  if (!m) throw new Error(`${text} is no size; write it as 512m or 2g`);
  return Math.round(Number(m[1]) * 1024 ** ["", "k", "m", "g", "t"].indexOf(m[2]!.toLowerCase()));
};

const words = (text: string) => text.split(/\s+/).filter((w) => w !== "");

/** Asks for a new session, of a template where one is named. */
export async function create(template = ""): Promise<void> {
  const { templates } = await get<{ templates: Template[] }>("api/templates");
  const roots = me.roots.length > 0 ? `One per line, such as /folder or /folder:place. Allowed: ${me.roots.join(", ")}` : "No folder is allowed; start wisbox ui with --allow-root DIR.";
  ask("New session", "", [
    { name: "name", label: "Name", hint: "Lower-case letters, digits and hyphens; empty for a generated name." },
    { name: "image", label: "Image", hint: `Empty for ${me.image || "wisbox's own"}.` },
    { name: "template", label: "Template", kind: "select", value: template, options: [["", "none: an empty workspace"], ...templates.map((t): [string, string] =>
      [t.template_id, `${plain(t.name || t.template_id, 60)} of ${plain(t.session, 40)}${t.owner ? ` (${plain(t.owner, 40)})` : ""}`])] },
    { name: "mounts", label: "Folders to copy in", kind: "textarea", hint: roots },
    { name: "cpus", label: "Processors", hint: `Empty for ${me.limits.cpus}.` },
    { name: "memory", label: "Memory", hint: `Such as 512m or 2g; empty for ${bytes(me.limits.memory_bytes ?? 0)}.` },
    { name: "disk", label: "Disk", hint: `Empty for ${bytes(me.limits.disk_bytes ?? 0)}.` },
    { name: "allow", label: "Allowed hosts", hint: "Such as pypi.org or python; empty for no network." },
    { name: "deny", label: "Denied hosts", hint: "These stay denied even if a rule allows them." },
    { name: "steps", label: "Make a step before each call, to undo it", kind: "checkbox", value: "on" },
  ], "Create", async (a) => {
    const limits: Limits = {};
    if (a["cpus"]) limits.cpus = Number(a["cpus"]);
    if (a["memory"]) limits.memory_bytes = size(a["memory"]);
    if (a["disk"]) limits.disk_bytes = size(a["disk"]);
    const mounts = a["mounts"]!.split("\n").filter((l) => l.trim() !== "").map((l) => {
      const [host_path, mount_path, ...more] = l.trim().split(":");
      if (more.length > 0) throw new Error(`${l.trim()} has more than one colon; copy a folder that has one in its name by wisbox session create --mount`);
      return { host_path, mount_path: mount_path ?? "." };
    });
    const made = await asked<{ id: string }>("POST", "api/sessions", {
      name: a["name"], image: a["image"], template: a["template"], mounts, limits, allow: words(a["allow"]!), deny: words(a["deny"]!), steps: a["steps"] === "on",
    });
    location.hash = `#/s/${made.id}/timeline`;
  });
}

const lastOf = (c: Call | undefined): Child => c && h("span", {}, outcome(c), " ", plain(c.tool, 40), " ", when(c.time));

export async function list(into: HTMLElement, gone: AbortSignal): Promise<void> {
  const body = h("tbody");
  const none = h("p", { class: "none" });
  const usages = new Map<string, HTMLElement>();
  const load = async () => {
    const { sessions } = await get<{ sessions: Listed[] }>("api/sessions", gone);
    const focused = document.activeElement?.getAttribute("data-key");
    show(body, ...sessions.map((s) => row(s, load, usages)));
    if (focused) body.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    show(none, sessions.length === 0 && "No sessions yet. Create one here, or with wisbox session create.");
    for (const s of sessions.filter((s) => s.kept && s.held && !s.problem).slice(0, 20)) {
      void get<{ disk_bytes: number; container?: { memory_bytes: number } }>(of(s.id, "usage"), gone).then((u) => {
        const at = usages.get(s.id);
        if (at) show(at, u.container ? `${bytes(u.container.memory_bytes)} memory, ` : "", `${bytes(u.disk_bytes)} disk`);
      }, () => undefined);
    }
  };
  show(into, h("div", { class: "row" }, button("New session", () => create(), { class: "main" }), button("Look again", load)),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Sessions" }, h("table", {}, h("thead", {}, h("tr", {},
      ...["Name", "State", "Use", "Limits", "Last call", "Actions"].map((t) => h("th", { scope: "col" }, t)))), body)), none);
  await load();
  const again = window.setInterval(() => { if (!document.hidden && !document.querySelector("dialog")) void load().catch(() => undefined); }, 5000);
  gone.addEventListener("abort", () => window.clearInterval(again));
}

function row(s: Listed, load: () => Promise<void>, usages: Map<string, HTMLElement>): HTMLElement {
  const use = usages.get(s.id) ?? h("span", {}, s.held ? "…" : "stopped");
  if (!s.held) show(use, "stopped");
  usages.set(s.id, use);
  const usable = s.kept && s.problem === undefined;
  const act = (name: string, does: () => Promise<unknown> | void, danger = false) =>
    button(name, does, { "aria-label": `${name} ${s.id}`, "data-key": `${name} ${s.id}`, class: danger ? "danger" : "" });
  const change = async (method: string, rest: string, body?: unknown) => { await asked(method, of(s.id, rest), body); await load(); };
  const l = s.limits;
  return h("tr", {},
    h("th", { scope: "row" }, usable ? h("a", { href: `#/s/${s.id}/timeline`, "data-key": s.id }, s.id) : s.id),
    h("td", {}, h("span", { class: `state ${s.state}` }, s.state), !s.kept && " ephemeral", s.problem !== undefined && h("small", {}, plain(s.problem))),
    h("td", {}, use),
    h("td", {}, l && `${l.cpus} CPU, ${bytes(l.memory_bytes ?? 0)}, ${bytes(l.disk_bytes ?? 0)} disk`),
    h("td", {}, lastOf(s.last)),
    h("td", { class: "row" }, ...(usable ? [
      s.state === "paused" ? act("Resume", () => change("POST", "resume")) : act("Pause", () => change("POST", "pause")),
      act("Stop", () => change("POST", "stop")),
      act("Fork", () => ask(`Fork ${s.id}`, "The copy starts with the current files.", [{ name: "name", label: "Name of the copy" }], "Fork", (a) => change("POST", "fork", { name: a["name"] }))),
      act("Template", () => ask(`Make a template of ${s.id}`, "It keeps the files, image and variables for new sessions.", [{ name: "name", label: "Name", hint: "Empty for an ID only." }], "Make it", async (a) => {
        await asked("POST", of(s.id, "template"), { name: a["name"] });
        say("Template created; new sessions can start from it.");
      })),
      me.rename && act("Rename", () => ask(`Rename ${s.id}`, "This first stops everything that runs in the session.", [{ name: "name", label: "New name", value: s.id, required: true }], "Rename", (a) => change("POST", "rename", { name: a["name"] }))),
    ].filter((b) => b !== false) : []),
    act("Remove", () => ask(`Remove ${s.id}?`, "Its files, snapshots and log are deleted. This can't be undone.", [], "Remove", async () => { await change("DELETE", ""); say(`${s.id} is removed.`); }, true), true)));
}
