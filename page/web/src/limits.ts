import { get, of, type Inspection, type Usage } from "./api";
import { bytes, h, plain, show, svg, when } from "./dom";

const kept = 120; // points of a plot
const every = 2000; // ms

/** A plot of one number over time, up to what its limit is. */
class Plot {
  private points: number[] = [];
  private line = svg("polyline", { fill: "none", stroke: "currentColor", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" });
  private now = h("span", {}, "–");
  readonly element: HTMLElement;

  constructor(private title: string, private text: (n: number) => string) {
    const picture = svg("svg", { viewBox: "0 0 120 40", preserveAspectRatio: "none", "aria-hidden": "true" }, this.line);
    this.element = h("figure", { class: "plot" }, h("figcaption", {}, h("strong", {}, title), " ", this.now), picture);
  }

  add(n: number, most: number): void {
    this.points = [...this.points, n].slice(-kept);
    const top = Math.max(most, ...this.points, 1e-9);
    this.line.setAttribute("points", this.points.map((p, i) => `${120 - this.points.length + i + 1},${39 - (38 * p) / top}`).join(" "));
    show(this.now, most > 0 ? `${this.text(n)} of ${this.text(most)}` : this.text(n));
    this.element.setAttribute("aria-label", `${this.title}: ${this.now.textContent}`);
  }
}

export async function limits(into: HTMLElement, id: string, gone: AbortSignal): Promise<void> {
  const i = await get<Inspection>(of(id), gone);
  const cpu = new Plot("Processor", (n) => `${n.toFixed(2)} CPU`), memory = new Plot("Memory", bytes), disk = new Plot("Disk", bytes);
  const note = h("p", { class: "none" });
  const facts: [string, string | Node][] = [["State", i.state], ["Image", plain(i.image)], ["Created", when(i.created_at)], ["Files on this machine", plain(i.workspace)]];
  if (i.mounts?.length) facts.push(["Copied in", plain(i.mounts.map((m) => `${m.host_path} → ${m.mount_path ?? "."}`).join(", "))]);
  if (i.secrets?.length) facts.push(["Secrets", plain(i.secrets.join(", "))]);
  if (i.snapshots) facts.push(["Snapshots", `${i.snapshots.snapshots} (${i.snapshots.steps} steps), ${bytes(i.snapshots.bytes)} of ${bytes(i.snapshots.limit_bytes)}`]);
  show(into, h("div", { class: "plots" }, cpu.element, memory.element, disk.element), note,
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Limits" }, h("table", {}, h("thead", {}, h("tr", {}, ...["Limit", "Asked", "Holds", "By"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, ...i.limits.map((l) => h("tr", {}, h("th", { scope: "row" }, l.name), h("td", {}, l.asked), h("td", {}, h("span", { class: `outcome ${l.enforced ? "good" : "bad"}` }, l.enforced ? "yes" : "no")), h("td", {}, plain(l.by))))))),
    (i.gaps ?? []).length > 0 && h("div", {}, h("h2", {}, "Gaps"), h("ul", {}, ...i.gaps!.map((g) => h("li", {}, plain(g))))),
    h("h2", {}, "Session"), h("dl", {}, ...facts.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])));
  let before: { cpu: number; at: number } | undefined;
  const look = async () => {
    if (document.hidden) return;
    const u = await get<Usage>(of(id, "usage"), gone);
    const at = performance.now(), c = u.container;
    if (c && before && c.cpu_ns >= before.cpu) cpu.add((c.cpu_ns - before.cpu) / 1e6 / (at - before.at), u.limits.cpus ?? 1);
    before = c ? { cpu: c.cpu_ns, at } : undefined;
    if (c) memory.add(c.memory_bytes, u.limits.memory_bytes ?? 0);
    disk.add(u.disk_bytes, u.limits.disk_bytes ?? 0);
    show(note, u.running ? (c ? `${c.processes} processes and threads` : "") : "No program has run since the session was started: there is no container.", u.problem ? plain(u.problem) : "");
  };
  await look();
  window.setTimeout(() => void look().catch(() => undefined), 500); // a rate needs two
  const timer = window.setInterval(() => void look().catch(() => undefined), every);
  gone.addEventListener("abort", () => window.clearInterval(timer));
}
