// What Python sends to the browser, with its types. The traits are in widget.py, the animation in animation.py.

/** @typedef {"ring" | "line" | "tree" | "grid" | "all-to-all"} Layout */
/** @typedef {"step" | "time"} Axis */

/**
 * The widget's traits, which the kernel and the browser share.
 *
 * @typedef {object} ModelState
 * @property {DataView} code the bundle, zlib-compressed; the loader in widget.py unpacks it
 * @property {DataView | AnimationData} animation an AnimationData, or one as zlib-compressed JSON
 * @property {DataView} compared the one to show beside it; empty: none
 * @property {number} step how many whole steps are over
 * @property {boolean} playing
 * @property {number} speed 0.25, 0.5, 1, 2 or 4
 * @property {"auto" | Layout} arrangement the layout; ipywidgets has a trait `layout` of its own
 * @property {Axis} axis
 * @property {boolean} quiz whether to stop before each step and ask what happens next
 * @property {Answer[]} answers
 * @property {string[]} titles of the animations, where the reader gave some
 * @property {Bare} [bare] where a page shows the picture, the buttons and the timeline only
 * @property {boolean} pressed whether a button opened it, so that it is to be scrolled to
 */

/** @typedef {{stage: number, loop: boolean}} Bare the picture's height in pixels; whether it begins again at its end */

/** @typedef {{step: number, question: string, answer: string, right: boolean}} Answer */

/**
 * anywidget's model.
 *
 * @typedef {object} Model
 * @property {<Key extends keyof ModelState>(key: Key) => ModelState[Key]} get
 * @property {<Key extends keyof ModelState>(key: Key, value: ModelState[Key]) => void} set
 * @property {(event: string, act: () => void) => void} on
 * @property {(event: string, act: () => void) => void} off
 * @property {() => void} save_changes
 */

/**
 * `first`: its first line as transfers count; `shown`: as read.
 *
 * @typedef {{first: number, shown: number, lines: string[]}} Code
 */

/**
 * Indices of transfers and bars, and sentences on them.
 *
 * @typedef {{says: string[], transfers: number[], bars: number[]}} CriticalPath
 */

/**
 * An animation. Contributions are folded in Python; here they are numbers, looked up in `contributions`.
 *
 * @typedef {object} AnimationData
 * @property {string} title
 * @property {"schedule" | "wire" | "live" | "simulated"} kind
 * @property {number} ranks
 * @property {number} chunks 0: no chunks are known
 * @property {number} nbytes of the full vector; equal to `chunks` where the schedule was given no size
 * @property {number} steps
 * @property {Layout} layout the one that shows its links best
 * @property {number} columns of the grid
 * @property {string} clock
 * @property {boolean} timed whether transfers and bars have times
 * @property {boolean} inferred whether the steps follow from the order of the messages
 * @property {boolean} blocking whether a send waits until it is received
 * @property {number | null} root
 * @property {string | null} collective
 * @property {string | null} [pace] how long a step lasts, in words, where the times are those of a model
 * @property {CriticalPath | null} [path] what decided how long it took, where that is known
 * @property {Code | null} [code] the function that was run, where its text is known
 * @property {[number, string] | null} [wrong] the index of the first message that can't be right, and why
 * @property {number[]} [amiss] the messages of that step that can't be right; then what comes after it is not judged
 * @property {[string, number] | null} bound the least that the busiest rank must send: formula and bytes
 * @property {TransferColumns} transfers in order of step
 * @property {BarColumns} bars
 * @property {[number, number, number][]} before rank, chunk and the number of its contributions at the start
 * @property {[number, number, number][]} goal the same for what the collective promises at the end
 * @property {string[]} captions one for the start and one for each step
 * @property {number[][]} contributions runs of ranks: low, high, low, high, ...; a rank in two runs is counted twice
 */

/**
 * Messages, a table by column.
 *
 * @typedef {object} TransferColumns
 * @property {number[]} step
 * @property {number[]} src
 * @property {number[]} dst
 * @property {number[]} nbytes
 * @property {number[][]} chunks
 * @property {boolean[]} reduce whether the receiver adds
 * @property {boolean[]} delivered
 * @property {boolean[]} effect_known false: of live ranks nobody saw what the receiver did with it
 * @property {number[][]} carried for each chunk the number of the contributions that the message carries
 * @property {number[][]} after for each chunk the number of those that the receiver's cell holds afterwards
 * @property {(number | null)[]} line of the code that sent it
 * @property {(number | null)[]} start in microseconds
 * @property {(number | null)[]} end in microseconds
 */

/**
 * What else a rank does (computing, a wait, a whole collective), a table by column.
 *
 * @typedef {object} BarColumns
 * @property {number[]} rank
 * @property {string[]} op
 * @property {number[]} step
 * @property {(number | null)[]} end_step null: it never ended
 * @property {(number | null)[]} peer
 * @property {number[]} nbytes of a collective, what the rank puts in
 * @property {number[]} received_nbytes of a collective, what the rank gets
 * @property {(number | null)[]} line of the code
 * @property {(string | null)[]} label
 * @property {boolean[]} own whether a wait is for a call of the rank's own that is still under way
 * @property {(number | null)[]} start in microseconds
 * @property {(number | null)[]} end in microseconds
 */

/**
 * @typedef {object} Transfer
 * @property {number} index
 * @property {number} step
 * @property {number} src
 * @property {number} dst
 * @property {number} nbytes
 * @property {number[]} chunks
 * @property {boolean} reduce
 * @property {boolean} delivered
 * @property {number[]} carried
 * @property {number[]} after
 * @property {number | null} line
 * @property {number | null} start
 * @property {number | null} end
 * @property {"adds" | "stores" | "receives"} does what the receiver does with it
 * @property {"+" | "=" | "✗" | ""} sign the same in one character
 */

/**
 * @typedef {object} Bar
 * @property {number} rank
 * @property {string} op
 * @property {number} step
 * @property {number | null} endStep below `step`: it has no step, and lasts only in time
 * @property {number | null} peer
 * @property {number} put bytes into a collective
 * @property {number} got bytes out of it
 * @property {boolean} own
 * @property {number | null} line
 * @property {string | null} label
 * @property {number | null} start
 * @property {number | null} end
 */

/**
 * Zlib-compressed JSON as an object.
 *
 * @param {DataView} bytes
 * @returns {Promise<any>}
 */
export async function unpack(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/**
 * @param {TransferColumns} columns
 * @returns {Transfer[]}
 */
export function transfersOf(columns) {
  return columns.step.map((step, index) => {
    const reduce = columns.reduce[index];
    const delivered = columns.delivered[index];
    const does = reduce ? "adds" : columns.effect_known[index] ? "stores" : "receives";
    return {
      index,
      step,
      src: columns.src[index],
      dst: columns.dst[index],
      nbytes: columns.nbytes[index],
      chunks: columns.chunks[index],
      reduce,
      delivered,
      carried: columns.carried[index],
      after: columns.after[index],
      line: columns.line[index],
      start: columns.start[index],
      end: columns.end[index],
      does,
      sign: !delivered ? "✗" : does === "adds" ? "+" : does === "stores" ? "=" : "",
    };
  });
}

/**
 * @param {BarColumns} columns
 * @returns {Bar[]}
 */
export function barsOf(columns) {
  return columns.step.map((step, index) => ({
    rank: columns.rank[index],
    op: columns.op[index],
    step,
    endStep: columns.end_step[index],
    peer: columns.peer[index],
    put: columns.nbytes[index],
    got: columns.received_nbytes[index],
    own: columns.own[index],
    line: columns.line[index],
    label: columns.label[index],
    start: columns.start[index],
    end: columns.end[index],
  }));
}
