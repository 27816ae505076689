/**
 * The text, or its beginning with a mark where it is cut.
 *
 * @param {string} text
 * @param {number} most characters
 */
export function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most)} …`;
}

/** @param {number} nbytes in words, in units of 10^6 */
export function megabytes(nbytes) {
  return `${(nbytes / 1e6).toFixed(1)} MB`;
}

/**
 * The words of a command line: what holds a space is quoted.
 *
 * @param {string[]} words
 */
export function commandLine(words) {
  return words.map((word) => (/^[\w./:=+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(" ");
}
