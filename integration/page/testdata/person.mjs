// A person at the page: argv is the one-time URL, and a folder for pictures or nothing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import puppeteer from "puppeteer-core";

const [url, pictures] = process.argv.slice(2);
const whole = Boolean(process.env.WISBOX_NIGHTLY || pictures);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const downloads = mkdtempSync(path.join(process.env.HOME, "downloads-")); // of this test
const wisbox = (...args) => execFileSync(process.env.WISBOX, args, { encoding: "utf8" });

const browser = await puppeteer.launch({
  executablePath: "/usr/bin/chromium", headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE *.localhost, EXCLUDE localhost"],
});
const faults = [];
let page;
try {
  page = await browser.newPage();
  await page.setViewport({ width: 1200, height: 800 });
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (e) => faults.push(`error: ${e.message ?? e}`));
  page.on("console", (m) => { if (m.type() === "error" && !/status of (401|404|409|422)/.test(m.text())) faults.push(`console: ${m.text()}`); });
  page.on("dialog", (d) => { faults.push(`dialog: ${d.message()}`); void d.dismiss(); });
  page.on("request", (r) => { if (!/^(blob:)?http:\/\/wisbox-[a-z2-7]{16}\.localhost[:/]/.test(r.url())) faults.push(`another server: ${r.url()}`); });

  await run();
  assert.deepEqual(faults, []);
  console.log("done");
} catch (e) {
  console.log(faults.join("\n"));
  if (page) console.log(page.url(), (await page.evaluate(() => document.body.innerText)).slice(0, 3000));
  throw e;
} finally {
  await browser.close();
}

async function click(name, within = "") { await page.locator(`${within} ::-p-aria(${name})`.trim()).click(); }
async function fill(label, text) { await page.locator(`dialog ::-p-aria(${label})`).fill(text); }
async function text(wanted, gone = false) {
  await page.waitForFunction((t, g) => document.body.innerText.includes(t) !== g, {}, wanted, gone);
}
async function goTo(view) {
  await page.locator(`#nav ::-p-text(${view})`).click();
  await page.waitForFunction((v) => document.querySelector("h1")?.textContent.startsWith(v), {}, view);
}
async function picture(name) { if (pictures) await page.screenshot({ path: path.join(pictures, `page-${name}.png`) }); }

/** Nothing that keeps people out: by axe, in both schemes, and on a narrow window without scrolling sideways. */
async function fits(name) {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    const client = await page.createCDPSession();
    const { executionContextId } = await client.send("Page.createIsolatedWorld", { frameId: page.mainFrame()._id });
    const call = async (expression) => {
      const r = await client.send("Runtime.evaluate", { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
      if (r.exceptionDetails) throw new Error(JSON.stringify(r.exceptionDetails));
      return r.result.value;
    };
    await call(axe);
    const found = await call(`axe.run(document).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact)).map((v) => v.id + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join("; ")))`);
    assert.deepEqual(found, [], `${name}, ${scheme}`);
    await client.detach();
  }
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await page.setViewport({ width: 320, height: 640 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 320, `${name} is ${wide} pixels wide in a window of 320`);
  await page.setViewport({ width: 1200, height: 800 });
}

async function run() {
  await page.goto(url, { waitUntil: "load" });
  await text("There is no session yet");
  assert.ok(!page.url().includes("key"), "the key isn't left in the address");
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  console.log(`first paint after ${Math.round(paint)} ms`);
  await fits("the empty list");

  await click("New session");
  await fill("Name", "box");
  await fits("a new session");
  await click("Create", "dialog");
  await page.waitForFunction(() => location.hash === "#/s/box/timeline");
  await text("No call was made yet");

  await goTo("Terminal");
  await text("● ");
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("$"));
  await page.keyboard.type("echo one > a.txt; printf 'mark%s\\n' 42\n");
  await page.waitForFunction(() => document.querySelector(".xterm-rows").textContent.includes("mark42"));
  await page.keyboard.type(String.raw`printf '\033]0;owned\007\033]2;owned\007\033]52;c;b3duZWQ=\007\033]8;;javascript:alert(1)\007link\033]8;;\007\n'` + "\n");
  await page.waitForFunction(() => /link/.test(document.querySelector(".xterm-rows").textContent));
  assert.equal(await page.title(), "box · Terminal · wisbox", "a program can't name the page");
  await fits("a terminal");
  await picture("terminal");
  await page.keyboard.type("stty size | tr ' ' x\n");
  await page.waitForFunction(() => /\d+x\d+/.test(document.querySelector(".xterm-rows").textContent));
  await page.reload();
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("mark42"), {});

  await goTo("Timeline");
  await text("process_start");
  wisbox("exec", "box", "--", "sh", "-c", "printf '1\\n2\\n3\\n' > numbers; echo two > a.txt");
  await page.waitForFunction(() => /run ok.*2 files changed/s.test(document.querySelector(".calls").innerText), {});
  await page.evaluate(() => [...document.querySelectorAll(".calls details")].find((d) => d.innerText.includes("2 files changed")).querySelector("summary").click());
  await page.locator(".calls details[open] ::-p-text(Show the diff)").click();
  await page.waitForSelector(".patch .added");
  assert.match(await page.$eval(".patch", (e) => e.innerText), /-\s*one[\s\S]*\+\s*two/);
  await page.locator("::-p-text(Side by side)").click();
  await page.waitForFunction(() => document.querySelector(".patch tr:nth-child(4)").children.length >= 1);
  await fits("a timeline");
  await picture("timeline");
  await click("Undo the last change");
  await click("Undo", "dialog");
  await text("One call was undone");
  assert.equal(wisbox("exec", "box", "--", "cat", "a.txt"), "one\n");
  await click("Verify the log");
  await text("The log is what was written");

  await goTo("Files");
  await page.locator("::-p-text(a.txt)").click();
  await text("one");
  await click("Edit");
  await page.locator("textarea.editor").fill("three\n");
  await click("Save");
  await text("a.txt is saved");
  assert.equal(wisbox("exec", "box", "--", "cat", "a.txt"), "three\n");
  wisbox("exec", "box", "--", "sh", "-c", "printf 'a\\r\\nb\\r\\n' > dos.txt; printf 'a\\r\\nb\\n' > mixed.txt");
  await click("Look again");
  await page.locator("::-p-text(dos.txt)").click();
  await page.waitForFunction(() => document.querySelector(".viewer pre")?.textContent === "a\nb\n");
  await click("Edit");
  await page.locator("textarea.editor").fill("a\nc\n");
  await click("Save");
  await text("dos.txt is saved");
  assert.equal(wisbox("exec", "box", "--", "cat", "dos.txt"), "a\r\nc\r\n", "the line ends stay");
  await click("Edit");
  await page.locator("textarea.editor").fill("not saved");
  await page.locator("#nav ::-p-text(Snapshots)").click();
  await text("Discard what you changed?");
  assert.ok(page.url().endsWith("/files"), "a view isn't left before the answer");
  await click("Cancel", "dialog");
  assert.equal(await page.$eval("textarea.editor", (e) => e.value), "not saved");
  await page.locator("::-p-text(mixed.txt)").click();
  await text("Discard what you changed?");
  await click("Discard", "dialog");
  await text("Its lines end in different ways");
  assert.equal(await page.$("::-p-aria([name=\"Edit\"][role=\"button\"])"), null);
  await page.locator("::-p-text(a.txt)").click();
  await page.waitForFunction(() => document.querySelector(".viewer h2")?.textContent === "a.txt");
  const saved = await page.createCDPSession();
  await saved.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: downloads, eventsEnabled: true });
  const complete = new Promise((done) => saved.on("Browser.downloadProgress", (e) => { if (e.state === "completed") done(); }));
  await click("Download", ".viewer");
  await complete;
  assert.equal(readFileSync(path.join(downloads, "a.txt"), "utf8"), "three\n");
  if (whole) await hostile();
  await fits("files");
  await picture("files");

  await goTo("Snapshots");
  await click("Keep the files as they are");
  await fill("Name", "good");
  await click("Keep", "dialog");
  await text("good");
  wisbox("exec", "box", "--", "rm", "a.txt");
  await click("Compare with now: good");
  await text("removed");
  await page.waitForSelector(".patch .removed");
  await fits("snapshots");
  await picture("snapshots");
  await click("Restore good");
  await click("Restore", "dialog");
  await text("Restored: 1 added");
  assert.equal(wisbox("exec", "box", "--", "cat", "a.txt"), "three\n");

  if (whole) await others();
  await page.goto(new URL("#/s/box/terminal", url), { waitUntil: "load" });
  await text("● ");
  wisbox("session", "rm", "box");
  await page.waitForFunction(() => !/^[●○]|connecting/.test(document.querySelector(".live").innerText), {});
  console.log(`a terminal of a session that is removed says: ${await page.$eval(".live", (e) => e.innerText)}`);

  await page.goto(url.replace(/#.*/, ""), { waitUntil: "load" });
  await click("Sign out");
  await text("This browser is signed out");
  await page.reload();
  await text("This browser isn't signed in");

  const other = await (await browser.createBrowserContext()).newPage();
  await other.goto(url, { waitUntil: "load" });
  await other.waitForFunction(() => document.body.innerText.includes("this URL was used"));
}

/** The network, the limits, and what the list does. */
async function others() {
  await goTo("Network");
  await text("the session has no network");
  await click("Allow a host");
  await fill("Host", "pypi.org");
  await click("Allow", "dialog");
  await text("pypi.org");
  wisbox("exec", "box", "--", "python3", "-c", "import urllib.request as u\ntry: u.urlopen('http://denied.example.com/')\nexcept u.HTTPError: pass");
  await click("Look again");
  await text("denied.example.com");
  await fits("the network");
  await picture("network");
  await click("Allow denied.example.com:80");
  await text("is allowed from now on");

  await goTo("Limits");
  await page.waitForFunction(() => /memory\s+1GiB\s+yes/.test(document.querySelector("tbody")?.innerText ?? ""), {});
  await page.waitForFunction(() => /CPU of/.test(document.querySelector(".plots").innerText), {});
  await fits("limits");
  await picture("limits");

  await page.locator(".brand").click();
  await text("New session");
  await page.waitForSelector('[aria-label="Remove box"]');
  await fits("the list");
  await picture("sessions");
  await click("Fork box");
  await fill("Name of the copy", "copy");
  await click("Fork", "dialog");
  await page.waitForSelector('[aria-label="Rename copy"]');
  await click("Rename copy");
  await fill("New name", "renamed");
  await click("Rename", "dialog");
  await page.waitForSelector('[aria-label="Remove renamed"]');
  await click("Remove renamed");
  await click("Remove", "dialog");
  await text("renamed is removed");
}

/** Names and contents that try to be more than text. */
async function hostile() {
  const names = [
    "<img src=x onerror=alert(1)>", "<script>alert(1)<\\script>", "\"><svg onload=alert(1)>", "javascript:alert(1)", "\u202egpj.exe", "a\u200bb", "line\nbreak", "tab\tname",
    "\u001b[31mred", "\u001b]0;title\u0007", "__proto__", "constructor", "toString", "..", "%2e%2e", "&lt;b&gt;", "{{7*7}}", "${alert(1)}", "'\"`", "#key=x", "?path=x", "a&b=c", " ", "-rf",
    "\ufeffbom", "\u2028sep", "é", "e\u0301", "名前", "🙂", "x".repeat(255),
  ].filter((n) => n !== "..");
  const script = `import json,os,sys
os.makedirs("hostile", exist_ok=True)
for i, n in enumerate(json.loads(sys.argv[1])):
    with open(os.path.join("hostile", n), "w") as f: f.write("<script>alert(%d)</script>\\x1b]0;owned\\x07 content %d\\n" % (i, i))
os.makedirs("many", exist_ok=True)
for i in range(10000): open("many/%05d" % i, "w").close()
open("long", "w").write("x" * (1 << 20) + "\\n" + "last line\\n")
open("page.html", "w").write("<script>fetch('/')</script><b>bold</b>")
open("pic.svg", "w").write("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
import base64
open("pic.png", "wb").write(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))
`;
  wisbox("exec", "box", "--", "python3", "-c", script, JSON.stringify(names));
  await click("Look again");
  await page.locator("nav summary ::-p-text(hostile)").click();
  await page.waitForFunction((n) => document.querySelectorAll(".tree details[open] li").length === n, {}, names.length);
  const shown = await page.$$eval(".tree details[open] li bdi", (all) => all.map((e) => e.textContent));
  assert.ok(shown.includes("<img src=x onerror=alert(1)>") && shown.includes("\\u{202e}gpj.exe") && shown.includes("line\\u{a}break"), shown.join("\n"));
  assert.ok(shown.every((n) => !/[\u0000-\u001f\u202e\u200b]/.test(n)));
  for (let i = 0; i < names.length; i++) {
    await page.evaluate((n) => document.querySelectorAll(".tree details[open] li button")[n].click(), i);
    const name = `hostile/${shown[i]}`;
    await page.waitForFunction((n) => document.querySelector(".viewer h2")?.textContent === n && /content \d+/.test(document.querySelector(".viewer pre")?.textContent ?? ""), {}, name);
  }
  assert.equal(await page.$$eval(".tree img, .tree script, .viewer script, .viewer svg, .viewer b", (all) => all.length), 0);
  await page.locator("nav summary ::-p-text(hostile)").click();
  await page.locator("nav summary ::-p-text(many)").click();
  await page.locator("::-p-text(More (9000))").click();
  await page.locator("::-p-text(More (8000))").wait();
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
  await open("page.html");
  await text("<b>bold</b>");
  await open("pic.png");
  await page.waitForFunction(() => document.querySelector(".viewer img")?.naturalWidth === 1);
}
