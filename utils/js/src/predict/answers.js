// Where answers are kept: in the notebook's metadata where the page lets us reach it (JupyterLab, Notebook 7),
// else in the browser's storage, else in the page's memory. All cards of a page hear of each change.

/** @typedef {import("./types.js").Model} Model */
/** @typedef {import("./types.js").Said} Said */
/** @typedef {Record<string, Said>} Kept answers by the question's name */

const KEY = "allranks_predictions";
const EVENT = "allranks-predictions";

/** @type {Record<string, Kept>} */
const memory = {};

/**
 * @param {any} notebook JupyterLab's model of a notebook
 */
function inMetadata(notebook) {
  return {
    /** @returns {Kept} */
    read: () => notebook.getMetadata(KEY) ?? {},
    /** @param {Kept} kept */
    write: (kept) => (Object.keys(kept).length ? notebook.setMetadata(KEY, kept) : notebook.deleteMetadata(KEY)),
  };
}

/** @param {string} scope */
function inBrowser(scope) {
  return {
    /** @returns {Kept} */
    read: () => {
      try {
        return JSON.parse(localStorage.getItem(`${KEY}:${scope}`) ?? "{}");
      } catch {
        return memory[scope] ?? {};
      }
    },
    /** @param {Kept} kept */
    write: (kept) => {
      memory[scope] = kept;
      try {
        localStorage.setItem(`${KEY}:${scope}`, JSON.stringify(kept));
      } catch {
        // storage is full or forbidden: memory has it
      }
    },
  };
}

export class Answers {
  /** @param {Model} model */
  constructor(model) {
    const context = model.widget_manager?.context;
    const notebook = context?.model;
    this.scope = context?.path ?? globalThis.location?.pathname ?? "";
    this.shelf = notebook?.setMetadata ? inMetadata(notebook) : inBrowser(this.scope);
  }

  /**
   * @param {string} name
   * @returns {Said | undefined}
   */
  get(name) {
    return this.shelf.read()[name];
  }

  /**
   * @param {string} name
   * @param {Said} said empty: takes the answer back
   */
  put(name, said) {
    const { [name]: before, ...others } = this.shelf.read();
    if (JSON.stringify(before ?? {}) === JSON.stringify(said)) return;
    this.shelf.write(Object.keys(said).length ? { ...others, [name]: said } : others);
    this.tell();
  }

  /** @param {string[]} names */
  forget(names) {
    const kept = { ...this.shelf.read() };
    for (const name of names) delete kept[name];
    this.shelf.write(kept);
    this.tell();
  }

  /** Lets all cards of this page look again. */
  tell() {
    document.dispatchEvent(new CustomEvent(EVENT, { detail: this.scope }));
  }

  /**
   * @param {() => void} act
   * @returns {() => void} stops it
   */
  listen(act) {
    /** @param {Event} event */
    const hear = (event) => {
      if (/** @type {CustomEvent} */ (event).detail === this.scope) act();
    };
    document.addEventListener(EVENT, hear);
    return () => document.removeEventListener(EVENT, hear);
  }
}
