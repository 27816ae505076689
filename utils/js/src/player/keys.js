// The player's keys.

/**
 * Calls the actions by keys. Keys in menus, in the table and together with Ctrl, Alt or Cmd stay what they are.
 *
 * @param {HTMLElement} root
 * @param {import("./controls.js").Actions} actions
 * @param {(rank: number | null) => void} stop sets a breakpoint on a rank, null: on the one whose message is shown
 */
export function onKeys(root, actions, stop) {
  root.addEventListener("keydown", (e) => {
    const on = /** @type {HTMLElement} */ (e.target);
    const ownKeys = on.matches("select, input") || on.closest(".ar-scroll");
    /** @type {Record<string, () => void>} */
    const acts = { ArrowRight: actions.next, ArrowLeft: actions.back, Home: actions.first, End: actions.last };
    // a slider has these too
    if (on.matches("[role=slider]")) Object.assign(acts, { ArrowUp: actions.next, ArrowDown: actions.back });
    acts.b = () => stop(null);
    for (let rank = 0; rank < 10; rank++) acts[rank] = () => stop(rank);
    // space presses a button
    if (!on.matches("button")) acts[" "] = actions.toggle;
    if (ownKeys || e.ctrlKey || e.metaKey || e.altKey || !acts[e.key]) return;
    e.preventDefault();
    e.stopPropagation();
    acts[e.key]();
  });
}
