// Quantities as words.

/**
 * With two or three digits that count: 1.5, 24, 447.
 *
 * @param {number} value
 * @param {boolean} exact whether a whole number has no ".0"
 */
export function digits(value, exact = false) {
  if (value >= 1000) return Math.round(value).toLocaleString("en");
  const text = value >= 99.95 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(exact ? 1 : 0) : value.toFixed(1);
  return exact ? text.replace(/\.0$/, "") : text;
}

/**
 * @param {number} value
 * @param {string[]} names rising by a factor of 1000
 * @param {boolean} exact
 */
function withUnit(value, names, exact) {
  let [scaled, place] = [value, 0];
  while (scaled >= 999.5 && place < names.length - 1) {
    scaled /= 1000;
    place++;
  }
  return `${digits(scaled, exact)} ${names[place]}`;
}

/** @param {number} n */
export const bytes = (n, exact = false) => withUnit(n, ["B", "kB", "MB", "GB", "TB"], exact || n < 999.5);

/** With the largest unit of 1024 that fits: 32 KiB, 1.5 MiB. @param {number} n whole bytes, less than 4 GiB */
export function binary(n) {
  const place = Math.floor((31 - Math.clz32(n)) / 10);
  return `${n / 1024 ** place} ${["B", "KiB", "MiB", "GiB"][place]}`;
}

/** @param {number} s */
export function seconds(s, exact = true) {
  if (s >= 0.9995) return `${digits(s, exact)} s`;
  return withUnit(s * 1e6, ["µs", "ms"], exact);
}

/** @param {number} share */
export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
