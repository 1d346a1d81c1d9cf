// Sources here -> ../static: what is served, under names that change with their contents, and the licences of what is in it.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.join(here, "..", "static");
const digest = (data) => createHash("sha256").update(data).digest("hex");
const packages = (name) => path.join(here, "node_modules", name);

const bundled = await build({
  absWorkingDir: here,
  entryPoints: ["main.ts", "theme.ts", "page.css"],
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  loader: { ".py": "text", ".woff2": "file", ".svg": "file" },
  assetNames: "[name]",
  legalComments: "none", // collected in licences.txt
  outdir: "out",
  write: false,
  metafile: true,
});

const files = new Map(bundled.outputFiles.map((file) => [path.basename(file.path), Buffer.from(file.contents)]));
files.set("icon.svg", await readFile(path.join(here, "icon.svg")));
const fonts = { "inter.woff2": "inter-latin-wght-normal.woff2", "mono.woff2": "jetbrains-mono-latin-wght-normal.woff2" };
for (const [short, long] of Object.entries(fonts)) {
  files.set(short, files.get(long));
  files.delete(long);
}

const named = new Map(); // plain name -> name with the digest of its contents
function name(plain, data) {
  const { name: stem, ext } = path.parse(plain);
  named.set(plain, `${stem}-${digest(data).slice(0, 12)}${ext}`);
}
for (const plain of [...Object.keys(fonts), "icon.svg", "main.js", "theme.js"]) name(plain, files.get(plain));
let css = files.get("page.css").toString();
for (const [short, long] of Object.entries(fonts)) css = css.replaceAll(`./${long}`, named.get(short));
files.set("page.css", Buffer.from(css));
name("page.css", files.get("page.css"));

let html = await readFile(path.join(here, "index.html"), "utf8");
for (const [plain, hashed] of named) html = html.replaceAll(`"${plain}"`, `"/static/${hashed}"`);
html = html.replaceAll('"licences.txt"', '"/static/licences.txt"');

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
for (const [plain, data] of files) await writeFile(path.join(target, named.get(plain)), data);
await writeFile(path.join(target, "index.html"), html);
await writeFile(path.join(target, "licences.txt"), await licences(Object.keys(bundled.metafile.inputs)));

// So that a test can tell whether what is committed was built from what is committed.
const sources = (await readdir(here)).filter((file) => /\.(ts|css|html|svg|mjs|json)$/.test(file)).sort();
const lines = await Promise.all(sources.map(async (file) => `${digest(await readFile(path.join(here, file)))}  ${file}\n`));
await writeFile(path.join(target, "built-from.txt"), lines.join(""));

async function licences(inputs) {
  const names = inputs.map((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]).filter(Boolean);
  const texts = [];
  for (const package_ of [...new Set(names)].sort()) {
    const about = JSON.parse(await readFile(path.join(packages(package_), "package.json"), "utf8"));
    const file = (await readdir(packages(package_))).find((entry) => /^licen[sc]e/i.test(entry));
    if (!file) throw new Error(`${package_} comes without a licence`);
    const text = (await readFile(path.join(packages(package_), file), "utf8")).replace(/\r/g, "").trim();
    texts.push(`${package_} ${about.version} (${about.license})\n\n${text}\n`);
  }
  const rule = `\n${"-".repeat(100)}\n\n`;
  return `Software and fonts that are part of this page, each under its own licence.\n${rule}${texts.join(rule)}`;
}
