// Launches the system's Chromium and opens pages, recording console messages and requests.
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

/** Path of Chromium: $CHROMIUM, or the first of its usual names in PATH. */
export function executable() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
    for (const folder of process.env.PATH.split(delimiter)) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {}
    }
  }
  throw new Error("chromium not found in PATH; set $CHROMIUM");
}

export async function launch() {
  // The sandbox needs namespaces that root in a container may lack. The pages are trusted.
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ executablePath: executable(), args });
}

/** Opens a file. `messages` collects console warnings and errors, `requests` the URLs of requests. */
export async function open(browser, file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 900 }, acceptDownloads: true, ...options });
  const page = await context.newPage();
  const messages = [];
  const requests = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) messages.push(message.text());
  });
  page.on("pageerror", (error) => messages.push(error.message));
  const own = pathToFileURL(file).href;
  page.on("request", (request) => {
    const url = request.url();
    if (url !== own && !/^(data|blob):/.test(url)) requests.push(url);
  });
  await page.goto(own);
  return { context, page, messages, requests };
}

/** Waits until every figure is drawn or has failed. */
export async function drawn(page) {
  await page.waitForFunction(() =>
    [...document.querySelectorAll(".chart")].every((chart) => /drawn|failed-to-draw/.test(chart.className)),
  );
}
