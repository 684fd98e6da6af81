import { enter, leave as signOut, me, recognized, whenSignedOut } from "./api";
import { button, guarded, h, leaving, release, show } from "./dom";
import { evaluate } from "./evaluate";
import { files } from "./files";
import { limits } from "./limits";
import { list } from "./list";
import { network } from "./network";
import { snapshots } from "./snapshots";
import { templates } from "./templates";
import { terminal } from "./terminal";
import { timeline } from "./timeline";

/** A view fills an element, and stops what it began when the signal ends. */
export type View = (into: HTMLElement, id: string, gone: AbortSignal) => Promise<void>;

const views: Record<string, [string, View]> = {
  timeline: ["Timeline", timeline],
  files: ["Files", files],
  snapshots: ["Snapshots", snapshots],
  terminal: ["Terminal", terminal],
  evaluate: ["Evaluate", evaluate],
  network: ["Network", network],
  limits: ["Limits", limits],
};

const main = document.getElementById("main")!;
const nav = document.getElementById("nav")!;
let leave = new AbortController();

function locked(why: string): void {
  leave.abort();
  release();
  for (const d of document.querySelectorAll("dialog")) d.remove();
  show(nav);
  show(main, h("h1", {}, "Sign in"), h("p", {}, why), h("p", {}, "Run ", h("code", {}, "wisbox ui"), " in a terminal and open the URL that it prints, or the last one that ", h("code", {}, "wisbox serve"), " has printed. Each URL lets one browser in, once."));
}

const lists: Record<string, [string, (into: HTMLElement, gone: AbortSignal) => Promise<void>]> = {
  sessions: ["Sessions", list],
  templates: ["Templates", templates],
};

/** Where the page is; without an id it is a list. */
function place(): { id: string; view: string } {
  const [, s, id, view] = location.hash.split("/");
  if (s !== "s" || !id || !/^[a-z0-9-]+$/.test(id)) return { id: "", view: s && Object.hasOwn(lists, s) ? s : "sessions" };
  return { id, view: view && Object.hasOwn(views, view) ? view : "timeline" };
}

async function go(): Promise<void> {
  leave.abort();
  leave = new AbortController();
  const { id, view } = place();
  const title = (id === "" ? lists : views)[view]![0];
  document.title = `${id === "" ? "" : `${id} · `}${title} · wisbox`;
  show(nav, id !== "" && h("strong", {}, id), ...Object.entries(id === "" ? lists : views).map(([name, [text]]) =>
    h("a", { href: id === "" ? `#/${name}` : `#/s/${encodeURIComponent(id)}/${name}`, "aria-current": name === view ? "page" : undefined }, text)));
  const into = h("div", { class: "view" });
  show(main, h("h1", { class: id === "" ? "" : "quiet" }, id === "" ? title : `${title} of ${id}`), into, h("footer", {}, `wisbox ${me.version} `, button("Sign out", async () => { await signOut(); locked("This browser is signed out."); })));
  try {
    await (id === "" ? lists[view]![1](into, leave.signal) : views[view]![1](into, id, leave.signal));
  } catch (e) {
    if (leave.signal.aborted) return;
    show(into, h("p", { class: "fault", role: "alert" }, e instanceof Error ? e.message : String(e)), h("p", {}, h("a", { href: "#/" }, "Back to the sessions")));
  }
}

const unknown = "This browser isn't signed in, or wisbox ui was started again.";

async function begin(): Promise<void> {
  whenSignedOut(() => { if (!guarded()) locked(unknown); }); // unsaved text stays, so that it can be copied
  window.addEventListener("hashchange", () => { if (location.hash.startsWith("#key=")) location.reload(); });
  const key = /^#key=([A-Z2-7]+)$/.exec(location.hash)?.[1];
  try {
    if (key !== undefined) {
      history.replaceState(null, "", location.pathname);
      await enter(key);
    } else if (!(await recognized())) {
      return;
    }
  } catch (e) {
    locked(e instanceof Error ? e.message : String(e));
    return;
  }
  let here = location.hash;
  window.addEventListener("hashchange", () => {
    if (location.hash === here || location.hash === "#main" || location.hash.startsWith("#key=")) return; // #main: the skip link
    const to = location.hash;
    const left = leaving(() => {
      here = to;
      if (location.hash !== to) history.replaceState(null, "", to);
      void go().then(() => { if (!main.contains(document.activeElement)) main.focus({ preventScroll: true }); });
    });
    if (!left) history.replaceState(null, "", here || "#/");
  });
  await go();
}

void begin();
