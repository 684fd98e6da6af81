// Chromium at the page, and what a person does there.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import puppeteer from "puppeteer-core";

export const [url, pictures] = process.argv.slice(2);
export const whole = Boolean(process.env.WISBOX_NIGHTLY);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const wisbox = (...args) => execFileSync(process.env.WISBOX, args, { encoding: "utf8" });
export const faults = [];
export let browser, page;

/** Runs a script of a person; whatever the page does that it shouldn't is a fault. */
export async function person(run) {
  browser = await puppeteer.launch({
    executablePath: "/usr/bin/chromium", headless: true,
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE *.localhost, EXCLUDE localhost"],
  });
  try {
    page = await watched(browser);
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
}

/** A tab in which nothing may run or load that isn't the page's. */
export async function watched(of) {
  const page = await of.newPage();
  await page.setViewport({ width: 1200, height: 800 });
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (e) => faults.push(`error: ${e.message ?? e}`));
  page.on("console", (m) => { if (m.type() === "error" && !/status of (401|404|409|422)/.test(m.text())) faults.push(`console: ${m.text()}`); });
  page.on("dialog", (d) => { faults.push(`dialog: ${d.message()}`); void d.dismiss(); });
  page.on("popup", () => faults.push("a window was opened"));
  page.on("request", (r) => { if (!/^(data:image\/|(blob:)?http:\/\/wisbox-[a-z2-7]{16}\.localhost[:/])/.test(r.url())) faults.push(`another server: ${r.url().slice(0, 200)}`); });
  return page;
}

export async function click(name, within = "") { await page.locator(`${within} ::-p-aria(${name})`.trim()).click(); }
export async function fill(label, text) { await page.locator(`dialog ::-p-aria(${label})`).fill(text); }
export async function text(wanted, gone = false) {
  await page.waitForFunction((t, g) => document.body.innerText.includes(t) !== g, {}, wanted, gone);
}
export async function goTo(view) {
  await page.locator(`#nav ::-p-text(${view})`).click();
  await page.waitForFunction((v) => document.querySelector("h1")?.textContent.startsWith(v), {}, view);
}
/** A picture of what is on the page, without the message in its corner. */
export async function picture(name) {
  await page.evaluate(() => document.querySelector("#said button")?.click());
  await page.screenshot({ path: path.join(pictures, `page-${name}.png`) });
}

/** Goes on with Tab until the focus is on what has that name; back goes the other way round, as a terminal keeps Tab. */
export async function tabTo(name, back = false) {
  for (let i = 0; i < 100; i++) {
    const at = await page.evaluate(() => { const e = document.activeElement; return e.getAttribute("aria-label") ?? (e.labels?.[0] ?? e).textContent.trim(); });
    if (at === name) return;
    if (back) await page.keyboard.down("Shift");
    await page.keyboard.press("Tab");
    if (back) await page.keyboard.up("Shift");
  }
  throw new Error(`the keyboard doesn't reach ${name}`);
}

/** Nothing that keeps people out: by axe, in both schemes, and from 320 pixels to 4K without scrolling sideways. */
export async function fits(name) {
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
  for (const [width, height] of [[320, 640], [3840, 2160]]) {
    await page.setViewport({ width, height });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${name} is ${wide} pixels wide in a window of ${width}`);
  }
  await page.setViewport({ width: 1200, height: 800 });
}
