// Python in the reader's browser: loads its parts once, asks it one question at a time, and stops it.

import { cut } from "./cut.js";

/**
 * @typedef {object} Answer
 * @property {string} [html] the result; Python has escaped what came from the reader
 * @property {string} [text]
 * @property {{text: string, line: number | null}} [fault]
 * @property {{axis: "step" | "time", animation: string, words: string}} [player]
 * @property {string} [unplayed] why there is no player
 * @property {string} [board]
 * @property {boolean} [restart] whether Python must start anew
 */

/** What the build has written into the page: where the files are, and how large. */
/**
 * @typedef {object} Places
 * @property {string} pyodide a folder
 * @property {string} build a folder
 * @property {string} module that answers
 * @property {string} lock what Pyodide's lock file says of itself
 * @property {Record<Part, string>} files
 * @property {Record<Part, number>} sizes in bytes
 */
/** @typedef {"wasm" | "script" | "library" | "course"} Part the first two are gzipped, whatever a server calls them */

/** The reader stopped it, or the time was over. */
export class Stopped extends Error {}

/** Python ended in a way that it can't go on; the next question starts it anew. */
export class Broken extends Error {}

/** The cache of sw.js; undefined where the browser keeps none, as in a private window. */
async function keptFiles() {
  try {
    return await caches.open("allranks-live");
  } catch {
    return undefined;
  }
}

/**
 * A file of this version, from the browser's cache if it is there.
 *
 * @param {string} address
 * @param {(nbytes: number) => void} more called with the bytes that came
 * @returns {Promise<ReadableStream<Uint8Array<ArrayBuffer>>>}
 */
async function loaded(address, more) {
  const cache = await keptFiles();
  const kept = await cache?.match(address);
  const response = kept ?? (await fetch(address));
  if (!response.ok || !response.body) throw new Error(`${address} answered ${response.status}`);
  if (!kept) cache?.put(address, response.clone()).catch(() => {}); // the disk may be full; the page works without
  const counted = new TransformStream({
    transform(part, to) {
      more(part.length);
      to.enqueue(part);
    },
  });
  return response.body.pipeThrough(counted);
}

/**
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} gzipped
 * @param {string} type
 */
const unzipped = (gzipped, type) =>
  new Response(gzipped.pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": type } });

/**
 * WebAssembly, compiled while its bytes come, whatever type the server gives them.
 *
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} gzipped
 */
const compiled = (gzipped) => WebAssembly.compileStreaming(unzipped(gzipped, "application/wasm"));

/** The address of a script that this page holds. @param {Response} script */
const held = async (script) => URL.createObjectURL(await script.blob());

export class Python {
  /** @type {Worker | undefined} */
  #worker;
  /** @type {Promise<void> | undefined} */
  #ready;
  /** @type {Promise<{worker: string} & Record<string, unknown>> | undefined} */
  #parts;
  /** @type {((reason: Error) => void) | undefined} */
  #giveUp;

  /**
   * @param {Places} places
   * @param {{loading: (share: number, nbytes: number) => void, printed: (text: string) => void}} hooks
   */
  constructor(places, hooks) {
    this.places = places;
    this.hooks = hooks;
  }

  /** Loads what is missing and starts Python; resolves when it can be asked. */
  start() {
    this.#ready ??= this.#begin().catch((error) => {
      this.#forget();
      throw error instanceof Stopped || error instanceof Broken ? error : new Broken(error.message);
    });
    return this.#ready;
  }

  async #begin() {
    this.#parts ??= this.#load().catch((error) => {
      this.#parts = undefined;
      throw error;
    });
    const { worker, ...parts } = await this.#parts;
    this.#worker = new Worker(worker, { type: "module" });
    await this.#said("ready", () => this.#worker?.postMessage({ kind: "start", parts }));
  }

  async #load() {
    const { pyodide, build, module, lock, files, sizes } = this.places;
    const whole = Object.values(sizes).reduce((sum, size) => sum + size, 0);
    let come = 0;
    /** @param {Part} part */
    const load = (part) =>
      loaded(new URL(files[part], location.href).href, (nbytes) => {
        come += nbytes;
        this.hooks.loading(Math.min(1, come / whole), come);
      });
    /** @param {Part} part */
    const bytes = async (part) => new Response(await load(part)).arrayBuffer();
    // a worker of a Blob has the page's Content-Security-Policy, one of an address has none; and where the page keeps
    // all its parts, it starts anew without a network, also in a browser whose service worker serves no such worker
    const text = loaded(new URL(`${build}worker.js`, location.href).href, () => {});
    const [worker, wasm, script, library, course] = await Promise.all([
      text.then((found) => held(new Response(found, { headers: { "Content-Type": "text/javascript" } }))),
      load("wasm").then(compiled),
      load("script").then((gzipped) => held(unzipped(gzipped, "text/javascript"))),
      bytes("library"),
      bytes("course"),
    ]);
    return { worker, folder: new URL(pyodide, location.href).href, module, wasm, script, library, lock, course };
  }

  /**
   * What the worker says next, of this kind.
   *
   * @param {string} kind
   * @param {() => void} begin
   * @returns {Promise<any>}
   */
  #said(kind, begin) {
    const worker = /** @type {Worker} */ (this.#worker);
    return new Promise((done, fail) => {
      this.#giveUp = fail;
      worker.onmessage = ({ data }) => {
        if (data.kind === "printed") this.hooks.printed(data.text);
        if (data.kind === kind) done(data);
        if (data.kind === "failed") {
          this.#end();
          fail(new Broken(data.text));
        }
      };
      worker.onerror = (event) => {
        event.preventDefault();
        this.#end();
        fail(new Broken(cut(event.message || "the worker could not be started", 400)));
      };
      begin();
    });
  }

  /**
   * The answer to one question. Throws Stopped or Broken; Python starts anew with the next question.
   *
   * @param {string} name of a function of answers.py
   * @param {object} request
   * @param {{limit_s: number, files?: File[]}} options
   * @returns {Promise<Answer>}
   */
  async ask(name, request, { limit_s, files }) {
    await this.start();
    const late = setTimeout(
      () => this.stop(`It did not end within ${limit_s} s, and was stopped; does its loop end?`),
      1000 * limit_s,
    );
    try {
      const { answer } = await this.#said("answer", () =>
        this.#worker?.postMessage({ kind: "ask", name, request: JSON.stringify(request), files }),
      );
      const said = JSON.parse(answer);
      if (said.restart) this.#end(); // a browser gives no memory back while the worker lives
      return said;
    } finally {
      clearTimeout(late);
    }
  }

  /** @param {string} why a sentence for the reader */
  stop(why) {
    this.#end();
    this.#giveUp?.(new Stopped(why));
  }

  #end() {
    this.#worker?.terminate();
    this.#forget();
  }

  #forget() {
    this.#worker = undefined;
    this.#ready = undefined;
  }
}
