// The widget's entry, as anywidget calls it.

import { html } from "../common/dom.js";
import { THEME } from "../common/theme.js";
import { attention } from "./attention.js";
import { bits } from "./bits.js";
import { compress } from "./compress.js";
import { crossover } from "./crossover.js";
import { data_parallel } from "./data_parallel.js";
import STYLES from "./explore.css";
import { flag } from "./flag.js";
import { flows } from "./flows.js";
import { fsdp } from "./fsdp.js";
import { interval } from "./interval.js";
import { late } from "./late.js";
import { my_model } from "./my_model.js";
import { overlap } from "./overlap.js";
import { path } from "./path.js";
import { pipeline } from "./pipeline.js";
import { placement } from "./placement.js";
import { protocols } from "./protocols.js";
import { recompute } from "./recompute.js";
import { recover } from "./recover.js";
import { router } from "./router.js";
import { search } from "./search.js";
import { sharded } from "./sharded.js";
import { skew } from "./skew.js";
import { splits } from "./splits.js";
import { tensor } from "./tensor.js";
import { uneven } from "./uneven.js";
import { writes } from "./writes.js";

/** @type {Record<string, (model: import("./frame.js").Model, el: HTMLElement) => import("./frame.js").Frame>} */
const KINDS = {
  attention,
  bits,
  compress,
  crossover,
  data_parallel,
  flag,
  flows,
  fsdp,
  interval,
  late,
  my_model,
  overlap,
  path,
  pipeline,
  placement,
  protocols,
  recompute,
  recover,
  router,
  search,
  sharded,
  skew,
  splits,
  tensor,
  uneven,
  writes,
};

/**
 * Shows an explorable in `el`; returns what takes it away again.
 *
 * @param {{model: import("./frame.js").Model, el: HTMLElement}} context
 */
function render({ model, el }) {
  el.replaceChildren(html("style", {}, THEME + STYLES));
  const frame = KINDS[model.get("kind")](model, el);
  return () => frame.remove();
}

export default { render };
