// Names and outputs of programs that try to be more than text: argv is the one-time URL. Without
// WISBOX_NIGHTLY the page meets a part of them.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import http from "node:http";
import { browser, click, faults, goTo, page, person, text, url, whole, wisbox } from "./browser.mjs";

const everyName = [
  "<img src=x onerror=alert(1)>", "<script>alert(1)<\\script>", "\"><svg onload=alert(1)>", "javascript:alert(1)", "\u202egpj.exe", "a\u200bb", "line\nbreak", "tab\tname",
  "\u001b[31mred", "\u001b]0;title\u0007", "__proto__", "constructor", "toString", "%2e%2e", "&lt;b&gt;", "{{7*7}}", "${alert(1)}", "'\"`", "#key=x", "?path=x", "a&b=c", " ", "-rf",
  "\ufeffbom", "\u2028sep", "é", "e\u0301", "名前", "🙂", "x".repeat(255),
  "<iframe srcdoc=x>.csv", "<b>.tsv", "<svg onload=alert(1)>.svg", "'><meta http-equiv=refresh content=0>", "</title><h1>", "hasOwnProperty", "then", "\r", "%00", "CON", "~", "*", "$(id)", "`id`", ";id", "|id",
  "\u2066isolated\u2069", "\u00ad\u00ad", "\u115f", "\u0085next", "\u007fdel", "data:text,x", "blob:x", "//evil.example.com", "https:", "..\\..\\x", "...", ".git", "a;b=c", "𝕏\u0000".slice(0, 2),
].map((n) => n.replaceAll("/", "\u2215"));
const names = everyName.filter((_, i) => whole || i < 8 || i % 8 === 0);

const svg = (inner) => `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="20" height="20">${inner}</svg>`;
const html = (text) => ({ "text/html": text });
const evil = "http://evil.example.com/x";

// What an object says that it is, as MIME type and data: each is shown by code and by the timeline.
const everyOutput = [
  html("<script>owned=1</script>"), html(`<img src=${evil} onerror=owned=1>`), html(`<table><tr><td><img src=x onerror=owned=1>cell</td></tr></table>`),
  html(`<table><script>owned=1</script><tr><th>h<td>${"x".repeat(5000)}</table>`), html("<table".repeat(20000)), html("<tr><td>".repeat(20000)), html("<table><tr>" + "<td>".repeat(20000)),
  html("<table><tr><td>&#x202e;&#0;&#9999999;&constructor;&lt;script&gt;</td></tr></table>"), html(`<iframe src="${evil}"></iframe>`), html(`<meta http-equiv=refresh content="0;url=${evil}">`), html(`<style>*{display:none}</style>`),
  html(`<base href=${evil}><form action=${evil}><input autofocus onfocus=owned=1></form>`), html(`<a href="javascript:owned=1">x</a>`), html("<table><tr><td>" + "a\u0301".repeat(5000) + "</td></tr></table>"),
  { "image/svg+xml": svg("<script>owned=1</script>") }, { "image/svg+xml": svg(`<image xlink:href="${evil}"/><use href="${evil}#a"/>`) }, { "image/svg+xml": svg(`<foreignObject><iframe src="${evil}"/></foreignObject>`) },
  { "image/svg+xml": `<svg xmlns="http://www.w3.org/2000/svg" onload="owned=1" width="9" height="9"/>` }, { "image/svg+xml": `<!DOCTYPE s [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>${svg("<text>&b;</text>")}` }, { "image/svg+xml": "not an image" },
  { "image/png": "bm90IGFuIGltYWdl" }, { "image/png": "\"><script>owned=1</script>" }, { "image/gif": "" }, { "image/webp;base64,x": "x" }, { "image/x-icon": "AAAA" }, { "application/pdf": "JVBERi0=" },
  { "text/markdown": `[x](javascript:owned=1) ![x](${evil})` }, { "text/latex": "\\href{javascript:owned=1}{x}" }, { "application/json": `{"__proto__":{"owned":1}}` }, { "application/javascript": "owned=1" },
  { "text/plain": "\u001b]0;owned\u0007\u001b[2J\u202e<b>" }, { "text/plain": "x".repeat(1 << 20) }, { "text/plain": "line\n".repeat(200_000) }, { "text/plain": "\u0000\u0001\u007f\u0085\u2028" },
];
const outputs = everyOutput.filter((_, i) => whole || i % 3 === 0);

const program = `import json, os, sys
os.makedirs("hostile", exist_ok=True)
for i, n in enumerate(json.loads(sys.argv[1])):
    with open(os.path.join("hostile", n), "w") as f: f.write("<script>alert(%d)</script>\\x1b]0;owned\\x07 content %d\\n" % (i, i))
os.makedirs("many", exist_ok=True)
for i in range(10000): open("many/%05d" % i, "w").close()
open("long", "w").write("x" * (1 << 20) + "\\n" + "last line\\n")
open("page.html", "w").write("<script>fetch('/')</script><b>bold</b>")
open("pic.svg", "w").write("<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'><script>alert(1)</script></svg>")
open("bad.csv", "w").write('a,"b\\n' + '"' * 100001 + ',<script>alert(1)</script>\\n' + ',' * 100000)
import base64
open("pic.png", "wb").write(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))
`;

const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
async function unharmed(where) {
  assert.equal(await page.evaluate(() => "owned" in window || "owned" in {}), false, where);
  assert.equal(await page.$$eval("main script, main iframe, main form, main style, main meta, main base, main object, main svg script", (all) => all.length), 0, where);
  assert.ok((await page.title()).endsWith("wisbox"), where);
}

await person(async () => {
  assert.ok(everyName.length >= 60 && new Set(everyName).size === everyName.length, `${everyName.length} names`);
  wisbox("session", "create", "box", "--eval-timeout", "60s");
  wisbox("exec", "box", "--", "python3", "-c", program, JSON.stringify(names));
  await page.goto(url, { waitUntil: "load" });
  await page.locator('a[href="#/s/box/timeline"]').click();
  await page.waitForFunction(() => location.hash.startsWith("#/s/box"));
  await hostileNames();
  await hostileOutputs();
  await others();
});

async function hostileNames() {
  await goTo("Files");
  await page.locator("nav summary ::-p-text(hostile)").click();
  await page.waitForFunction((n) => document.querySelectorAll(".tree details[open] li").length === n, {}, names.length);
  const shown = await page.$$eval(".tree details[open] li bdi", (all) => all.map((e) => e.textContent));
  assert.ok(shown.includes("<img src=x onerror=alert(1)>") && shown.includes("\\u{202e}gpj.exe") && shown.includes("line\\u{a}break"), shown.join("\n"));
  assert.ok(shown.every((n) => !/[\u0000-\u001f\u007f-\u009f\u00ad\u202e\u200b\u2066]/.test(n)));
  for (let i = 0; i < names.length; i++) {
    await page.evaluate((n) => document.querySelectorAll(".tree details[open] li button")[n].click(), i);
    await page.waitForFunction((n) => document.querySelector(".viewer h2")?.textContent === n && /content \d+/.test(document.querySelector(".viewer pre, .viewer table")?.textContent ?? ""), {}, `hostile/${shown[i]}`);
  }
  assert.equal(await page.$$eval(".tree img, .viewer svg, .viewer b, .viewer h1", (all) => all.length), 0);
  await unharmed("names");
  await page.locator("nav summary ::-p-text(hostile)").click();
  await page.locator("nav summary ::-p-text(many)").click();
  for (let left = 9000; left > 0; left -= 1000) await page.locator(`::-p-text(More (${left}))`).click();
  await page.waitForFunction(() => document.querySelector(".tree").textContent.includes("09999"));
  assert.ok(await nodes() < 8000, `${await nodes()} elements for 10,000 files`);
  await page.locator("nav summary ::-p-text(many)").click();
  const open = async (name) => {
    await page.evaluate((n) => [...document.querySelectorAll(".tree button")].find((b) => b.textContent === n).click(), name);
    await page.waitForFunction((n) => document.querySelector(".viewer h2")?.textContent === n, {}, name);
  };
  await open("long");
  await text("last line");
  await text("more characters");
  await open("pic.svg");
  await text("<svg xmlns=");
  await click("Image", ".viewer");
  await page.waitForFunction(() => document.querySelector(".viewer img")?.naturalWidth === 7);
  await open("page.html");
  await text("<b>bold</b>");
  await open("bad.csv");
  await page.waitForFunction(() => document.querySelector(".viewer table"));
  assert.ok(await nodes() < 20_000, `${await nodes()} elements for a bad table`);
  await open("pic.png");
  await page.waitForFunction(() => document.querySelector(".viewer img")?.naturalWidth === 1);
  await unharmed("files");
}

async function hostileOutputs() {
  const show = `import json
class Thing:
    def __init__(self, bundle): self.bundle = bundle
    def _repr_mimebundle_(self, include=None, exclude=None): return self.bundle
    def __repr__(self): return "<b>thing</b>\\x1b]0;owned\\x07"
for bundle in json.load(open("outputs.json"))[FROM:FROM+8]: display(Thing(bundle))
`;
  writeFileSync(`${process.env.HOME}/outputs.json`, JSON.stringify(outputs));
  wisbox("cp", `${process.env.HOME}/outputs.json`, "box:outputs.json");
  await goTo("Evaluate");
  await page.locator("#time").fill("60");
  for (let i = 0; i < outputs.length; i += 8) {
    const part = outputs.slice(i, i + 8);
    await page.locator("#code").fill(show.replaceAll("FROM", String(i)));
    await click("Run");
    await page.waitForFunction(() => /^[^●]/.test(document.querySelector(".cells .live")?.innerText ?? ""));
    const state = await page.$eval(".cells li:first-child", (e) => e.innerText.slice(-600));
    assert.match(await page.$eval(".cells .live", (e) => e.innerText), /✓ done/, `${i}: ${state}`);
    assert.equal(await page.$$eval(".cells li:first-child .shown", (all) => all.length), part.length, `${i}`);
    assert.ok(await nodes() < 40_000, `${await nodes()} elements after ${i}`);
    await page.$$eval(".cells li:first-child .shown button", (all) => all.filter((b) => b.textContent === "Show the SVG picture").forEach((b) => b.click()));
    await unharmed(`outputs from ${i}`);
  }
  const raise = `print("\\x1b]0;owned\\x07<script>owned=1</script>" + "y" * (1 << 20)); raise Exception("<img src=x onerror=owned=1>\\u202e")`;
  await page.locator("#code").fill(raise);
  await click("Run");
  await page.waitForFunction(() => /exception/.test(document.querySelector(".cells .live")?.innerText ?? ""));
  await text("<img src=x onerror=owned=1>\\u{202e}");
  await unharmed("an exception");

  const frame = `class DataFrame:
    __module__ = "pandas.core.frame"
    columns = []
    def __init__(self, data, html=""): self.data, self.html = data, html
    def __len__(self): return 0
    def to_dict(self, orient): return self.data
    def _repr_html_(self): return self.html
`;
  const run = async (code, seen) => {
    await page.locator("#code").fill(frame + code);
    await click("Run");
    await page.waitForFunction((t) => { const li = document.querySelector(".cells li"); return li?.innerText.includes("✓ done") && li.innerText.includes(t); }, { timeout: 20_000 }, seen);
    return page.$$eval(".cells li:first-child tr", (all) => all.slice(0, 3).map((r) => [...r.children].map((c) => c.textContent.trim())));
  };
  await run(`display(DataFrame({"a": [0] * 100000, **{f"c{i}": [] for i in range(20000)}}))`, "50 of 20001 columns");
  assert.deepEqual(await run(`display(DataFrame({"10": [1, 2], "b": [3, 4]}, "<table><thead><tr><th></th><th>b</th><th>10</th></tr><tr><th>key</th><th></th><th></th></tr></thead>"
    "<tr><th>İİİİ</th><td>3</td><td>1</td></tr><tr><th>y</th><td>4</td><td>2</td></tr></table>"))`, "Rows 1 to 2 of 2"),
  [["key", "b", "10"], ["İİİİ", "3", "1"], ["y", "4", "2"]], "an index is shown");
  await unharmed("frames");
  let bomb = '<g id="a0"><circle r="3"/></g>'; // a million circles, by 1.5 kB
  for (let i = 1; i < 7; i++) bomb += `<g id="a${i}">${`<use href="#a${i - 1}" x="${i}"/>`.repeat(10)}</g>`;
  await run(`display({"image/svg+xml": '''${svg(`<defs>${bomb}</defs><use href="#a6"/>`)}'''}, raw=True)`, "Show the SVG picture");
  await unharmed("an SVG that takes hours");

  await goTo("Timeline");
  await page.waitForFunction(() => document.querySelector(".calls")?.innerText.includes("shows something"));
  const n = await page.$$eval(".calls > li", (all) => all.length);
  for (let i = 0; i < n; i++) {
    const is = await page.evaluate((at) => { const d = document.querySelectorAll(".calls > li details")[at]; if (!d.innerText.includes("shows something")) return false; d.querySelector("summary").click(); return true; }, i);
    if (!is) continue;
    await page.waitForFunction((at) => document.querySelectorAll(".calls > li")[at].querySelector(".shown"), {}, i);
    await page.evaluate((at) => document.querySelectorAll(".calls > li")[at].querySelector("summary").click(), i);
  }
  await unharmed("the timeline");
}

/** Labels, commands, and pages of others. */
async function others() {
  for (const name of names.slice(0, 8)) wisbox("exec", "box", "--", "echo", name);
  wisbox("snapshot", "create", "box", "<img src=x onerror=owned=1>");
  await text("<img src=x onerror=alert(1)>");
  await goTo("Snapshots");
  await text("<img src=x onerror=owned=1>");
  await unharmed("labels");
  await page.goto(new URL("#/s/__proto__/constructor", url), { waitUntil: "load" });
  await page.waitForFunction(() => document.querySelector("h1")?.textContent === "Sessions");
  await unharmed("a foreign name");

  const at = new URL(url);
  const outside = http.createServer((_, res) => {
    res.setHeader("Content-Type", "text/html");
    res.end(`<iframe src="${at.origin}/"></iframe><form id=f method=post target=t action="${at.origin}/api/sessions/box/stop"></form><iframe name=t></iframe>`);
  });
  await new Promise((done) => outside.listen(0, "127.0.0.1", done));
  try {
    const other = await browser.newPage(); // with this browser's cookie
    await other.goto(`http://localhost:${outside.address().port}/`, { waitUntil: "load" });
    const framed = await other.frames()[1].evaluate(() => document.body.innerText).catch(() => "");
    assert.ok(!framed.includes("New session"), "no other page shows this one");
    const got = await other.evaluate(async (origin) => {
      document.getElementById("f").submit();
      const tries = [];
      for (const [path, init] of [["/api/sessions", {}], ["/api/sessions/box/stop", { method: "POST", body: "{}" }], ["/api/sessions/box/evaluate", { method: "POST", body: "{}", mode: "no-cors" }], ["/api/enter", { method: "POST", body: "{}" }]]) {
        tries.push(await fetch(origin + path, { credentials: "include", ...init }).then((r) => (r.type === "opaque" ? "opaque" : r.status), () => "refused"));
      }
      return tries;
    }, at.origin);
    assert.deepEqual(got, ["refused", "refused", "opaque", "refused"]);
    await other.close();
  } finally {
    outside.close();
    outside.closeAllConnections();
  }
  assert.ok(!wisbox("log", "box").includes("session_stop"));
  assert.deepEqual(faults, []);
}
