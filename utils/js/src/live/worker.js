// The worker in which the reader's browser runs Python. It is made of text that the page has loaded, so that the page's
// Content-Security-Policy holds here too: what Python runs can reach nothing but this site.

import { loadPyodide } from "pyodide";
import { cut } from "./cut.js";

/** @typedef {{fetch: typeof fetch, postMessage: (data: unknown) => void, onmessage: unknown}} Scope */

const scope = /** @type {Scope} */ (/** @type {unknown} */ (self));
const MOST_PRINTED = 20_000;
let printed = 0;

/** @type {any} */
let python;
/** @type {(name: string, request: string) => string} */
let answer;

/** @param {string} text a line that the program prints */
function print(text) {
  if (printed > MOST_PRINTED) return;
  const shown = cut(text, MOST_PRINTED - printed);
  printed += text.length + 1;
  scope.postMessage({ kind: "printed", text: printed > MOST_PRINTED ? `${shown}\n… cut here` : shown });
}

/**
 * Starts Python from what the page has loaded.
 *
 * @param {{folder: string, module: string, script: string, wasm: WebAssembly.Module, library: ArrayBuffer,
 *   lock: string, course: ArrayBuffer}} parts `script`: the address of Pyodide's, which the page holds
 */
async function start({ folder, module, script, wasm, library, lock, course }) {
  // the page has compiled it already, once for all workers
  WebAssembly.instantiateStreaming = async (_, imports) => ({
    module: wasm,
    instance: await WebAssembly.instantiate(wasm, imports),
  });
  const real = scope.fetch;
  scope.fetch = async (address, options) => {
    const name = String(address instanceof Request ? address.url : address)
      .split("/")
      .at(-1);
    if (name === "python_stdlib.zip") return new Response(library);
    if (name === "pyodide.asm.wasm") return new Response();
    return real(address, options);
  };
  python = await loadPyodide({
    indexURL: folder,
    createPyodideModule: (await import(script)).default,
    lockFileContents: lock,
    stdout: print,
    stderr: print,
    env: { PYTHONHASHSEED: "0", HOME: "/home/pyodide" },
  });
  scope.fetch = real;
  // a program that somebody pasted must leave nothing behind for the next visit
  for (let at = /** @type {any} */ (scope); at; at = Object.getPrototypeOf(at)) {
    delete at.caches;
    delete at.indexedDB;
  }
  python.unpackArchive(course, "zip", { extractDir: "/course" });
  python.runPython(`import sys; sys.path.insert(0, "/course"); import ${module}`);
  answer = python.runPython(`${module}.answer`);
}

/**
 * Puts the files where Python finds them; their bytes stay in the files until they are read.
 *
 * @param {File[]} files
 */
function mount(files) {
  const { FS } = python;
  if (!FS.analyzePath("/job").exists) FS.mkdir("/job");
  FS.mount(FS.filesystems.WORKERFS, { files }, "/job");
  FS.chdir("/job");
}

function unmount() {
  const { FS } = python;
  FS.chdir("/home/pyodide");
  FS.unmount("/job");
}

/** @typedef {{kind: "start", parts: any} | {kind: "ask", name: string, request: string, files?: File[]}} Told */

/** @param {{data: Told}} message */
scope.onmessage = async ({ data }) => {
  try {
    if (data.kind === "start") {
      await start(data.parts);
      scope.postMessage({ kind: "ready" });
      return;
    }
    printed = 0;
    if (data.files?.length) mount(data.files);
    try {
      scope.postMessage({ kind: "answer", answer: answer(data.name, data.request) });
    } finally {
      if (data.files?.length) unmount();
    }
  } catch (error) {
    const words = String(error instanceof Error ? error.message : error).trim();
    scope.postMessage({ kind: "failed", text: cut(words.split("\n").at(-1) ?? words, 400) });
  }
};
