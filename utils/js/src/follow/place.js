// Where a window must go, so that what is new is seen with its beginning first.

const MARGIN_PX = 8;

/**
 * How many px to scroll down (up, if negative) so that a box is in the window: whole if it fits, else from its top on.
 * 0 where it is.
 *
 * @param {number} top of the box, from the top of the window
 * @param {number} height of the box
 * @param {number} window height of the window
 */
export function distanceTo(top, height, window) {
  const [above, below] = [top - MARGIN_PX, top + height + MARGIN_PX - window];
  if (above < 0 || above < below) return above < 0 || below > 0 ? above : 0;
  return Math.max(0, below);
}
