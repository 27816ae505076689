import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Answers } from "../../src/predict/answers.js";

/** What the tests need of a browser. */
beforeEach(() => {
  Object.assign(globalThis, {
    document: new EventTarget(),
    location: { pathname: "/chapter.html" },
    localStorage: storage(),
  });
});

function storage() {
  /** @type {Map<string, string>} */
  const held = new Map();
  return {
    getItem: (/** @type {string} */ key) => held.get(key) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => void held.set(key, value),
  };
}

/**
 * @param {string} path
 * @param {Record<string, any>} metadata
 */
function inNotebook(path, metadata) {
  const model = {
    getMetadata: (/** @type {string} */ key) => metadata[key],
    setMetadata: (/** @type {string} */ key, /** @type {any} */ value) => {
      metadata[key] = value;
    },
    deleteMetadata: (/** @type {string} */ key) => delete metadata[key],
  };
  return /** @type {any} */ ({ widget_manager: { context: { path, model } } });
}

test("in a notebook an answer is kept in the metadata, and taking it back leaves nothing", () => {
  /** @type {Record<string, any>} */
  const metadata = {};
  const answers = new Answers(inNotebook("a.ipynb", metadata));
  answers.put("sum", { value: 10 });
  assert.deepEqual(metadata, { allranks_predictions: { sum: { value: 10 } } });
  assert.deepEqual(new Answers(inNotebook("a.ipynb", metadata)).get("sum"), { value: 10 });
  answers.put("sum", {});
  assert.deepEqual(metadata, {});
});

test("on a page it is kept in the browser's storage, for this page only", () => {
  const page = /** @type {any} */ ({});
  new Answers(page).put("sum", { declined: true });
  assert.deepEqual(new Answers(page).get("sum"), { declined: true });
  Object.assign(globalThis, { location: { pathname: "/other.html" } });
  assert.equal(new Answers(page).get("sum"), undefined);
});

test("without storage it lives as long as the page", () => {
  const refuse = () => {
    throw new Error("forbidden");
  };
  Object.assign(globalThis, { localStorage: { getItem: refuse, setItem: refuse }, location: { pathname: "/none" } });
  const page = /** @type {any} */ ({});
  new Answers(page).put("sum", { value: 0 });
  assert.deepEqual(new Answers(page).get("sum"), { value: 0 });
});

test("all cards of the same page hear of a change, and forgetting names them all at once", () => {
  const page = /** @type {any} */ ({});
  const [one, other, elsewhere] = [new Answers(page), new Answers(page), new Answers(inNotebook("b.ipynb", {}))];
  let heard = 0;
  const stop = other.listen(() => heard++);
  elsewhere.listen(() => assert.fail("another notebook's answer"));
  one.put("a", { value: 1 });
  one.put("a", { value: 1 });
  one.put("b", { value: 2 });
  one.forget(["a", "b"]);
  assert.equal(heard, 3);
  stop();
  one.put("a", { value: 3 });
  assert.equal(heard, 3);
  assert.equal(other.get("b"), undefined);
});
