// Python in the reader's browser: loads its parts once, asks it one question at a time, and stops it.

import { cut } from "./cut.js";

/**
 * @typedef {object} Answer
 * @property {string} [html] the result; Python has escaped what came from the reader
 * @property {string} [text]
 * @property {{text: string, line: number | null}} [fault]
 * @property {{state: Record<string, unknown>, animation: string, words: string}} [player]
 * @property {string} [unplayed] why there is no player
 * @property {string} [board]
 * @property {boolean} [restart] whether Python must start anew
 */

/** What the build has written into the page: where the files are, and how large. */
/** @typedef {{pyodide: string, build: string, module: string, files: Record<Part, string>, sizes: Record<string, number>}} Places */
/** @typedef {"wasm" | "library" | "lock" | "course"} Part `wasm` is gzipped, by whatever name a server calls it */

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
 * WebAssembly, compiled while its bytes come. Firefox and Chromium compile a whole Response so; its type is ours to say.
 *
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} gzipped
 */
function compiled(gzipped) {
  const headers = { "Content-Type": "application/wasm" };
  return WebAssembly.compileStreaming(new Response(gzipped.pipeThrough(new DecompressionStream("gzip")), { headers }));
}

export class Python {
  /** @type {Worker | undefined} */
  #worker;
  /** @type {Promise<void> | undefined} */
  #ready;
  /** @type {Promise<object> | undefined} */
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
    const parts = await this.#parts;
    const script = new URL(`${this.places.build}worker.js`, location.href).href;
    // a worker of a Blob has the page's Content-Security-Policy; one of an address has none
    const blob = URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: "text/javascript" }));
    this.#worker = new Worker(blob, { type: "module" });
    await this.#said("ready", () => this.#worker?.postMessage({ kind: "start", parts }));
    URL.revokeObjectURL(blob);
  }

  async #load() {
    const { pyodide, files, sizes } = this.places;
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
    const [wasm, library, lock, course] = await Promise.all([
      load("wasm").then(compiled),
      bytes("library"),
      bytes("lock"),
      bytes("course"),
    ]);
    const folder = new URL(pyodide, location.href).href;
    return { folder, module: this.places.module, wasm, library, lock: new TextDecoder().decode(lock), course };
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
