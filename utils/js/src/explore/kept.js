// What a reader has opened and chosen: the kernel keeps it beside the chapters; on a page without a kernel, the browser
// does.

/** @typedef {import("./frame.js").Model} Model */
/** @typedef {{opened: number, chosen: Record<string, Record<string, any>>}} State */

const KEY = "allranks_my_model";

/** @returns {State} */
function stored() {
  try {
    return { opened: 0, chosen: {}, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return { opened: 0, chosen: {} };
  }
}

/**
 * Says that a reader is here, and brings back what this reader chose in this widget.
 *
 * @param {Model} model
 * @param {string} id of the widget
 */
export function welcome(model, id) {
  if (model.widget_manager) {
    model.set("has_reader", true);
    model.save_changes();
    return;
  }
  const before = stored();
  const opened = Math.max(before.opened, model.get("kept").opened);
  model.set("kept", { ...before, opened });
  const names = Object.keys(model.get("values"));
  const mine = before.chosen[id];
  if (mine && names.every((name) => name in mine)) model.set("values", mine);
  store(model.get("kept"));
}

/**
 * Keeps what was chosen, where no kernel does.
 *
 * @param {Model} model
 * @param {string} id
 * @param {Record<string, any>} values
 */
export function keep(model, id, values) {
  if (model.widget_manager) return;
  const now = stored();
  model.set("kept", {
    opened: Math.max(now.opened, model.get("kept").opened),
    chosen: { ...now.chosen, [id]: values },
  });
  store(model.get("kept"));
}

/** @param {State} state */
function store(state) {
  try {
    localStorage.setItem(KEY, JSON.stringify(state));
  } catch {
    // storage is full or forbidden: the page's own state has it
  }
}
