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
/** @typedef {{pyodide: string, build: string, sizes: Record<string, number>}} Places */

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
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function loaded(address, more) {
  const cache = await keptFiles();
  const kept = await cache?.match(address);
  const response = kept ?? (await fetch(address));
  if (!response.ok || !response.body) throw new Error(`${address} answered ${response.status}`);
  if (!kept) cache?.put(address, response.clone()).catch(() => {}); // the disk may be full; the page works without
  /** @type {Uint8Array[]} */
  const parts = [];
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    more(value.length);
  }
  return new Uint8Array(await new Blob(/** @type {BlobPart[]} */ (parts)).arrayBuffer());
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
    const { pyodide, build, sizes } = this.places;
    const whole = Object.values(sizes).reduce((sum, size) => sum + size, 0);
    let come = 0;
    /** @param {string} address */
    const load = (address) =>
      loaded(new URL(address, location.href).href, (nbytes) => {
        come += nbytes;
        this.hooks.loading(Math.min(1, come / whole), come);
      });
    const [wasm, library, lock, course] = await Promise.all([
      load(`${pyodide}pyodide.asm.wasm`).then((bytes) => WebAssembly.compile(bytes)),
      load(`${pyodide}python_stdlib.zip`),
      load(`${pyodide}pyodide-lock.json`),
      load(`${build}course.zip`),
    ]);
    return {
      folder: new URL(pyodide, location.href).href,
      wasm,
      library: library.buffer,
      lock: new TextDecoder().decode(lock),
      course: course.buffer,
    };
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
