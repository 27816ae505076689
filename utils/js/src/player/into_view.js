// A player that the reader has just run comes into view once: Jupyter shows the cell after it.

// Jupyter scrolls to the next cell first, and the output grows
const BEGIN_MS = 120;
// cells above may be laid out late and push the player away
const END_MS = 1500;
const GESTURES = ["wheel", "touchmove", "keydown", "pointerdown"];

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
  const show = () => {
    if (readerIsAt(root)) root.scrollIntoView({ block: "nearest" });
  };
  window.setTimeout(() => {
    show();
    keepInView(root, show);
  }, BEGIN_MS);
}

/**
 * Shows the player again when the page moves by itself, for a moment; not against the reader.
 *
 * @param {HTMLElement} root
 * @param {() => void} show
 */
function keepInView(root, show) {
  const end = new AbortController();
  const options = { capture: true, passive: true, signal: end.signal };
  const watcher = new ResizeObserver(show);
  watcher.observe(root.closest(".jp-Notebook")?.querySelector(".jp-WindowedPanel-inner") ?? root);
  window.addEventListener("scroll", show, options);
  const stop = () => {
    watcher.disconnect();
    end.abort();
  };
  for (const gesture of GESTURES) window.addEventListener(gesture, stop, options);
  window.setTimeout(stop, END_MS);
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
