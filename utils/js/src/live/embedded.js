/** Whether somebody's page shows this one; then it says how high it is, and leaves its frame's links to a new tab. */
export function embedded() {
  if (!new URLSearchParams(location.search).has("embed")) return false;
  document.body.dataset.embedded = "";
  if (window.parent === window) return true;
  const page = /** @type {HTMLElement} */ (document.querySelector(".page"));
  // only a number is told, so everybody may hear it
  new ResizeObserver(() => window.parent.postMessage({ allranksHeight: page.offsetHeight + 2 }, "*")).observe(page);
  for (const link of document.querySelectorAll('a[href]:not([href^="#"])')) link.setAttribute("target", "_blank");
  return true;
}
