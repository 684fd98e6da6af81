// The pictures of docs/page.md: argv is the one-time URL, and the folder for them.
import { click, fill, goTo, page, person, picture, text, url, wisbox } from "./browser.mjs";

const sh = (script) => wisbox("exec", "shop", "--", "sh", "-c", script);
const call = (tool, args) => wisbox("call", "shop", tool, JSON.stringify(args));
const before = `import csv


def total(path):
    with open(path) as orders:
        return sum(float(row["price"]) for row in csv.DictReader(orders))
`;
const plot = `import math
class Plot:
    def _repr_svg_(self):
        p = " ".join(f"{x*4},{60-50*math.sin(x/8)*math.exp(-x/60):.1f}" for x in range(150))
        return f"<svg xmlns='http://www.w3.org/2000/svg' width='600' height='120'><path d='M0 60H600' stroke='#bbb'/><polyline points='{p}' fill='none' stroke='#0b5cad' stroke-width='2'/></svg>"
class Table:
    def _repr_html_(self):
        return "<table><tr><th>month</th><th>orders</th><th>total</th></tr>" + "".join(f"<tr><td>2026-{m:02}</td><td>{m*17}</td><td>{m*812.5:.2f}</td></tr>" for m in range(1, 5)) + "</table>"
`;
const show = (what) => page.evaluate((w) => {
  const d = [...document.querySelectorAll(".calls details")].find((d) => d.innerText.includes(w));
  d.querySelector("summary").click();
}, what);

await person(async () => {
  await page.goto(url, { waitUntil: "load" });
  await text("No sessions yet");
  await click("New session");
  await fill("Name", "shop");
  await fill("Allowed hosts", "pypi.org");
  await click("Create", "dialog");
  await page.waitForFunction(() => location.hash === "#/s/shop/timeline");
  call("write_file", { file_path: "shop/orders.py", content: before });
  sh("mkdir -p data && printf 'id,item,price\n' > data/orders.csv && for i in $(seq 240); do echo $i,item-$i,$i.50; done >> data/orders.csv");
  sh("python3 -c 'from shop.orders import total; print(total(\"data/orders.csv\"))'");
  call("evaluate_python", { code: `${plot}display(Plot(), Table())` });
  call("edit_file", { file_path: "shop/orders.py", old_string: "import csv\n", new_string: "import csv\nfrom decimal import Decimal\n" });
  call("edit_file", { file_path: "shop/orders.py", old_string: 'sum(float(row["price"]) for row in csv.DictReader(orders))', new_string: 'sum(Decimal(row["price"]) for row in csv.DictReader(orders))' });
  call("shell_execute", { script: "python3 -c 'from shop.orders import total; print(total(\"data/missing.csv\"))'" });
  await goTo("Timeline");
  await page.reload();
  await text("edit_file");
  await show("edit_file");
  await page.locator(".calls details[open] ::-p-text(Show the diff)").click();
  await page.waitForSelector(".patch .added");
  await picture("timeline");
  await click("Undo the last change");
  await page.waitForSelector("dialog[open]");
  await picture("undo");
  await page.keyboard.press("Escape");
  await page.reload();
  await text("shows something");
  await show("shows something");
  await click("Show the SVG picture", ".calls details[open]");
  await page.waitForFunction(() => document.querySelector(".calls details[open] img")?.naturalWidth === 600);
  await page.waitForSelector(".calls details[open] .shown td");
  await picture("plot");

  await goTo("Terminal");
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("$"));
  await page.keyboard.type("head -4 data/orders.csv; wc -l data/orders.csv shop/orders.py\n");
  await page.waitForFunction(() => document.querySelector(".xterm-rows").textContent.includes("total"));
  await picture("terminal");

  await goTo("Evaluate");
  await page.locator("#code").fill("import csv, statistics\nprices = [float(row['price']) for row in csv.DictReader(open('data/orders.csv'))]\nprint(len(prices), 'orders')\nstatistics.mean(prices)");
  await click("Run");
  await text("✓ done");
  await picture("evaluate");

  await goTo("Files");
  await page.locator("nav summary ::-p-text(data)").click();
  await page.locator("nav button ::-p-text(orders.csv)").click();
  await text("Rows 1 to 200 of 240");
  await picture("table");

  await goTo("Snapshots");
  await click("Keep the files as they are");
  await fill("Name", "before the import");
  await click("Keep", "dialog");
  await text("before the import");
  call("edit_file", { file_path: "shop/orders.py", old_string: "Decimal(row", new_string: "2 * Decimal(row" });
  sh("rm data/orders.csv; echo notes > notes.txt");
  await click("Compare with now: before the import");
  await page.waitForSelector(".patch .removed");
  await picture("snapshots");

  sh("python3 -c \"import urllib.request as u; u.urlopen('http://files.example.com/')\" || true");
  await goTo("Network");
  await text("files.example.com");
  await picture("network");
  await goTo("Limits");
  await page.waitForFunction(() => /CPU of/.test(document.querySelector(".plots")?.innerText ?? ""));
  await page.waitForFunction(() => document.querySelector(".plots polyline").getAttribute("points").split(" ").length > 3);
  await picture("limits");
  await page.locator(".brand").click();
  await page.waitForSelector('[aria-label="Remove shop"]');
  await picture("sessions");
});
