// The share link: the puzzle and its code in the fragment, which a browser sends to nobody. The package reads it too.

const MOST_CODE = 64 * 1024;

/**
 * Bytes through one of the browser's streams.
 *
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {GenericTransformStream} through
 */
async function passed(bytes, through) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(through)).arrayBuffer());
}

/**
 * What stands behind the # of a link.
 *
 * @param {string} puzzle
 * @param {string} code
 */
export async function packed(puzzle, code) {
  const bytes = await passed(new TextEncoder().encode(code), new CompressionStream("deflate-raw"));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return `p=${puzzle}&c=${text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/**
 * The puzzle that a fragment names, its code if it has one, or a sentence that says what is wrong with it.
 *
 * @param {string} fragment with or without its #
 * @param {string[]} puzzles there are
 * @returns {Promise<{puzzle: string | null, code: string | null, fault: string}>}
 */
export async function unpacked(fragment, puzzles) {
  const said = new URLSearchParams(fragment.replace(/^#/, ""));
  const puzzle = said.get("p");
  const text = said.get("c");
  const wrong = (/** @type {string} */ why) => ({
    puzzle: puzzles.includes(puzzle ?? "") ? puzzle : null,
    code: null,
    fault: `This link is broken: ${why}. Here is the puzzle's own beginning.`,
  });
  if (!puzzle) return wrong("it names no puzzle");
  if (!puzzles.includes(puzzle)) return wrong(`there is no puzzle ${puzzle.slice(0, 40)}`);
  if (text === null) return { puzzle, code: null, fault: "" };
  try {
    const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    // a short link may hold a long text: it is read only as far as it may be long
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    /** @type {BlobPart[]} */
    const parts = [];
    for (let length = 0; ; ) {
      const { done, value } = await reader.read();
      if (done) break;
      length += value.length;
      if (length > MOST_CODE) {
        await reader.cancel();
        return wrong("its code is longer than 64 KiB");
      }
      parts.push(value);
    }
    const code = new TextDecoder("utf-8", { fatal: true }).decode(await new Blob(parts).arrayBuffer());
    return { puzzle, code, fault: "" };
  } catch {
    return wrong("its code can't be read");
  }
}
