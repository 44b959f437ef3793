// Saves pictures for documents: node picture.mjs PAGE SELECTOR OUT.png [WIDTH]
//
// PAGE is a report's file or the address of a page of `dwell serve`; SELECTOR chooses the element, such as
// `#figure-ecdf`. Figures are drawn before the picture is taken.
import { pathToFileURL } from "node:url";
import { drawn, launch } from "./test/browser.mjs";

const [page, selector, out, width = "900"] = process.argv.slice(2);
if (!out) {
  console.error("usage: node picture.mjs PAGE SELECTOR OUT.png [WIDTH]");
  process.exit(2);
}
const browser = await launch();
try {
  const tab = await browser.newPage({ viewport: { width: Number(width), height: 900 }, colorScheme: "light", bypassCSP: true });
  await tab.goto(/^https?:/.test(page) ? page : pathToFileURL(page).href);
  const element = tab.locator(selector).first();
  await element.scrollIntoViewIfNeeded();
  await drawn(tab);
  await tab.addStyleTag({ content: "details, button { display: none !important; }" });
  await element.screenshot({ path: out });
} finally {
  await browser.close();
}
