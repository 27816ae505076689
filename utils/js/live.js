// Bundles the scripts of the site's live pages into the folder on the command line; `tools/live_site.py` calls it.

import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = fileURLToPath(new URL("src/live/", import.meta.url));
/** @type {import("esbuild").BuildOptions} */
const shared = { outdir: process.argv[2], bundle: true, target: "es2022", charset: "utf8", minify: true };

await build({
  ...shared,
  entryPoints: ["puzzles", "model", "player", "schedule", "race", "explain", "price", "worker"].map((name) => `${folder}${name}.js`),
  format: "esm",
  splitting: true,
  chunkNames: "shared-[hash]",
  logLevel: "error",
});
await build({
  ...shared,
  entryPoints: ["sw", "theme", "embed"].map((name) => `${folder}${name}.js`),
  format: "iife",
  logLevel: "error",
});
