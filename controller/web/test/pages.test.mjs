// Opens the pages in $DWELL_PAGES in a browser, from files and without network.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { after, before, describe, test } from "node:test";
import axe from "axe-core";
import { drawn, launch, open } from "./browser.mjs";

const folder = process.env.DWELL_PAGES;
const screenshots = join(folder, "screenshots");
const pages = readdirSync(folder).filter((name) => name.endsWith(".html")).sort();
// The schemes differ only in colours, which all pages take from one palette. Contrast in the dark
// scheme is therefore checked only on pages whose figures have every kind of mark, and on all pages
// by `make test-web`.
const checkedInDark = process.env.DWELL_ALL_PAGES ? pages : ["comparison.html", "loads.html", "machines.html", "paces.html"];
const rules = {
  light: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  dark: { type: "rule", values: ["color-contrast"] },
};
let browser;

before(async () => {
  mkdirSync(screenshots, { recursive: true });
  browser = await launch();
});
after(() => browser?.close());

test("there are pages to test", () => assert.ok(pages.length >= 4, pages.join()));

/** Opens all details, and presses Tab until every control had the focus and showed it. */
async function reachesEveryControl(page) {
  const controls = await page.evaluate(() => {
    for (const details of document.querySelectorAll("details")) details.open = true;
    const controls = document.querySelectorAll("a[href], button, summary, input, select, [tabindex='0']");
    const all = [...controls].filter((control) => control.checkVisibility());
    all.forEach((control, i) => (control.dataset.control = i));
    return all.length;
  });
  const reached = new Set();
  for (let i = 0; i < controls + 2; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const { dataset } = document.activeElement;
      const { outlineStyle } = getComputedStyle(document.activeElement);
      return { control: dataset.control, ring: outlineStyle };
    });
    if (at.control === undefined) continue;
    reached.add(at.control);
    assert.notEqual(at.ring, "none", `control ${at.control} shows no focus`);
  }
  assert.equal(reached.size, controls);
}

for (const name of pages) {
  const file = join(folder, name);
  const figures = !name.startsWith("empty");

  // Each test has its own browser context, so tests can run in parallel.
  describe(name, { concurrency: 2 }, () => {
    // Drawing takes most of the time, so the dark scheme is opened on a narrow screen, and the
    // keyboard is tried where the light one is.
    for (const colorScheme of ["light", "dark"]) {
      const narrow = colorScheme === "dark" ? { viewport: { width: 320, height: 700 } } : {};
      const also = { light: "the keyboard reaches every control", dark: "the page fits a viewport of 320 pixels" }[colorScheme];
      test(`${colorScheme}: draws every figure without console messages or requests; ${also}`, async () => {
        const { context, page, messages, requests } = await open(browser, file, { colorScheme, ...narrow });
        if (figures) {
          await page.waitForSelector(".chart.drawn svg");
          const first = await page.evaluate(() => performance.getEntriesByName("first-figure")[0].startTime);
          console.log(`${name} ${colorScheme}: first figure after ${Math.round(first)} ms`);
        }
        await drawn(page);
        const marks = await page.evaluate(() =>
          [...document.querySelectorAll(".chart")].map((chart) => {
            const shapes = [...chart.querySelectorAll(".role-mark :is(path, line, text)")];
            const box = (shape) => shape.getBoundingClientRect();
            return {
              figure: chart.dataset.figure,
              shown: shapes.filter((shape) => box(shape).width + box(shape).height > 0).length,
              broken: shapes.filter((shape) => /NaN|undefined|Infinity/.test(shape.outerHTML)).length,
              named: chart.querySelector("svg")?.getAttribute("aria-label")?.length > 20,
            };
          }),
        );
        assert.equal(marks.length > 0, figures);
        for (const mark of marks) {
          assert.ok(mark.shown > 0, `${mark.figure} shows nothing`);
          assert.equal(mark.broken, 0, `${mark.figure} has broken marks`);
          assert.ok(mark.named, `${mark.figure} has no description`);
        }
        await page.screenshot({ path: join(screenshots, `${basename(name, ".html")}-${colorScheme}.png`), fullPage: true });
        if (colorScheme === "light") await reachesEveryControl(page);
        else assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 320);
        assert.deepEqual(messages, []);
        assert.deepEqual(requests, []);
        await context.close();
      });

      if (colorScheme === "dark" && !checkedInDark.includes(name)) continue;
      test(`${colorScheme}: axe finds no serious violations, also in closed sections`, async () => {
        // The page's policy would block axe; other tests check the policy.
        const { context, page } = await open(browser, file, { colorScheme, bypassCSP: true });
        await drawn(page);
        await page.addScriptTag({ content: axe.source });
        // Menus cover figures, so they are opened and checked last.
        const menus = ".chart details";
        for (const [unfolded, where] of [[`details:not(${menus})`, "html"], [menus, menus]]) {
          const { violations } = await page.evaluate(async ([unfolded, where, runOnly]) => {
            for (const details of document.querySelectorAll(unfolded)) details.open = true;
            if (!document.querySelector(where)) return { violations: [] };
            // Without selectors of elements that pass, which take most of the time.
            return window.axe.run(where, { runOnly, resultTypes: ["violations"] });
          }, [unfolded, where, rules[colorScheme]]);
          const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
          const short = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
          assert.deepEqual(short, []);
        }
        await context.close();
      });
    }

    test("text and tables work without JavaScript", async () => {
      const { context, page } = await open(browser, file, { javaScriptEnabled: false });
      assert.ok((await page.locator("h1").textContent()).length > 0);
      assert.ok((await page.locator("#summary li").count()) > 0);
      const tables = page.locator("details.data table");
      assert.equal((await tables.count()) > 0, figures);
      await context.close();
    });
  });
}

test("the menu of a figure saves SVG and PNG by keyboard", async () => {
  const { context, page } = await open(browser, join(folder, "loads.html"));
  await drawn(page);
  const saved = async (act) => {
    const [download] = await Promise.all([page.waitForEvent("download"), act()]);
    return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
  };
  const menu = page.locator(".chart").first().locator("details");
  await menu.locator("summary").focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  const svg = await saved(() => page.keyboard.press("Enter"));
  assert.match(svg.name, /^dwell-.*\.svg$/);
  assert.match(svg.bytes.toString(), /^<svg[\s\S]*run 20261121-1/);
  await page.keyboard.press("Tab");
  const png = await saved(() => page.keyboard.press("Enter"));
  assert.match(png.name, /\.png$/);
  assert.deepEqual([...png.bytes.subarray(1, 4)], [...Buffer.from("PNG")]);
  await page.keyboard.press("Escape");
  assert.equal(await menu.evaluate((details) => details.open), false);
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY");
  await context.close();
});

test("figures follow changes of the colour scheme", async () => {
  const { context, page, messages } = await open(browser, join(folder, "loads.html"), { colorScheme: "light" });
  await drawn(page);
  const ground = (colour) =>
    page.waitForFunction(
      (colour) => [...document.querySelectorAll(".chart svg")].every((svg) => getComputedStyle(svg).backgroundColor === colour),
      colour,
      { timeout: 20_000 },
    );
  await ground("rgb(255, 255, 255)");
  await page.emulateMedia({ colorScheme: "dark" });
  await ground("rgb(22, 25, 29)");
  await drawn(page);
  assert.deepEqual(messages, []);
  await context.close();
});

/** Labels of the axes of a figure. */
function labels(figure) {
  return figure.locator(".role-axis-label text").allTextContents();
}

/** Drags over a figure between relative positions of its first plot. */
async function drag(page, figure, from, to) {
  await figure.scrollIntoViewIfNeeded();
  const box = await figure.evaluate((chart) => {
    const lines = [...chart.querySelectorAll(".role-axis-domain line")].map((line) => line.getBoundingClientRect());
    const all = lines.reduce((a, b) => ({ left: Math.min(a.left, b.left), right: Math.max(a.right, b.right), top: Math.min(a.top, b.top), bottom: Math.max(a.bottom, b.bottom) }));
    return { x: all.left, y: all.top, width: all.right - all.left, height: all.bottom - all.top };
  });
  const at = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
  await page.mouse.move(...at(from));
  await page.mouse.down();
  await page.mouse.move(...at(to), { steps: 4 });
  await page.mouse.up();
}

/** Waits until the labels of a figure differ from these. */
async function changed(page, id, before) {
  await page.waitForFunction(([id, before]) => {
    const now = [...document.querySelectorAll(`[data-figure="${id}"] .role-axis-label text`)].map((label) => label.textContent);
    return now.length > 0 && now.join() !== before;
  }, [id, before.join()]);
}

test("a drag zooms, the address shows the same view again, and a double click resets", async () => {
  const { context, page, messages } = await open(browser, join(folder, "loads.html"));
  await drawn(page);
  const figure = page.locator('[data-figure="ecdf"]');
  const whole = await labels(figure);
  await drag(page, figure, [0.3, 0.2], [0.6, 0.7]);
  await changed(page, "ecdf", whole);
  const zoomed = await labels(figure);
  assert.match(page.url(), /[?&]zoom=ecdf_x_[\d.]+_[\d.]+_y_[\d.]+_[\d.]+$/);
  const link = await figure.getByRole("link", { name: /^Link to this view/ }).getAttribute("href");
  assert.equal(link, `${page.url()}#figure-ecdf`);
  // A second zoom goes further into the first one.
  await drag(page, figure, [0.2, 0.5], [0.8, 0.51]);
  await changed(page, "ecdf", zoomed);
  const further = await labels(figure);
  const copied = await open(browser, join(folder, "loads.html"));
  await copied.page.goto(page.url());
  await changed(copied.page, "ecdf", whole);
  assert.deepEqual(await labels(copied.page.locator('[data-figure="ecdf"]')), further);
  await copied.page.close();
  // Time has one axis in all plots of a figure.
  const timeline = page.locator('[data-figure="timeline"]');
  const before = await labels(timeline);
  await drag(page, timeline, [0.25, 0.05], [0.5, 0.06]);
  await changed(page, "timeline", before);
  assert.equal(new URL(page.url()).searchParams.getAll("zoom").length, 2);
  await figure.locator("svg.marks").dblclick();
  await changed(page, "ecdf", further);
  assert.deepEqual(await labels(figure), whole);
  await timeline.getByRole("button", { name: /^Reset zoom/ }).click();
  await page.waitForURL((url) => url.search === "");
  assert.deepEqual(messages, []);
  await context.close();
});

test("an address with a broken zoom shows the whole figure", async () => {
  const { context, page, messages } = await open(browser, join(folder, "loads.html"));
  await drawn(page);
  const whole = await labels(page.locator('[data-figure="ecdf"]'));
  for (const zoom of ["ecdf", "ecdf_x_2_1", "ecdf_x_NaN_Infinity", "none_x_1_2", "ecdf_q_1_2", "heat_y_1_2", "<b>"]) {
    await page.goto(`${page.url().split("?")[0]}?zoom=${encodeURIComponent(zoom)}`);
    await drawn(page);
    assert.deepEqual(await labels(page.locator('[data-figure="ecdf"]')), whole, zoom);
  }
  assert.deepEqual(messages, []);
  await context.close();
});

test("the pointer and the keyboard show values; the keyboard zooms and moves", async () => {
  const { context, page, messages } = await open(browser, join(folder, "loads.html"));
  await drawn(page);
  const figure = page.locator('[data-figure="ecdf"]');
  await figure.scrollIntoViewIfNeeded();
  const tooltip = page.locator(".figure-tooltip.visible");
  const line = figure.locator(".mark-line path").first();
  const box = await line.boundingBox();
  for (let y = 0; y < 1 && (await tooltip.count()) === 0; y += 0.02) {
    await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * y);
  }
  assert.match(await tooltip.innerText(), /Round-trip delay:\s+[\d.,]+ us[\s\S]*share/);
  await page.mouse.move(0, 0);
  await tooltip.waitFor({ state: "hidden" });
  await figure.locator("svg.marks").focus();
  await page.keyboard.press("End");
  const last = await page.locator("p[role=status]").textContent();
  assert.match(last, /Round-trip delay [\d.,]+ us, share 100 %/);
  await page.keyboard.press("ArrowLeft");
  assert.notEqual(await page.locator("p[role=status]").textContent(), last);
  await page.keyboard.press("Escape");
  await tooltip.waitFor({ state: "hidden" });
  const steps = [["+", "zooms"], ["+", "zooms further"], ["Shift+ArrowRight", "moves"], ["-", "shows more"], ["0", "shows everything"]];
  const whole = await labels(figure);
  for (const [key, what] of steps) {
    const before = await labels(figure);
    await page.keyboard.press(key);
    await changed(page, "ecdf", before);
    // The drawing is another one, and has the focus.
    await page.waitForFunction(() => document.activeElement?.closest('[data-figure="ecdf"]'));
    assert.ok((await labels(figure)).length > 0, what);
  }
  assert.deepEqual(await labels(figure), whole);
  assert.deepEqual(messages, []);
  await context.close();
});

test("figures fit a narrow screen with texts of full size", async () => {
  const { context, page } = await open(browser, join(folder, "loads.html"), { viewport: { width: 360, height: 800 } });
  await drawn(page);
  const scales = await page.evaluate(() =>
    [...document.querySelectorAll(".chart svg.marks")].map((svg) => svg.getBoundingClientRect().width / Number(svg.getAttribute("width"))),
  );
  for (const scale of scales) assert.ok(scale > 0.9, scales.join());
  await page.setViewportSize({ width: 1100, height: 800 });
  await page.waitForFunction(() => [...document.querySelectorAll(".chart svg.marks")].every((svg) => Number(svg.getAttribute("width")) > 600));
  await context.close();
});
