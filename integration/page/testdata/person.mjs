// A person at the page: argv is the one-time URL.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { browser, click, fill, fits, goTo, page, person, tabTo, text, url, watched, whole, wisbox } from "./browser.mjs";

const downloads = mkdtempSync(path.join(process.env.HOME, "downloads-")); // of this test

async function run() {
  await page.goto(url, { waitUntil: "load" });
  await text("No sessions yet");
  assert.ok(!page.url().includes("key"), "the key isn't left in the address");
  await fits("the empty list");

  await click("New session");
  await fill("Name", "box");
  await fits("a new session");
  await click("Create", "dialog");
  await page.waitForFunction(() => location.hash === "#/s/box/timeline");
  await text("No calls yet");

  await goTo("Terminal");
  await text("● ");
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("$"));
  await page.keyboard.type("echo one > a.txt; printf 'mark%s\\n' 42\n");
  await page.waitForFunction(() => document.querySelector(".xterm-rows").textContent.includes("mark42"));
  await page.keyboard.type(String.raw`printf '\033]0;owned\007\033]2;owned\007\033]52;c;b3duZWQ=\007\033]8;;javascript:alert(1)\007link\033]8;;\007\n'` + "\n");
  await page.waitForFunction(() => /link/.test(document.querySelector(".xterm-rows").textContent));
  assert.equal(await page.title(), "box · Terminal · wisbox", "a program can't name the page");
  await fits("a terminal");
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
  await click("Undo the last change");
  await click("Undo", "dialog");
  await text("One call was undone");
  assert.equal(wisbox("exec", "box", "--", "cat", "a.txt"), "one\n");
  await click("Verify the log");
  await text("The log is unchanged");

  await evaluations();

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
  await text("Discard your changes?");
  assert.ok(page.url().endsWith("/files"), "a view isn't left before the answer");
  await click("Cancel", "dialog");
  assert.equal(await page.$eval("textarea.editor", (e) => e.value), "not saved");
  const tokens = await page.evaluate(() => { const all = Object.entries(localStorage); localStorage.clear(); return all; });
  await click("Save");
  await text("This browser isn't signed in any more; the text is not saved");
  assert.equal(await page.$eval("textarea.editor", (e) => e.value), "not saved", "the text stays when the server doesn't know the browser");
  await page.evaluate((all) => { for (const [name, value] of all) localStorage.setItem(name, value); }, tokens);
  await page.locator("::-p-text(mixed.txt)").click();
  await text("Discard your changes?");
  await click("Discard", "dialog");
  await text("The file mixes line endings");
  assert.equal(await page.$("::-p-aria([name=\"Edit\"][role=\"button\"])"), null);
  await page.locator("::-p-text(a.txt)").click();
  await page.waitForFunction(() => document.querySelector(".viewer h2")?.textContent === "a.txt");
  const saved = await page.createCDPSession();
  await saved.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: downloads, eventsEnabled: true });
  const complete = new Promise((done) => saved.on("Browser.downloadProgress", (e) => { if (e.state === "completed") done(); }));
  await click("Download", ".viewer");
  await complete;
  assert.equal(readFileSync(path.join(downloads, "a.txt"), "utf8"), "three\n");
  await table();
  await fits("files");

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
  await click("Restore good");
  await click("Restore", "dialog");
  await text("Restored: 1 added");
  assert.equal(wisbox("exec", "box", "--", "cat", "a.txt"), "three\n");

  await others();
  if (whole) await keyboard();
  if (whole) await speed();
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

  const other = await watched(await browser.createBrowserContext());
  await other.goto(url, { waitUntil: "load" });
  await other.waitForFunction(() => document.body.innerText.includes("this URL was used"));
}

const plot = `import math
class Plot:
    def _repr_svg_(self):
        points = " ".join(f"{x*4},{60-50*math.sin(x/8)*math.exp(-x/60):.1f}" for x in range(150))
        return f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 600 120' width='600' height='120'><script>alert(1)</script><path d='M0 60H600' stroke='#bbb'/><polyline points='{points}' fill='none' stroke='#0b5cad' stroke-width='2'/></svg>"
class Table:
    def _repr_html_(self):
        rows = "".join(f"<tr><td>{n}</td><td>{n*n}</td><td onclick='alert(1)'>&lt;{n}&gt;</td></tr>" for n in range(1, 6))
        return f"<table><script>alert(1)</script><tr><th>n</th><th>square</th><th>mark</th></tr>{rows}</table>"
`;

/** Code of the page, and that of an agent, with what it shows. */
async function evaluations() {
  await goTo("Evaluate");
  await page.locator("#code").fill(`${plot}print("<i>said</i>")\ndisplay(Plot(), Table())\n6 * 7`);
  await page.keyboard.down("Control");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Control");
  await text("✓ done");
  await text("<i>said</i>");
  await click("Show the SVG picture", ".cells");
  await page.waitForFunction(() => document.querySelector(".cells img")?.naturalWidth === 600);
  assert.deepEqual(await page.$$eval(".cells .shown td", (all) => all.slice(0, 3).map((e) => e.textContent)), ["1", "1", "<1>"]);
  assert.match(await page.$eval(".cells", (e) => e.innerText), /42/);
  await fits("an evaluation");
  await page.locator("#code").fill("while True: pass");
  await click("Run");
  await text("● runs");
  await page.locator("#nav ::-p-text(Files)").click();
  await text("stops if you leave this view");
  await click("Cancel", "dialog");
  await click("Stop");
  await text("stopped");
  await goTo("Files");
  await goTo("Evaluate");
  assert.equal(await page.$eval("#code", (e) => e.value), "while True: pass", "the code is there when the view comes back");

  wisbox("call", "box", "evaluate_python", JSON.stringify({ code: `${plot}\ndisplay(Plot(), Table())` }));
  await goTo("Timeline");
  await text("shows something");
  await page.evaluate(() => [...document.querySelectorAll(".calls details")].find((d) => d.innerText.includes("shows something")).querySelector("summary").click());
  await click("Show the SVG picture", ".calls details[open]");
  await page.waitForFunction(() => document.querySelector(".calls details[open] img")?.naturalWidth === 600);
  await page.waitForSelector(".calls details[open] .shown td");
  await fits("a timeline with a plot");
}

/** A CSV file as a table, and the other ways to look at a file. */
async function table() {
  const many = Array.from({ length: 450 }, (_, i) => `${i},"a ""quoted"", one\n<b>${i}</b>",${i * i}`).join("\n");
  writeFileSync(path.join(downloads, "t.csv"), `n,text,square\n${many}\n`);
  wisbox("cp", path.join(downloads, "t.csv"), "box:t.csv");
  await click("Look again");
  await page.locator("::-p-text(t.csv)").click();
  await text("Rows 1 to 200 of 450");
  assert.deepEqual(await page.$$eval(".viewer tbody tr:first-child td", (all) => all.map((e) => e.textContent)), ["0", 'a "quoted", one\\u{a}<b>0</b>', "0"]);
  await click("Later rows");
  await text("Rows 201 to 400 of 450");
  await fits("a table");
  await click("Bytes", ".viewer");
  await page.waitForFunction(() => document.querySelector(".viewer pre")?.textContent.startsWith("000000  6e 2c 74"));
  await click("Text", ".viewer");
  await page.waitForFunction(() => document.querySelector(".viewer pre")?.textContent.startsWith("n,text,square"));
}

/** How fast the page is there, and how large it is, without a cache. */
async function speed() {
  const paints = [];
  let size = 0;
  for (let i = 0; i < 5; i++) {
    const tab = await watched(browser);
    await tab.setCacheEnabled(false);
    await tab.goto(url.replace(/#.*/, ""), { waitUntil: "networkidle0" });
    const [paint, bytes] = await tab.evaluate(() => [performance.getEntriesByName("first-contentful-paint")[0].startTime,
      [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource").filter((r) => r.name.includes("/assets/"))].reduce((n, r) => n + r.transferSize, 0)]);
    paints.push(paint);
    size = Math.max(size, bytes);
    await tab.close();
  }
  paints.sort((a, b) => a - b);
  console.log(`first paint after ${paints.map(Math.round).join(", ")} ms; ${size} bytes`);
  assert.ok(paints[2] <= 500 && size <= 300_000);
}

/** All that a person needs, without a mouse. */
async function keyboard() {
  await page.goto(url.replace(/#.*/, ""), { waitUntil: "load" });
  await text("New session");
  await tabTo("New session");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.type("keys");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash === "#/s/keys/timeline");
  for (const [view, there] of [["Evaluate", "Run"], ["Terminal", "New shell"], ["Snapshots", "Keep the files as they are"], ["Files", "New file"]]) {
    await tabTo(view, true);
    await page.keyboard.press("Enter");
    await page.waitForFunction((v) => document.querySelector("h1")?.textContent.startsWith(v), {}, view);
    if (view === "Evaluate") {
      await page.waitForFunction(() => document.activeElement.id === "code");
      await page.keyboard.type("6 * 7");
      await tabTo("Run");
      await page.keyboard.press("Enter");
      await text("✓ done");
    }
    if (view === "Terminal") {
      await page.waitForFunction(() => document.activeElement.classList.contains("xterm-helper-textarea"));
      await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("$"));
      await page.keyboard.down("Shift");
      await page.keyboard.press("Escape");
      await page.keyboard.up("Shift");
    }
    await tabTo(there);
  }
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog"));
  wisbox("session", "rm", "keys");
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
  await click("Allow denied.example.com:80");
  await text("is allowed from now on");

  await goTo("Limits");
  await page.waitForFunction(() => /memory\s+1GiB\s+yes/.test(document.querySelector("tbody")?.innerText ?? ""), {});
  await page.waitForFunction(() => /CPU of/.test(document.querySelector(".plots").innerText), {});
  await fits("limits");

  await page.locator(".brand").click();
  await text("New session");
  await page.waitForSelector('[aria-label="Remove box"]');
  await fits("the list");
  await click("Template box");
  await fill("Name", "ready");
  await click("Make it", "dialog");
  await text("Template created");
  await page.locator("#nav ::-p-text(Templates)").click();
  await click("New session of ready");
  await fill("Name", "made");
  await fits("a session of a template");
  await click("Create", "dialog");
  await page.waitForFunction(() => location.hash === "#/s/made/timeline");
  assert.equal(wisbox("exec", "made", "--", "cat", "a.txt"), "three\n");
  wisbox("session", "rm", "made");
  await page.goto(new URL("#/templates", url), { waitUntil: "load" });
  await page.waitForSelector('[aria-label="Remove the template ready"]');
  await fits("the templates");
  await click("Remove the template ready");
  await click("Remove", "dialog");
  await text("No templates yet");
  await page.locator(".brand").click();

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

await person(run);
