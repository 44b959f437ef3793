// Builds the figure runtime of dwell-report in one file, the Vega-Lite schema for its tests, and the
// script of dwell-server's pages. Usage: `node build.mjs [DIRECTORY]`, or `node build.mjs --app
// [DIRECTORY]` for that script only. The output is reproducible from package-lock.json; tests of both
// packages check that.
import { build } from "esbuild";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const onlyApp = process.argv[2] === "--app";
const target = process.argv[onlyApp ? 3 : 2];
const directory = target ?? here("../report/assets");
const out = `${directory}/vega.js`;

await build({
  absWorkingDir: here("."),
  entryPoints: ["src/app.ts"],
  outfile: `${target ?? here("../server/assets")}/app.js`,
  bundle: true,
  minify: true,
  platform: "browser",
  format: "iife",
  target: "es2022",
  charset: "ascii",
  logLevel: "warning",
});
if (onlyApp) process.exit(0);

const { metafile } = await build({
  absWorkingDir: here("."),
  entryPoints: ["runtime.js"],
  outfile: out,
  bundle: true,
  minify: true,
  metafile: true,
  platform: "browser",
  format: "iife",
  globalName: "dwellFigures",
  target: "es2022",
  charset: "ascii",
  legalComments: "eof",
  logLevel: "warning",
});

// Licences require their text in every copy, and most packages have it only in a file.
const packages = new Set();
for (const input of Object.keys(metafile.inputs)) {
  const inside = input.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (inside) packages.add(inside[1]);
}
const byText = new Map();
for (const name of [...packages].sort()) {
  const folder = here(`node_modules/${name}/`);
  const { version, license } = JSON.parse(await readFile(`${folder}package.json`, "utf8"));
  const file = (await readdir(folder)).sort().find((file) => /^licen[cs]e/i.test(file));
  const text = file ? (await readFile(folder + file, "utf8")).replaceAll("\r", "").trim() : license;
  byText.set(text, [...(byText.get(text) ?? []), `${name} ${version}`]);
}
const notices = [...byText].map(([text, names]) => `${names.join(", ")}:\n\n${text}`);
const comment = `/*!\n${notices.join("\n\n----\n\n").replaceAll("*/", "* /")}\n*/\n`;
const ascii = comment.replace(/[^\x00-\x7f]/g, (letter) => (letter === "\u00a9" ? "(c)" : letter.normalize("NFKD").replace(/[^\x00-\x7f]/g, "")));
await writeFile(out, (await readFile(out, "utf8")) + ascii.replaceAll("</script", "<\\/script").replaceAll("<!--", "<! --"));

// Without descriptions the schema is a sixth of the size. Names of definitions contain brackets and
// bars, which are not valid in references, so they are replaced.
const schema = JSON.parse(await readFile(here("node_modules/vega-lite/build/vega-lite-schema.json"), "utf8"));
const names = new Map();
for (const name of Object.keys(schema.definitions)) {
  const plain = name.replace(/[^A-Za-z0-9]+/g, "_");
  const taken = [...names.values()].filter((other) => other.replace(/-\d+$/, "") === plain).length;
  names.set(name, taken ? `${plain}-${taken}` : plain);
}
schema.definitions = Object.fromEntries(
  Object.entries(schema.definitions).map(([name, definition]) => [names.get(name), definition]),
);
const terse = JSON.stringify(schema, (key, value) => {
  if (typeof value !== "string") return value;
  if (/^(description|markdownDescription)$/.test(key)) return undefined;
  if (key !== "$ref") return value;
  return `#/definitions/${names.get(decodeURIComponent(value.slice("#/definitions/".length)))}`;
});
if (terse.includes("#/definitions/undefined")) throw new Error("the schema has a reference without a definition");
await writeFile(`${directory}/vega-lite-schema.json`, `${terse}\n`);
