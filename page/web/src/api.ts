// The server's JSON API, see package page. Addresses are relative: the page works below a prefix.

export interface Limits { cpus?: number; memory_bytes?: number; pids?: number; disk_bytes?: number }

export interface Listed {
  id: string; kept: boolean; state: string; created_at: string; used_at: string; held: boolean;
  problem?: string; image?: string; limits?: Limits; steps: boolean; last?: Call;
}

export interface Change { path: string; removed?: boolean }

/** A record of a session's log. */
export interface Call {
  seq: number; time: string; call: string; caller: string; tool: string; path?: string; mode?: string;
  args?: Record<string, unknown>; outcome: string; verdict?: string; message?: string; duration_ns: number;
  result_bytes: number; changes?: Change[]; more_changes?: number; changes_unknown?: boolean; rolled_back?: boolean;
}

export interface Connection {
  seq: number; time: string; calls?: string[]; event: string; kind: string; host: string; port?: number; rule?: string;
  reason?: string; method?: string; path?: string; status?: number; bytes_in?: number; bytes_out?: number; ms?: number; count?: number;
}

export interface Records<T> { records: T[]; first: number; last: number }

export interface LimitState { name: string; asked: string; enforced: boolean; by: string }

export interface Inspection {
  id: string; kept: boolean; state: string; created_at: string; image: string; workspace: string; auto_snapshot?: boolean;
  ttl_ns?: number; idle_ns?: number; limits: LimitState[]; env?: string[]; secrets?: string[]; gaps?: string[];
  mounts?: { host_path: string; mount_path?: string }[]; snapshots?: { snapshots: number; steps: number; bytes: number; limit_bytes: number };
}

export interface Usage {
  running: boolean; limits: Limits; disk_bytes: number; inodes: number; problem?: string;
  container?: { cpu_ns: number; memory_bytes: number; processes: number };
}

export interface Snapshot { snapshot_id: string; label?: string; call?: string; created_at: string; files: number; bytes: number; new_bytes: number }

export interface Step { call: string; tool: string; changes: Change[]; total_changes: number }
export interface Undone { call: string; tool?: string; calls: number; unkept?: string; restored: { added: number; changed: number; removed: number } }

export interface FileChange {
  path: string; from?: string; status: string; added_lines?: number; removed_lines?: number; binary?: boolean; old_mode?: string; mode?: string;
}

export interface Compared {
  from: string; to?: string; changes: FileChange[]; more_changes?: number; added_lines?: number; removed_lines?: number;
  git_left_out?: number; byproducts_left_out?: number; ignored_left_out?: number; patch: string; cut: boolean;
}

export interface Entry { name: string; kind: "file" | "dir" | "link" | "other"; size: number; modified_at: string; target?: string; odd?: boolean }
export interface Listing { path: string; entries: Entry[]; from: number; total: number }
export interface Shown { size: number; kind: "text" | "image" | "bytes"; type?: string; text?: string; hex?: string; cut: boolean; sha256?: string }

export interface Process {
  process_id: string; command: string[]; tty?: boolean; tag?: string; state: string; exit_code?: number; started_at: string; output_bytes: number;
}

export interface Denial { time: string; host: string; port?: number; reason: string; allow?: string }
export interface Network {
  allow?: string[]; deny?: string[]; inject?: string[]; via?: string; serves: boolean; problem?: string;
  traffic: { in: number; out: number }; denied?: Denial[];
}

export interface Verified { records: number; head: { seq: number; hash: string }; problems?: { file: string; line: number; kind: string; message: string }[] }
export interface Verification { calls: Verified; connections: Verified }

export interface Template { template_id: string; name?: string; owner?: string; session: string; image: string; created_at: string; files: number; bytes: number }

export interface Me { token?: string; version: string; rename: boolean; roots: string[]; image?: string; limits: Limits }

// The token is only in the storage of this origin: the cookie is sent to each port of its host.
const place = `wisbox token of ${new URL(".", document.baseURI).pathname}`;
/** As of now: another tab may have signed in. */
export const tokenNow = () => localStorage.getItem(place) ?? "";

export const me = { version: "", rename: true, roots: [] as string[], image: "", limits: {} as Limits };

/** An error that the server reported. */
export class Refused extends Error {
  constructor(readonly status: number, readonly kind: string, message: string) {
    super(message);
  }
}

let signedOut = () => {};

/** Calls back when the server doesn't know this browser any more. */
export function whenSignedOut(f: () => void): void { signedOut = f; }

/** An answer whose status is good. */
export async function reach(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const init: RequestInit = { method, credentials: "same-origin", redirect: "error", headers: { "X-Wisbox-Token": tokenNow(), "Content-Type": "application/json" } };
  if (signal) init.signal = signal;
  if (method !== "GET") init.body = JSON.stringify(body ?? {});
  let answer: Response;
  try {
    answer = await fetch(path, init);
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new Error("The page's server doesn't answer. Check whether it still runs, then try again.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401) signedOut();
  const text = await answer.text();
  let fault: { kind: string; message: string; field?: string } | undefined;
  try {
    fault = JSON.parse(text).error;
  } catch {
    throw new Refused(answer.status, "", `The server answered with status ${answer.status}: ${text.slice(0, 200)}`);
  }
  const where = fault?.field && !fault.message.includes(fault.field) ? ` (${fault.field})` : "";
  throw new Refused(answer.status, fault?.kind ?? "", fault ? `${fault.message}${where}` : `status ${answer.status}`);
}

export async function ask<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  return (await reach(method, path, body, signal)).json() as Promise<T>;
}

/** Reads a stream of events to its end. */
export async function listen(path: string, signal: AbortSignal, opened: () => void, each: (event: string, data: string) => void): Promise<void> {
  const answer = await reach("GET", path, undefined, signal);
  opened();
  await events(answer, each);
}

/** Reads the events of an answer to their end. */
export async function events(answer: Response, each: (event: string, data: string) => void): Promise<void> {
  const from = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  const rest: string[] = []; // of an incomplete event
  for (;;) {
    const { value, done } = await from.read();
    if (done) return;
    rest.push(value);
    if (!value.includes("\n")) continue; // otherwise a long event would be joined again and again
    const all = rest.join("").split("\n\n");
    rest.splice(0, rest.length, all.pop()!);
    for (const e of all) {
      const field = (name: string) => e.split("\n").find((l) => l.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined) each(field("event") ?? "message", data);
    }
  }
}

/** Has the browser save what is at a path. A link can have no header, so a ticket lets it in once. */
export async function download(path: string, name: string): Promise<void> {
  const { ticket } = await ask<{ ticket: string }>("POST", "api/tickets");
  const link = document.createElement("a");
  link.href = `${path}${path.includes("?") ? "&" : "?"}ticket=${ticket}`;
  link.download = name;
  link.click();
}

export const get = <T>(path: string, signal?: AbortSignal) => ask<T>("GET", path, undefined, signal);

function known(m: Me): void {
  me.version = m.version;
  me.rename = m.rename;
  me.roots = m.roots;
  me.image = m.image ?? "";
  me.limits = m.limits;
}

function keep(now: string): void {
  localStorage.setItem(place, now);
}

/** Uses the key of a one-time URL. */
export async function enter(key: string): Promise<void> {
  const m = await ask<Me>("POST", "api/enter", { key });
  keep(m.token!);
  known(m);
}

/** Signs this browser out. */
export async function leave(): Promise<void> {
  await ask("DELETE", "api/me");
  keep("");
}

/** Finds out whether this browser is in. */
export async function recognized(): Promise<boolean> {
  try {
    known(await get<Me>("api/me"));
    return true;
  } catch (e) {
    if (e instanceof Refused && e.status === 401) return false;
    throw e;
  }
}

export const of = (id: string, rest = "", query: Record<string, string | number | undefined> = {}): string => {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== "") q.set(k, String(v));
  const text = q.toString();
  return `api/sessions/${encodeURIComponent(id)}${rest === "" ? "" : `/${rest}`}${text === "" ? "" : `?${text}`}`;
};
