// Okabe and Ito's colours without black; from the ninth rank on the same ones in a lighter shade. Also in still.py.
export const COLOURS = [
  ...["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#8a8a8a"],
  ...["#6db3dc", "#f6cf7a", "#74cdb3", "#eb9a66", "#a9d9f4", "#e5bcd3", "#f8f3a6", "#c4c4c4"],
];

/**
 * @param {number} rank
 */
export function colourOf(rank) {
  return COLOURS[rank % COLOURS.length];
}

/**
 * What can be read on the colour of a rank.
 *
 * @param {number} rank
 */
export function inkOn(rank) {
  return rank % 8 ? "#000" : "#fff";
}
