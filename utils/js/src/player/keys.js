// The player's keys.

/**
 * Calls the actions by keys. Keys in menus, in the table and together with Ctrl, Alt or Cmd stay what they are.
 *
 * @param {HTMLElement} root
 * @param {import("./controls.js").Actions} actions
 */
export function onKeys(root, actions) {
  root.addEventListener("keydown", (e) => {
    const on = /** @type {HTMLElement} */ (e.target);
    const ownKeys = on.matches("select, input") || on.closest(".ar-scroll");
    /** @type {Record<string, () => void>} */
    const acts = { ArrowRight: actions.next, ArrowLeft: actions.back, Home: actions.first, End: actions.last };
    // a slider has these too
    if (on.matches("[role=slider]")) Object.assign(acts, { ArrowUp: actions.next, ArrowDown: actions.back });
    // space presses a button
    if (!on.matches("button")) acts[" "] = actions.toggle;
    if (ownKeys || e.ctrlKey || e.metaKey || e.altKey || !acts[e.key]) return;
    e.preventDefault();
    e.stopPropagation();
    acts[e.key]();
  });
}
