// The page beside wisbox serve: argv is the one-time URL, "", and a sandbox of a client.
import assert from "node:assert/strict";
import { fits, goTo, page, person, text, url, wisbox } from "./browser.mjs";

const box = process.argv[4];
await person(async () => {
  await page.goto(url, { waitUntil: "load" });
  await text(box);
  assert.equal(await page.$(`[aria-label="Rename ${box}"]`), null, "clients know it by its name");
  await fits("the sandboxes of clients");
  await page.goto(new URL(`#/s/${box}/timeline`, url), { waitUntil: "load" });
  await page.reload();
  wisbox("exec", box, "--", "touch", "seen");
  await page.waitForFunction(() => /run ok/.test(document.querySelector(".calls")?.innerText ?? ""));
  await goTo("Terminal");
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("$"));
});
