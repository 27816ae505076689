// The entry of a widget that is never shown, as anywidget calls it: the kernel says when a cell begins and ends.

import { Follower } from "./follow.js";

/** @typedef {(said: {running: boolean}) => void} Hear */

/**
 * Follows cells from now on, first the one that imports the package; returns what ends it.
 *
 * @param {{model: {
 *   get(name: "running"): boolean,
 *   on(name: string, hear: Hear): void,
 *   off(name: string, hear: Hear): void,
 * }}} context
 */
function initialize({ model }) {
  let follower = new Follower();
  const ended = () => follower.ended();
  if (!model.get("running")) ended();
  /** @type {Hear} */
  const hear = ({ running }) => {
    if (!running) return ended();
    follower.stop();
    follower = new Follower();
  };
  model.on("change:running", ended);
  model.on("msg:custom", hear);
  return () => {
    follower.stop();
    model.off("change:running", ended);
    model.off("msg:custom", hear);
  };
}

export default { initialize };
