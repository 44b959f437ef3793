// Writes what dwell-report takes from these packages: the runtime of figures in one file, and the
// schema its tests hold figures against. `node build.mjs [DIRECTORY]`. The same packages (see
// package-lock.json) give the same bytes, which a test of dwell-report relies on.
import { build } from "esbuild";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const directory = process.argv[2] ?? here("../report/assets");
const out = `${directory}/vega.js`;

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

// The licences ask for their text beside every copy, and most packages have it in a file only.
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

// Without its prose the schema is a sixth as large, and says the same. Names of definitions become
// letters that may stand in a reference; theirs hold brackets and bars.
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
if (terse.includes("#/definitions/undefined")) throw new Error("a reference to no definition");
await writeFile(`${directory}/vega-lite-schema.json`, `${terse}\n`);
