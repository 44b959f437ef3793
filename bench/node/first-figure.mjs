// Prints the time from the start of a page until its first figure was drawn, in milliseconds.
// Usage: first-figure.mjs BROWSER.mjs FILE.html|http://ADDRESS
import { pathToFileURL } from "node:url";

const [browserModule, file] = process.argv.slice(2);
const { launch, open } = await import(pathToFileURL(browserModule).href);
const browser = await launch();
try {
  const isAddress = file.startsWith("http:");
  const page = isAddress ? await browser.newPage() : (await open(browser, file)).page;
  if (isAddress) await page.goto(file);
  await page.waitForSelector(".chart.drawn svg");
  console.log(await page.evaluate(() => performance.getEntriesByName("first-figure")[0].startTime));
} finally {
  await browser.close();
}
