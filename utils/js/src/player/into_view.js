// A player that the reader has just run comes into view once: Jupyter shows the cell after it.

/**
 * Brings the player into the window, where the kernel says that its cell has just run and the reader is still there;
 * not when a saved notebook is opened, nor when all cells run and the reader is further down.
 *
 * @param {import("./data.js").Model} model
 * @param {HTMLElement} root
 */
export function comeIntoView(model, root) {
  if (!model.get("fresh")) return;
  model.set("fresh", false);
  model.save_changes();
  // Jupyter scrolls to the next cell first, and the output grows
  window.setTimeout(() => {
    if (readerIsAt(root)) root.scrollIntoView({ block: "nearest" });
  }, 120);
}

/**
 * Whether the cell with the player or the one after it is the active one; true where there are no such cells.
 *
 * @param {HTMLElement} root
 */
function readerIsAt(root) {
  const cell = root.closest(".jp-Cell");
  if (!cell) return true;
  const isActive = (/** @type {Element | null | undefined} */ other) =>
    Boolean(other?.classList.contains("jp-mod-active"));
  return isActive(cell) || isActive(cell.nextElementSibling);
}
