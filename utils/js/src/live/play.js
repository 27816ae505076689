// The course's player in a page without a kernel.

/**
 * Shows a player; returns what takes it away again.
 *
 * @param {HTMLElement} stage where it is put
 * @param {string} address of the player's bundle
 * @param {Record<string, unknown>} traits those of the widget that differ from their usual values
 * @returns {Promise<() => void>}
 */
export async function shown(stage, address, traits) {
  /** @type {Record<string, unknown>} */
  const state = { speed: 1, arrangement: "auto", axis: "step", quiz: false, titles: [], step: 0, playing: false };
  Object.assign(state, { answers: [], compared: new Uint8Array() }, traits);
  /** @type {Record<string, (() => void)[]>} */
  const hooks = {};
  const model = {
    /** @param {string} key */
    get: (key) => state[key],
    /** @param {string} key @param {unknown} value */
    set: (key, value) => {
      if (state[key] === value) return;
      state[key] = value;
      for (const act of hooks[`change:${key}`] ?? []) act();
    },
    /** @param {string} name @param {() => void} act */
    on: (name, act) => {
      hooks[name] ??= [];
      hooks[name].push(act);
    },
    /** @param {string} name @param {() => void} act */
    off: (name, act) => {
      hooks[name] = (hooks[name] ?? []).filter((other) => other !== act);
    },
    save_changes: () => {},
  };
  const { default: widget } = await import(address);
  const el = stage.appendChild(document.createElement("div"));
  return widget.render({ model, el });
}
