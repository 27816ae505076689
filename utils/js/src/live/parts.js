/**
 * The page's element with this name.
 *
 * @template {HTMLElement} Kind
 * @param {string} name
 * @param {new () => Kind} [_kind]
 * @returns {Kind}
 */
export function part(name, _kind) {
  return /** @type {Kind} */ (/** @type {unknown} */ (document.querySelector(`[data-part="${name}"]`)));
}

/** @param {string} text base64 */
export const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** @param {string} name of data that the build has written into the page */
export function data(name) {
  return JSON.parse(document.getElementById(name)?.textContent ?? "null");
}
