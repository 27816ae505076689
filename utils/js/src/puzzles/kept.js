// What the browser keeps of the puzzles, and sends to nobody: which are solved, which was open last, the reader's code.

const KEY = "allranks-puzzles";

/** @typedef {{last: string, solved: string[], code: Record<string, string>}} Kept */

/**
 * @param {string[]} puzzles there are; what is kept of others is left out
 * @returns {Kept}
 */
export function read(puzzles) {
  /** @type {Partial<Kept>} */
  let found = {};
  try {
    found = JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {};
  } catch {
    // a private window, or somebody wrote there: the puzzles begin anew
  }
  const texts = Object.entries(found.code ?? {}).filter(([, text]) => typeof text === "string");
  return {
    last: puzzles.includes(found.last ?? "") ? String(found.last) : puzzles[0],
    solved: puzzles.filter((puzzle) => Array.isArray(found.solved) && found.solved.includes(puzzle)),
    code: Object.fromEntries(texts),
  };
}

/** @param {Kept} kept */
export function write(kept) {
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // a private window, or the room is used up: it is kept until the page is closed
  }
}
