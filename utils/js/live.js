// Bundles the scripts of the site's live pages into the folder on the command line; `tools/live_site.py` calls it.

import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = fileURLToPath(new URL("src/live/", import.meta.url));
/** @type {import("esbuild").BuildOptions} */
const shared = { outdir: process.argv[2], bundle: true, target: "es2022", charset: "utf8", minify: true };

await build({
  ...shared,
  entryPoints: ["puzzles", "model", "player", "schedule", "race", "explain", "price"].map(
    (name) => `${folder}${name}.js`,
  ),
  format: "esm",
  splitting: true,
  chunkNames: "shared-[hash]",
  logLevel: "error",
});
// a worker is made of this text, so it is one file, with Pyodide's loader in it, whose branches for Node are never taken
await build({
  ...shared,
  entryPoints: [`${folder}worker.js`],
  format: "esm",
  external: ["node:*", "ws"],
  logLevel: "error",
});
await build({
  ...shared,
  entryPoints: ["sw", "theme", "embed"].map((name) => `${folder}${name}.js`),
  format: "iife",
  logLevel: "error",
});
