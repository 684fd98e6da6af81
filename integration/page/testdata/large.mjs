// A session with 100,000 calls in its log: argv is the one-time URL, the log's file, and one more record.
import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import { click, fill, page, person, text, url, whole } from "./browser.mjs";

const [file, records] = process.argv.slice(4);

const state = () => page.evaluate(() => ({ nodes: document.querySelectorAll("*").length, rows: document.querySelectorAll(".calls > li").length,
  first: Number(document.querySelector(".calls > li")?.dataset.seq), last: Number(document.querySelector(".calls > li:last-child")?.dataset.seq) }));
async function until(first) { await page.waitForFunction((n) => Number(document.querySelector(".calls > li")?.dataset.seq) === n, {}, first); }
async function bounded(what) {
  const s = await state();
  assert.ok(s.nodes < 20_000 && s.rows <= 1000, `${what}: ${JSON.stringify(s)}`);
}

await person(async () => {
  await page.evaluateOnNewDocument(() => {
    window.longest = 0;
    new PerformanceObserver((l) => { for (const e of l.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({ type: "longtask", buffered: true });
  });
  await page.goto(url, { waitUntil: "load" });
  await page.goto(new URL("#/s/large/timeline", url), { waitUntil: "load" });
  await until(100_000);
  await bounded("the end");
  for (let at = 99_500; at > 97_000; at -= 500) {
    if (at === 99_500) await page.waitForSelector("[data-to=older]").then((e) => e.focus());
    await page.keyboard.press("Enter");
    await until(at);
    await page.waitForFunction(() => document.activeElement.dataset.to === "older");
  }
  await bounded("older calls");
  await page.locator("::-p-text(Newer calls)").click();
  await until(98_000);
  await click("Go to a call");
  await fill("Number in the log", "700");
  await click("Go", "dialog");
  await until(700);
  await bounded("a call");
  for (let i = 1; i <= 20; i++) appendFileSync(file, records.replaceAll("SEQ", String(100_000 + i)) + "\n");
  await text("Newer calls (99320)");
  await click("The last calls");
  await until(100_020);
  for (let i = 21; i <= 2000; i++) appendFileSync(file, records.replaceAll("SEQ", String(100_000 + i)) + "\n");
  await until(102_000);
  await bounded("calls that come");
  const s = await state();
  assert.equal(s.first - s.last + 1, s.rows, "no call of the page is missing");
  const longest = Math.round(await page.evaluate(() => window.longest));
  console.log(`the longest task took ${longest} ms`);
  if (whole) assert.ok(longest < 2000);
});
