// Uses the pages of a running `dwell serve` ($DWELL_URL) in a browser, as a person does. Its data
// directory has the devices d1 and d2, and runs of the plan "two". $DWELL_SECOND is the address of d2.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { drawn, launch } from "./browser.mjs";

const url = process.env.DWELL_URL;
const screenshots = process.env.DWELL_SCREENSHOTS;
const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const TIMEOUT = 30_000;
const MAX_FIRST_PAINT = 200_000;
/** Themes and widths in which every page is checked: each once, or with $DWELL_ALL_PAGES all combinations. */
const views = process.env.DWELL_ALL_PAGES
  ? ["light", "dark"].flatMap((theme) => [1440, 360].map((width) => [theme, width]))
  : [["light", 1440], ["dark", 360]];
let browser;

before(async () => {
  mkdirSync(screenshots, { recursive: true });
  browser = await launch();
});
after(() => browser?.close());

/** Opens a page. `messages` collects console messages that a visitor should not cause. */
async function visit(path, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, acceptDownloads: true, ...options });
  context.setDefaultTimeout(TIMEOUT);
  const page = await context.newPage();
  const messages = [];
  page.on("console", (message) => {
    const refused = /the server responded with a status of 4(04|09|22)/.test(message.text());
    if (["error", "warning"].includes(message.type()) && !refused) messages.push(message.text());
  });
  page.on("pageerror", (error) => messages.push(error.message));
  await page.goto(url + path);
  return { context, page, messages };
}

const plan = (count, repetitions) => `version = 1
name = "two"

[topology]
roles = ["sender", "receiver"]

[ping]
from = "sender"
to = "receiver"
protocol = "udp"
count = ${count}
interval = "1ms"

[trials]
repetitions = ${repetitions}
`;

/** Names of the two newest runs that have ended. */
async function newestRuns(page) {
  await page.goto(`${url}/runs?q=finished`);
  return (await page.locator("tbody th a").allTextContents()).slice(0, 2);
}

test("a visitor adds a device, checks it, measures with it, and compares and deletes runs", async (t) => {
  const { context, page, messages } = await visit("/");
  await t.test("adding and checking a device", async () => {
    await page.getByRole("link", { name: "Add a device" }).first().click();
    await page.getByLabel("Name").fill("d1");
    await page.getByLabel("Destination").fill(process.env.DWELL_SECOND);
    await page.getByRole("button", { name: "Add the device" }).click();
    await page.getByRole("alert").getByText("there is already a device 'd1'").waitFor();
    await page.getByLabel("Name").fill("shelf");
    await page.getByLabel("Model").fill("Test board");
    await page.getByRole("button", { name: "Add the device" }).click();
    await page.getByRole("heading", { name: "Device shelf" }).waitFor();
    await page.getByText("answered").first().waitFor();
    await page.getByRole("button", { name: "Check" }).click();
    await page.getByText(/answered \d+ s ago/).waitFor();
    assert.ok((await page.locator("section:has(#abilities) tbody tr").count()) > 5);
  });

  await t.test("an error in a plan is shown at its line and column", async () => {
    await page.goto(`${url}/experiments/new`);
    const text = page.getByLabel("Plan", { exact: false }).first();
    await text.fill(plan("many", 3).replace("count = many", 'count = "many"'));
    const mistake = page.locator(".mistakes li");
    await mistake.getByRole("button", { name: "line 11, column 9" }).click();
    assert.equal(await page.evaluate(() => document.activeElement.id), "plan");
    const selected = await page.evaluate(() => {
      const { value, selectionStart, selectionEnd } = document.activeElement;
      return value.slice(selectionStart, selectionEnd);
    });
    assert.equal(selected, '"many"');
    await page.screenshot({ path: join(screenshots, "editor-mistake.png") });
    await text.fill(plan(3000, 6));
    await page.locator("#check-title", { hasText: "The plan is valid" }).waitFor();
    assert.match(await page.locator(".cost").textContent(), /trials6.*packets18,/s);
  });

  let experiment;
  await t.test("starting, watching, reloading, stopping and resuming", async () => {
    await page.getByLabel("sender").selectOption("d1");
    await page.getByLabel("receiver").selectOption("shelf");
    await page.screenshot({ path: join(screenshots, "editor.png") });
    await page.getByRole("button", { name: "Start" }).click();
    await page.waitForURL(/\/experiments\/\d{8}-/);
    experiment = page.url();
    await page.locator("#done", { hasText: /^[1-9]\d* of 6 trials/ }).waitFor();
    await page.waitForFunction(() => /us|ms/.test(document.getElementById("p50")?.textContent ?? ""));
    const timeline = page.getByRole("img", { name: "Delay during the trial" });
    await timeline.waitFor();
    assert.ok((await timeline.locator(".median").getAttribute("points")).split(" ").length > 1);
    assert.match(await timeline.locator("desc").textContent(), /^Trial \d+ from [\d.]+ to [\d.]+ s: the median so far was between/);
    const topology = page.getByRole("img", { name: "Topology" });
    assert.deepEqual(await topology.locator(".name").allTextContents(), ["sender", "receiver"]);
    assert.deepEqual(await topology.locator(".device").allTextContents(), ["d1", "shelf"]);
    await page.getByText("Measured: round trips, udp from sender (d1) to receiver (shelf) and back.", { exact: true }).first().waitFor();
    await page.screenshot({ path: join(screenshots, "live.png"), fullPage: true });
    await page.reload();
    await page.locator("#done", { hasText: /^[1-9]\d* of 6 trials/ }).waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Resume" }).waitFor();
    assert.match(await page.locator("#state").textContent(), /stopped|interrupted/);
    await page.screenshot({ path: join(screenshots, "stopped.png") });
    await page.getByRole("button", { name: "Resume" }).click();
    await page.locator("#done", { hasText: "6 of 6 trials have ended" }).waitFor();
    await page.locator("#state", { hasText: "finished" }).waitFor();
    await page.screenshot({ path: join(screenshots, "finished.png") });
  });

  await t.test("the results have the tables and figures of the report", async () => {
    await page.getByRole("link", { name: /^Results: run/ }).click();
    await page.waitForURL(/\/runs\//);
    await drawn(page);
    assert.ok((await page.locator(".chart.drawn svg").count()) > 2);
    assert.equal(await page.locator(".failed-to-draw").count(), 0);
    const figure = page.locator('[data-figure="ecdf"]');
    const labels = (of) => of.locator(".role-axis-label text").allTextContents();
    const whole = await labels(figure);
    await figure.scrollIntoViewIfNeeded();
    const box = await figure.locator("svg.marks").boundingBox();
    await page.mouse.move(box.x + box.width * 0.4, box.y + box.height * 0.3);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.7, box.y + box.height * 0.31, { steps: 4 });
    await page.mouse.up();
    await page.waitForURL(/\?zoom=ecdf_x_/);
    const copied = await visit(page.url().slice(url.length));
    await drawn(copied.page);
    const zoomed = await labels(copied.page.locator('[data-figure="ecdf"]'));
    assert.notDeepEqual(zoomed, whole);
    await drawn(page);
    assert.deepEqual(await labels(figure), zoomed);
    assert.deepEqual(copied.messages, []);
    await copied.context.close();
    await figure.getByRole("button", { name: /^Reset zoom/ }).click();
    await page.waitForURL((address) => address.search === "");
    await page.locator("#note").fill("measured by the browser test");
    await page.getByRole("button", { name: "Add the note" }).click();
    await page.locator("#notes li", { hasText: "measured by the browser test" }).waitFor();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("link", { name: "Download the report" }).click(),
    ]);
    assert.match(download.suggestedFilename(), /^\d{8}-\d+\.html$/);
  });

  await t.test("a comparison has an address that shows it again", async () => {
    const [later, earlier] = await newestRuns(page);
    await page.goto(`${url}/compare`);
    await page.getByLabel(`Run ${earlier} is the baseline`).check();
    await page.getByLabel(`Compare run ${later}`).check();
    await page.getByRole("button", { name: "Compare" }).click();
    await page.getByRole("heading", { name: "Differences" }).waitFor();
    await drawn(page);
    assert.equal(page.url(), `${url}/compare?runs=${earlier},${later}`);
    const rows = await page.locator("#differences tbody tr").count();
    await page.locator("details.choose summary").click();
    await page.waitForURL(/open=choose/);
    await page.reload();
    assert.equal(await page.locator("#differences tbody tr").count(), rows);
    assert.ok(await page.locator("details.choose").evaluate((details) => details.open));
  });

  await t.test("a deletion is undone", async () => {
    const [run] = await newestRuns(page);
    await page.goto(`${url}/data`);
    await page.getByRole("button", { name: `Delete run ${run}` }).click();
    await page.getByText(`Run ${run} is deleted.`).waitFor();
    assert.equal(await page.getByRole("rowheader", { name: run, exact: true }).count(), 0);
    await page.screenshot({ path: join(screenshots, "deleted.png") });
    await page.getByRole("button", { name: `Undo the deletion of Run ${run}` }).click();
    await page.getByRole("rowheader", { name: run, exact: true }).waitFor();
    await page.goto(`${url}/devices/shelf`);
    await page.getByRole("button", { name: "Remove shelf" }).click();
    await page.getByText("Device shelf is deleted.").waitFor();
    assert.equal(await page.getByRole("rowheader", { name: "shelf", exact: true }).count(), 0);
    await page.getByRole("button", { name: "Undo the deletion of Device shelf" }).click();
    // In the list, and in the table of verdicts.
    await page.getByRole("rowheader", { name: "shelf", exact: true }).first().waitFor();
    await page.goto(experiment);
    await page.getByRole("button", { name: "Delete this experiment" }).click();
    await page.getByRole("button", { name: /^Undo the deletion of experiment/ }).click();
    await page.locator(`a[href="${new URL(experiment).pathname}"]`).waitFor();
  });
  assert.deepEqual(messages, []);
  await context.close();
});

test("the data manager imports, exports, finds and deletes", async (t) => {
  const { context, page, messages } = await visit("/data");
  const send = async (name, text) => {
    await page.setInputFiles("#file", { name, mimeType: "text/plain", buffer: Buffer.from(text) });
    await page.getByRole("button", { name: "Import" }).click();
  };
  const names = () => page.locator("tbody th").allTextContents();
  let run;
  await t.test("a file of no known format is refused with the reason", async () => {
    const before = await names();
    await send("noise.txt", "no measurement\n");
    await page.getByRole("alert").getByText("The file was not imported").waitFor();
    assert.match(await page.getByRole("alert").innerText(), /noise|format|unknown/);
    assert.deepEqual(await names(), before);
  });

  await t.test("an import is a run with its size", async () => {
    const replies = Array.from({ length: 50 }, (_, i) => `64 bytes from 192.0.2.9: icmp_seq=${i + 1} ttl=64 time=0.${400 + i} ms`);
    await send("shelf ping.txt", `PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.\n${replies.join("\n")}\n\n--- 192.0.2.9 ping statistics ---\n50 packets transmitted, 50 received, 0% packet loss, time 49001ms\nrtt min/avg/max/mdev = 0.400/0.424/0.449/0.014 ms\n`);
    await page.waitForURL(/\/runs\//);
    run = new URL(page.url()).pathname.split("/").pop();
    await page.goto(`${url}/data?q=${run}`);
    const row = page.locator("tbody tr", { hasText: run });
    assert.match(await row.innerText(), /\(import\)/);
    assert.match(await row.locator("td").nth(3).innerText(), /\d/);
    assert.deepEqual(await names(), [run]);
  });

  await t.test("each export has the samples", async () => {
    const exported = {};
    for (const format of ["CSV", "JSON lines", "HDR", "Parquet"]) {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("link", { name: new RegExp(`^Export run ${run} as ${format}`) }).click(),
      ]);
      exported[format] = readFileSync(await download.path());
      assert.match(download.suggestedFilename(), new RegExp(run), format);
    }
    assert.equal(exported.CSV.toString().trim().split("\n").length, 51);
    const lines = exported["JSON lines"].toString().trim().split("\n").map((line) => JSON.parse(line));
    assert.ok(lines.length >= 50);
    assert.match(exported.HDR.toString(), /^#\[StartTime/m);
    assert.equal(exported.Parquet.subarray(257, 262).toString(), "ustar");
  });

  await t.test("a deletion names the run, and is undone", async () => {
    await page.goto(`${url}/data?q=${run}`);
    await page.getByRole("button", { name: `Delete run ${run}` }).click();
    await page.getByText(`Run ${run} is deleted.`).waitFor();
    await page.goto(`${url}/data?q=${run}`);
    await page.getByText("No run matches.").waitFor();
    await page.getByRole("button", { name: `Undo the deletion of Run ${run}` }).click();
    await page.goto(`${url}/data?q=${run}`);
    assert.deepEqual(await names(), [run]);
  });
  assert.deepEqual(messages, []);
  await context.close();
});

test("the first experiment of docs/web.md works as it is written", async () => {
  const document = readFileSync(new URL("../../../docs/web.md", import.meta.url), "utf8");
  const section = document.split("## The first experiment")[1].split("\n## ")[0];
  const controls = [...section.matchAll(/\*([A-Z][^*\n]+)\*/g)].map(([, name]) => name);
  const { context, page, messages } = await visit("/");
  // What a reader does, or waits for, after a control.
  const then = {
    "Add a device": async () => {
      await page.getByLabel("Name").fill("documented");
      await page.getByLabel("Destination").fill(process.env.DWELL_SECOND);
      await page.getByRole("button", { name: "Add the device" }).click();
    },
    Check: () => page.locator("section:has(#abilities) tbody tr").first().waitFor(),
    "New experiment": async () => {
      await page.locator("#plan").fill(plan(2000, 3));
      await page.locator("#check-title", { hasText: "The plan is valid" }).waitFor();
      await page.getByLabel("sender").selectOption("d1");
      await page.getByLabel("receiver").selectOption("documented");
    },
    Start: () => page.locator("#done", { hasText: /trials have ended/ }).waitFor(),
    Stop: () => page.getByRole("button", { name: "Resume" }).waitFor(),
    Resume: () => page.locator("#state", { hasText: "finished" }).waitFor(),
    "Compare with another run": () => page.getByRole("heading", { level: 1 }).waitFor(),
  };
  assert.deepEqual(Object.keys(then).filter((name) => !controls.includes(name)), []);
  for (const name of controls) {
    const named = { name: new RegExp(`^${name}\\b`) };
    await page.getByRole("link", named).or(page.getByRole("button", named)).first().click();
    await then[name]?.();
  }
  assert.match(page.url(), /\/compare\?runs=/);
  assert.deepEqual(messages, []);
  await context.close();
});

test("a failed request is reported where its result stands", async (t) => {
  const { context, page } = await visit("/experiments/new");
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  await t.test("a plan that cannot be checked", async () => {
    const valid = page.locator("#check-title", { hasText: "The plan is valid" });
    await page.locator("#plan").fill(plan(300, 3));
    await valid.waitFor();
    const failed = page.locator("#check-failed");
    assert.equal(await failed.isVisible(), false);
    await page.route("**/experiments/check", (route) => route.abort());
    await page.locator("#plan").fill(plan(300, 4));
    await failed.getByText("The server does not answer").waitFor();
    await page.unroute("**/experiments/check");
    await page.route("**/experiments/check", (route) => route.fulfill({ status: 503, body: "" }));
    await page.locator("#plan").fill(plan(300, 5));
    await failed.getByText("The server refused to check the plan").waitFor();
    await page.unroute("**/experiments/check");
    await page.locator("#plan").fill(plan(300, 6));
    await failed.waitFor({ state: "hidden" });
    assert.match(await page.locator(".cost").textContent(), /trials6/);
  });

  await t.test("a plan that is left for another page", async () => {
    await page.getByRole("link", { name: "Devices", exact: true }).click();
    await page.getByRole("heading", { name: "Devices", exact: true }).waitFor();
    await page.goBack();
    assert.equal(await page.locator("#plan").inputValue(), plan(300, 6));
    await page.locator("#check-title", { hasText: "The plan is valid" }).waitFor();
  });

  await t.test("figures whose data cannot be loaded", async () => {
    await page.route("**/figures.json", (route) => route.fulfill({ status: 500, body: "{}" }));
    const [run] = await newestRuns(page);
    await page.goto(`${url}/runs/${run}`);
    await page.locator(".failed-to-draw").first().waitFor();
    const texts = await page.locator(".chart").allTextContents();
    assert.ok(texts.length > 2);
    for (const text of texts) assert.match(text, /^Cannot load the data of this figure \(the server answered 500\); /);
  });

  await t.test("a note that is too long stays in its field", async () => {
    const note = "n".repeat(200_000);
    await page.locator("#note").fill(note);
    await page.getByRole("button", { name: "Add the note" }).click();
    await page.locator("#add-note").getByRole("alert").getByText("longer than 16384 bytes").waitFor();
    assert.equal((await page.locator("#note").inputValue()).length, note.length);
  });

  await t.test("a description that is too long stays in its form", async () => {
    await page.goto(`${url}/devices/d1/edit`);
    const note = "n".repeat(200_000);
    await page.getByLabel("Note").fill(note);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("alert").getByText("a value is longer than 128 KiB").waitFor();
    assert.equal((await page.getByLabel("Note").inputValue()).length, note.length);
  });
  assert.deepEqual(errors, []);
  await context.close();
});

/** Presses Tab until an element has the focus. */
async function tabTo(page, locator) {
  for (let presses = 0; presses < 200; presses++) {
    if (await locator.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`the keyboard does not reach ${locator}`);
}

test("everything works by keyboard", async () => {
  const { context, page, messages } = await visit("/");
  const press = async (locator, key = "Enter") => {
    await tabTo(page, locator);
    const ring = await locator.evaluate((element) => getComputedStyle(element).outlineStyle);
    assert.notEqual(ring, "none", `${locator} shows no focus`);
    await page.keyboard.press(key);
  };
  await press(page.getByRole("link", { name: "Add a device" }).first());
  await page.waitForURL(/devices\/new/);
  await tabTo(page, page.getByLabel("Name"));
  await page.keyboard.type("keyboard");
  await tabTo(page, page.getByLabel("Destination"));
  await page.keyboard.type(process.env.DWELL_SECOND);
  await press(page.getByRole("button", { name: "Add the device" }));
  await page.getByText(/answered/).first().waitFor();
  await press(page.getByRole("link", { name: "Experiments", exact: true }));
  await page.waitForURL(/\/experiments$/);
  await press(page.getByRole("link", { name: "New experiment" }));
  await page.waitForURL(/new/);
  await tabTo(page, page.locator("#plan"));
  // Long enough to be stopped before it ends.
  await page.keyboard.insertText(plan(2000, 6));
  await page.locator("#check-title", { hasText: "The plan is valid" }).waitFor();
  for (const [role, device] of [["sender", "d1"], ["receiver", "keyboard"]]) {
    await tabTo(page, page.getByLabel(role));
    await page.keyboard.type(device);
  }
  await press(page.getByRole("button", { name: "Start" }));
  await page.waitForURL(/\/experiments\/\d{8}-/);
  await press(page.getByRole("button", { name: "Stop" }));
  await page.getByRole("button", { name: "Resume" }).waitFor();
  await press(page.getByRole("button", { name: "Resume" }));
  await page.locator("#done", { hasText: "6 of 6 trials have ended" }).waitFor();
  await press(page.getByRole("link", { name: /^Results: run/ }));
  await page.waitForURL(/\/runs\//);
  await press(page.getByRole("button", { name: /^Delete run/ }));
  await page.waitForURL(/\/runs$/);
  await press(page.getByRole("button", { name: /^Undo/ }));
  await page.waitForFunction(() => !document.querySelector(".undo"));
  assert.deepEqual(messages, []);
  await context.close();
});

test("reading, starting, stopping and resuming work without JavaScript", async () => {
  const { context, page } = await visit("/experiments/new", { javaScriptEnabled: false });
  const field = page.locator("#plan");
  await field.fill(plan("many", 3).replace("count = many", 'count = "many"'));
  await page.getByRole("button", { name: "Check" }).click();
  await page.locator(".mistakes li", { hasText: "line 11, column 9" }).waitFor();
  await field.fill(plan(300, 12));
  await page.getByRole("button", { name: "Check" }).click();
  await page.locator("#check-title", { hasText: "The plan is valid" }).waitFor();
  await page.getByLabel("sender").selectOption("d1");
  await page.getByLabel("receiver").selectOption("d2");
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForURL(/\/experiments\/\d{8}-/);
  await page.getByRole("button", { name: "Stop" }).click();
  const until = Date.now() + TIMEOUT;
  while ((await page.getByRole("button", { name: "Resume" }).count()) === 0) {
    assert.ok(Date.now() < until, await page.locator("main").textContent());
    await page.getByRole("link", { name: "Refresh" }).click();
  }
  await page.getByRole("button", { name: "Resume" }).click();
  while ((await page.locator("#state", { hasText: "finished" }).count()) === 0) {
    assert.ok(Date.now() < until, await page.locator("main").textContent());
    await page.reload();
  }
  await page.getByRole("link", { name: /^Results: run/ }).click();
  assert.ok((await page.locator("#summary li").count()) > 0);
  assert.ok((await page.locator("details.data table").count()) > 0);
  const [later, earlier] = await newestRuns(page);
  await page.getByLabel(`Compare run ${later}`).check();
  await page.getByLabel(`Compare run ${earlier}`).check();
  await page.getByRole("button", { name: "Compare the selected runs" }).click();
  await page.getByRole("heading", { name: "Differences" }).waitFor();
  await context.close();
});

test("every page passes axe, fits its screen and is small", async (t) => {
  const { context, page } = await visit("/runs?q=finished");
  const [later, earlier] = (await page.locator("tbody th a").allTextContents()).slice(0, 2);
  await page.goto(`${url}/experiments`);
  const experiment = await page.locator("tbody th a").first().getAttribute("href");
  await context.close();
  const pages = {
    overview: "/",
    devices: "/devices",
    device: "/devices/d1",
    "device-new": "/devices/new",
    "device-edit": "/devices/d1/edit",
    experiments: "/experiments",
    "editor-example": "/experiments/new?from=example:device-accuracy",
    experiment,
    runs: "/runs",
    run: `/runs/${later}`,
    compare: `/compare?runs=${earlier},${later}`,
    "compare-empty": "/compare",
    data: "/data",
    reports: "/reports",
    api: "/api",
    missing: "/runs/none",
  };
  for (const [name, path] of Object.entries(pages)) {
    await t.test(name, async () => {
      for (const [colorScheme, width] of views) {
        const viewport = { width, height: 900 };
        const visited = await visit(path, { colorScheme, viewport });
        await drawn(visited.page);
        const shot = join(screenshots, `${name}-${width}-${colorScheme}.png`);
        await visited.page.screenshot({ path: shot, fullPage: true });
        const scroll = await visited.page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(scroll <= width, `${name} is ${scroll} wide at ${width}`);
        if (name === "overview" && width === 1440) {
          const height = await visited.page.evaluate(() => document.documentElement.scrollHeight);
          assert.ok(height <= 900, `the overview needs ${height} pixels`);
        }
        assert.deepEqual(visited.messages, []);
        if (width === 1440 && colorScheme === "light") await measure(visited.page, name);
        await visited.context.close();
        // The pages' policy would block axe.
        const checked = await visit(path, { colorScheme, viewport, bypassCSP: true });
        await drawn(checked.page);
        await checked.page.addScriptTag({ content: axe.source });
        const { violations } = await checked.page.evaluate((runOnly) => {
          for (const details of document.querySelectorAll("details:not(.chart details)")) details.open = true;
          return window.axe.run("html", { runOnly, resultTypes: ["violations"] });
        }, rules);
        const short = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
        assert.deepEqual(short, [], `${name} at ${width} in ${colorScheme}`);
        await checked.context.close();
      }
    });
  }
});

/** Prints and checks the bytes that a page needs before its figures. */
async function measure(page, name) {
  const entries = await page.evaluate(() =>
    [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].map(
      ({ name, decodedBodySize }) => [new URL(name).pathname, decodedBodySize],
    ),
  );
  const first = entries.filter(([path]) => !/vega\.js$|figures\.json$|dark\.json$/.test(path));
  const bytes = first.reduce((sum, [, size]) => sum + size, 0);
  console.log(`${name}: ${bytes} bytes before figures`);
  assert.ok(bytes < MAX_FIRST_PAINT, `${name}: ${JSON.stringify(first)}`);
}
