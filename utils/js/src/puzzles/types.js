// What Python says of the puzzles (allranks.exercises.puzzles), with its types.

/**
 * @typedef {object} Puzzle
 * @property {string} id
 * @property {number} number
 * @property {string} title
 * @property {string} short
 * @property {string} task
 * @property {string} signature
 * @property {string} starter
 * @property {string} hint
 * @property {{code: string, text: string}[]} rules
 * @property {string[]} names
 * @property {number} ranks
 */

/**
 * @typedef {object} Move
 * @property {number} src
 * @property {number} dst
 * @property {number[]} chunks
 * @property {number[][]} holds
 * @property {"add" | "store" | "other" | "lost"} how
 * @property {number | null} line
 * @property {number} event
 * @property {boolean} wrong
 */

/** @typedef {number[][][]} Cells by rank and chunk the ranks whose numbers it holds */

/**
 * @typedef {object} Drawn
 * @property {number} ranks
 * @property {number} chunks
 * @property {number[]} sizes numbers in each chunk
 * @property {{before: Cells, moves: Move[]}[]} steps
 * @property {Cells} after
 */

/**
 * @typedef {object} Wait
 * @property {number} rank
 * @property {string} call
 * @property {number | null} line
 * @property {number[]} for
 * @property {"waiting" | "returned" | "stopped"} doing
 */

/** @typedef {{rank: number, goes_on: number[], messages: [number, number][], ends: boolean, text: string}} First */

/** @typedef {{step: number, event: number, rank: number, peer: number, chunks: number[], want: number[]}} FirstWrong */

/**
 * @typedef {object} Verdict
 * @property {string} puzzle
 * @property {boolean} right
 * @property {string | null} code
 * @property {string} headline
 * @property {number | null} line
 * @property {string} note
 * @property {{code: string, text: string, kept: boolean | null}[]} rules
 * @property {number} ranks
 * @property {string} where
 * @property {{rank: number, text: string}[]} prints
 * @property {Drawn | null} drawn
 * @property {FirstWrong | null} first_wrong
 * @property {Wait[]} waits
 * @property {number[] | null} circle
 * @property {First[] | null} receive_first
 * @property {number[][]} reached
 * @property {number} lines
 * @property {Record<string, number> | null} lead
 */

export {};
