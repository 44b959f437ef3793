// Opens the pages of a fleet of a running `dwell serve` ($DWELL_URL), whose hub has the nodes a, b and c:
// `fill` in controller/server/tests/fleet/data.rs.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { drawn, launch } from "./browser.mjs";

const url = process.env.DWELL_URL;
const screenshots = process.env.DWELL_SCREENSHOTS;
const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const TIMEOUT = 30_000;
let browser;

before(async () => {
  mkdirSync(screenshots, { recursive: true });
  browser = await launch();
});
after(() => browser?.close());

async function visit(path, options) {
  // The page's policy would block axe.
  const context = await browser.newContext({ bypassCSP: true, ...options });
  context.setDefaultTimeout(TIMEOUT);
  const page = await context.newPage();
  const messages = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) messages.push(message.text());
  });
  page.on("pageerror", (error) => messages.push(error.message));
  await page.goto(url + path);
  return { context, page, messages };
}

async function isAccessible(page, name) {
  await page.addScriptTag({ content: axe.source });
  const { violations } = await page.evaluate((runOnly) => window.axe.run("html", { runOnly, resultTypes: ["violations"] }), rules);
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  assert.deepEqual(serious.map(({ id, nodes }) => `${name}: ${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`), []);
}

for (const [colorScheme, width] of [["light", 1280], ["dark", 1280], ["light", 360], ["dark", 360]]) {
  test(`${colorScheme}, ${width} px: the pages of a fleet fit and are accessible`, async () => {
    const options = { colorScheme, viewport: { width, height: 800 } };
    const { context, page, messages } = await visit("/mesh", options);
    // Drawing figures takes long: each scheme and each width once.
    const hasFigures = (colorScheme === "light") === (width === 1280);
    const paths = ["/mesh", "/mesh?delay=one-way", "/nodes", "/nodes/c", "/alerts", ...(hasFigures ? ["/mesh/a/b?range=24h"] : [])];
    for (const path of paths) {
      await page.goto(url + path);
      const name = path.replace(/\W+/g, "-").replace(/^-/, "");
      if (path.startsWith("/mesh/")) {
        await drawn(page);
        assert.equal(await page.locator(".chart.drawn svg").count(), 2);
        assert.equal(await page.locator(".failed-to-draw").count(), 0);
        assert.ok((await page.locator('[data-figure="smoke-forward"] .role-mark :is(path, line)').count()) > 5);
        const labels = await page.locator('[data-figure="smoke-forward"] .role-axis-label text').allTextContents();
        assert.ok(labels.some((label) => /^\d\d:\d\d$/.test(label)), labels.join());
      }
      await page.screenshot({ path: join(screenshots, `${name}-${colorScheme}-${width}.png`), fullPage: true });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(overflow <= width, `${path}: ${overflow} px`);
      await isAccessible(page, path);
    }
    assert.deepEqual(messages, []);
    await context.close();
  });
}

test("the mesh leads to a pair without JavaScript, and its states differ without colour", async () => {
  const { context, page } = await visit("/mesh", { javaScriptEnabled: false, viewport: { width: 360, height: 800 } });
  await page.getByLabel("metric").selectOption("p95");
  await page.getByRole("button", { name: "Show" }).click();
  await page.waitForURL(/metric=p95/);
  const texts = (await page.locator(".mesh td a").allTextContents()).map((text) => text.trim());
  assert.equal(new Set(texts).size, texts.length, texts.join());
  assert.ok(texts.includes("\u2013") && texts.some((text) => text.includes("old")), texts.join());
  // Headings stay in view while the box scrolls.
  const sticky = await page.locator(".mesh tbody th").first().evaluate((th) => getComputedStyle(th).position);
  assert.equal(sticky, "sticky");
  await page.locator('.mesh a[href^="/mesh/a/b"]').click();
  await page.getByRole("heading", { level: 1, name: "a to b" }).waitFor();
  await page.getByRole("link", { name: "24 h" }).click();
  await page.waitForURL(/range=24h/);
  await page.locator("details.data summary").first().click();
  assert.ok((await page.locator("details.data tbody tr").count()) > 200);
  await page.getByRole("link", { name: "7 days" }).click();
  await page.waitForURL(/range=7d/);
  await context.close();
});
