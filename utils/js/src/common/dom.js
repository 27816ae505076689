// Elements made in one call.

/**
 * An HTML element. An attribute whose name begins with "on" is a listener; one that is false is left out.
 *
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, any>} attributes
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== false) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/**
 * An SVG element, in `parent` where one is given.
 *
 * @template {keyof SVGElementTagNameMap} Name
 * @param {Name} name
 * @param {Record<string, string | number>} attributes
 * @param {Element | null} parent
 * @param {string | null} text
 * @returns {SVGElementTagNameMap[Name]}
 */
export function svg(name, attributes = {}, parent = null, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== null) element.textContent = text;
  parent?.append(element);
  return element;
}

/**
 * The value of `transform` that moves an element to a point.
 *
 * @param {{x: number, y: number}} point
 */
export function moveTo({ x, y }) {
  return `translate(${x.toFixed(1)} ${y.toFixed(1)})`;
}

/**
 * A canvas's drawing context.
 *
 * @param {HTMLCanvasElement} canvas
 */
export function penOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

/**
 * Calls `follow` with the pointer's place now, and on each move until it is lifted.
 *
 * @param {Element} element
 * @param {PointerEvent} event the press
 * @param {(at: PointerEvent) => void} follow
 */
export function followPointer(element, event, follow) {
  const moved = /** @type {EventListener} */ (follow);
  const stop = () => {
    element.removeEventListener("pointermove", moved);
    for (const end of ["pointerup", "pointercancel"]) element.removeEventListener(end, stop);
  };
  element.setPointerCapture(event.pointerId);
  element.addEventListener("pointermove", moved);
  for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, stop);
  follow(event);
}
