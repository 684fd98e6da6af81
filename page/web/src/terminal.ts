import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { ask as asked, get, of, recognized, tokenNow, type Process } from "./api";
import { ask, button, h, plain, say, show } from "./dom";

// xterm.js creates its styles at run time, and the page's policy requires a nonce for them.
const nonce = document.querySelector<HTMLMetaElement>('meta[name="style-nonce"]')?.content ?? "";
const create = document.createElement.bind(document);
document.createElement = ((tag: string, options?: ElementCreationOptions) => {
  const e = create(tag, options);
  if (tag === "style") e.nonce = nonce;
  return e;
}) as typeof document.createElement;

/** What the server says beside output. */
interface Said { process?: string; end?: { status: string; exit_code: number }; error?: { message: string } }

const light = { background: "#ffffff", foreground: "#1c2024", cursor: "#1c2024", selectionBackground: "#b5d5ff", black: "#1c2024", yellow: "#8a5a00", green: "#116329", white: "#57606a", brightWhite: "#1c2024" };
const dark = { background: "#111416", foreground: "#e8eaed" };

/** A link of a program: shown before it is followed, and only to the web. */
function follow(uri: string): void {
  if (!/^https?:\/\//i.test(uri)) {
    say("Only links to web pages can be followed.", true);
    return;
  }
  ask("Follow this link?", plain(uri), [], "Open", async () => { window.open(uri, "_blank", "noopener,noreferrer"); });
}

export async function terminal(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const theme = window.matchMedia("(prefers-color-scheme: dark)");
  const term = new Terminal({ convertEol: false, scrollback: 10_000, fontSize: 14, minimumContrastRatio: 4.5, theme: theme.matches ? dark : light,
    linkHandler: { activate: (_e, uri) => follow(uri) } });
  const fit = new FitAddon();
  term.loadAddon(fit);
  const box = h("div", { class: "console" }), state = h("span", { class: "live", role: "status" }), others = h("select", { "aria-label": "Terminals of this session" });
  const reader = h("input", { type: "checkbox", id: "reader" });
  reader.addEventListener("change", () => { term.options.screenReaderMode = reader.checked; });
  const kept = `terminal of ${id}`;
  let socket: WebSocket | undefined, process = sessionStorage.getItem(kept) ?? "", tries = 0, waiting = 0;

  const tell = (what: unknown) => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(what)); };
  const list = async () => {
    const { processes } = await get<{ processes: Process[] }>(of(id, "processes"), gone);
    show(others, h("option", { value: "" }, "new shell"), ...processes.filter((p) => p.tty && p.state === "running").map((p) =>
      h("option", { value: p.process_id, selected: p.process_id === process }, `${p.process_id} ${plain(p.command.join(" "), 40)}`)));
  };
  const heard = (s: Said) => {
    if (s.process !== undefined) {
      process = s.process;
      sessionStorage.setItem(kept, process);
      tries = 0;
      show(state, `● ${process}`);
      void list().catch(() => undefined);
    }
    if (s.end) over(`The program has ended (${s.end.status === "exited" ? `exit ${s.end.exit_code}` : s.end.status}).`);
    if (s.error) over(s.error.message);
  };
  const over = (why: string) => {
    process = "";
    sessionStorage.removeItem(kept);
    show(state, plain(why));
    socket?.close();
    socket = undefined;
  };
  const connect = (to: string) => {
    window.clearTimeout(waiting);
    socket?.close();
    term.reset();
    const url = new URL(of(id, "terminal", { process: to, cols: term.cols, rows: term.rows }), document.baseURI);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const s = new WebSocket(url, ["wisbox", tokenNow()]);
    socket = s;
    s.binaryType = "arraybuffer";
    show(state, "connecting…");
    s.addEventListener("message", (e) => {
      if (s !== socket) return;
      if (typeof e.data === "string") heard(JSON.parse(e.data) as Said);
      else term.write(new Uint8Array(e.data as ArrayBuffer));
    });
    s.addEventListener("close", () => {
      if (s !== socket || gone.aborted) return;
      show(state, "○ the connection broke off; trying again");
      again();
    });
  };
  const again = () => {
    if (gone.aborted) return;
    waiting = window.setTimeout(() => void recognized().then((known) => { if (known && !gone.aborted) connect(process); }, again), Math.min(10_000, 500 * 2 ** tries++));
  };
  const send = (data: Uint8Array<ArrayBuffer>) => { for (let i = 0; i < data.length; i += 65_536) if (socket?.readyState === WebSocket.OPEN) socket.send(data.slice(i, i + 65_536)); };
  const encoder = new TextEncoder();
  term.onData((d) => send(encoder.encode(d)));
  term.onBinary((d) => send(Uint8Array.from(d, (c) => c.charCodeAt(0))));
  term.onResize(({ cols, rows }) => tell({ resize: { cols, rows } }));
  term.attachCustomKeyEventHandler((e) => {
    if (e.type !== "keydown" || e.key !== "Escape" || !e.shiftKey) return true;
    others.focus();
    return false;
  });

  others.addEventListener("change", () => { process = others.value; connect(process); term.focus(); });
  show(into, h("div", { class: "row" }, others, button("New shell", () => { process = ""; connect(""); term.focus(); }),
    button("End it", async () => { if (process !== "") await asked("DELETE", of(id, `processes/${encodeURIComponent(process)}`)); }, { class: "danger" }),
    h("label", { class: "inline", for: "reader" }, reader, " for a screen reader"), state), box,
    h("p", { class: "none" }, "Shift+Escape leaves the terminal. Its programs keep running when you leave this page."));
  term.open(box);
  const sized = new ResizeObserver(() => { if (box.clientWidth > 0) fit.fit(); });
  sized.observe(box);
  fit.fit();
  const recolour = () => { term.options.theme = theme.matches ? dark : light; };
  theme.addEventListener("change", recolour);
  gone.addEventListener("abort", () => {
    window.clearTimeout(waiting);
    theme.removeEventListener("change", recolour);
    sized.disconnect();
    const s = socket;
    socket = undefined;
    s?.close();
    term.dispose();
  });
  await list();
  if (process !== "" && ![...others.options].some((o) => o.value === process)) process = "";
  connect(process);
  term.focus();
}
