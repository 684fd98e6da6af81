import { ask as asked, get, type Template } from "./api";
import { ask, button, bytes, h, plain, say, show, when } from "./dom";
import { create } from "./list";

/** What sessions can begin with. */
export async function templates(into: HTMLElement, gone: AbortSignal): Promise<void> {
  const body = h("tbody"), none = h("p", { class: "none" });
  const load = async () => {
    const { templates: all } = await get<{ templates: Template[] }>("api/templates", gone);
    show(body, ...all.map((t) => row(t, load)));
    show(none, all.length === 0 && "No templates yet. Create one from a session, with its Template button.");
  };
  show(into, h("div", { class: "row" }, button("Look again", load)),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Templates" }, h("table", {}, h("thead", {}, h("tr", {},
      ...["Name", "Of", "Made", "Files", "Size", "Image", "Actions"].map((t) => h("th", { scope: "col" }, t)))), body)), none);
  await load();
}

function row(t: Template, load: () => Promise<void>): HTMLElement {
  const name = t.name || t.template_id;
  return h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, plain(name, 130))), h("td", {}, plain(t.session, 80), t.owner ? h("small", {}, ` of ${plain(t.owner, 60)}`) : ""),
    h("td", {}, when(t.created_at)), h("td", {}, t.files), h("td", {}, bytes(t.bytes)), h("td", {}, plain(t.image, 100)),
    h("td", { class: "row" },
      button("New session", () => create(t.template_id), { "aria-label": `New session of ${plain(name, 130)}` }),
      button("Remove", () => ask(`Remove the template ${plain(name, 130)}?`, "Sessions created from it stay.", [], "Remove", async () => {
        await asked("DELETE", `api/templates/${encodeURIComponent(t.template_id)}`);
        say(`Template ${name} removed.`);
        await load();
      }, true), { class: "danger", "aria-label": `Remove the template ${plain(name, 130)}` })));
}
