// What Python sends to the browser, with its types. The traits are in prediction.py.

/**
 * A question. What a kind does not need is left out.
 *
 * @typedef {object} Asked
 * @property {string} name of the question in the notebook, by which its answer is kept
 * @property {string} question its words; `code` stands between backticks
 * @property {string} title a short form for the card that reveals
 * @property {"choice" | "number" | "sketch"} kind
 * @property {string[]} choices
 * @property {string} unit
 * @property {number} low the left end of the slider, or the lower end of the sketch
 * @property {number} high
 * @property {boolean} log whether the slider is logarithmic
 * @property {boolean} whole whether the slider stops at whole numbers only
 * @property {(number | string)[]} x where the sketch has its points
 * @property {string} x_label
 */

/** @typedef {string | number | number[]} Value */

/**
 * What the reader said; empty: nothing yet.
 *
 * @typedef {{value?: Value, declined?: boolean}} Said
 */

/**
 * @typedef {object} Truth
 * @property {Value} truth
 * @property {string} it in words: "27.1 GB"
 * @property {string | number[] | number[][]} right the option; least and most of a number; both for each point
 * @property {string} why it was so, true whatever was said
 * @property {string} label of the true curve
 * @property {string} picture an SVG document instead of the choices; "": none
 * @property {Record<string, number>} marks other places on the slider
 */

/** @typedef {{answers: number, bars: [string, number][]}} ClassSaid by a workshop board; without one, empty */

/** @typedef {{asked: Asked, it: string}} Row of the chapter's last card; `it` is empty before the truth was shown */

/**
 * @typedef {object} ModelState
 * @property {"question" | "reveal" | "list"} view
 * @property {Asked} asked
 * @property {Said} said
 * @property {Truth} truth
 * @property {Row[]} rows
 * @property {ClassSaid | undefined} class_said missing on a page without a kernel
 */

/**
 * The widget's model: anywidget's, or a plain object on a page without a kernel.
 *
 * @typedef {object} Model
 * @property {<Key extends keyof ModelState>(key: Key) => ModelState[Key]} get
 * @property {<Key extends keyof ModelState>(key: Key, value: ModelState[Key]) => void} set
 * @property {() => void} save_changes
 * @property {(name: string, act: () => void) => void} on
 * @property {(name: string, act: () => void) => void} off
 * @property {any} [widget_manager] missing on a page without a kernel
 */

/**
 * One way to answer. `value` is null until there is something to lock in.
 *
 * @typedef {object} Field
 * @property {HTMLElement} root
 * @property {string} hint what to do first
 * @property {() => Value | null} value
 * @property {() => void} focus
 */

/** @param {Said | undefined} said */
export function answered(said) {
  return said !== undefined && (said.declined === true || said.value !== undefined);
}
