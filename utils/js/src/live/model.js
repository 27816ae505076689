// The course's explorer of one training run: memory, time and price of each way to split it. No Python.

import { data, part } from "./parts.js";
import { shown } from "./play.js";

const places = /** @type {import("./python.js").Places} */ (data("places"));
const stage = part("stage");
stage.replaceChildren();
await shown(stage, new URL(`${places.build}explore.js`, location.href).href, data("model"));
document.body.dataset.ready = "";
