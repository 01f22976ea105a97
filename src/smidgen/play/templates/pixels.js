/** Pictures → a model's input, with the same bytes as Python's: reduced, cropped, resized, looked up. */

/** @typedef {{data: Uint8Array | Uint8ClampedArray, width: number, height: number, channels: number}} Picture */
/** @typedef {{rows: number, columns: number, colours: number, gray: boolean, bgr: boolean, stretch: boolean,
 *   table: Int8Array}} PixelRule `table` has the input's value for each of 256 pixels in each colour */

const PRECISION = 22; // bits of a weight
const SHORT_SIDE = 512; // larger photographs are reduced to this first

/** Return how much a pixel so far away counts. @type {Record<"triangle" | "cubic", (x: number) => number>} */
const CURVES = {
  triangle: (x) => Math.max(0, 1 - Math.abs(x)),
  cubic: (x) => {
    const a = -0.5, t = Math.abs(x);
    if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
  },
};
const SUPPORT = { triangle: 1, cubic: 2 };

/** Return, for each pixel of a line of `size`, the first one read from `from` ... `to` of a line of `whole`, and the
 * weights of those that follow, as integers of PRECISION bits.
 * @param {"triangle" | "cubic"} kind @param {number} whole @param {number} from @param {number} to @param {number} size
 * @returns {{first: Int32Array, weights: Int32Array, most: number}} */
function lineWeights(kind, whole, from, to, size) {
  const begin = Math.fround(from), scale = Math.fround(Math.fround(to) - begin) / size;
  const wide = Math.max(scale, 1), reach = SUPPORT[kind] * wide, most = Math.ceil(reach) * 2 + 1, curve = CURVES[kind];
  const first = new Int32Array(size), weights = new Int32Array(size * most), inverse = 1 / wide;
  for (let i = 0; i < size; i++) {
    const centre = begin + (i + 0.5) * scale;
    const low = Math.max(Math.trunc(centre - reach + 0.5), 0), high = Math.min(Math.trunc(centre + reach + 0.5), whole);
    const real = [];
    let sum = 0;
    for (let x = low; x < high; x++) {
      real.push(curve((x - centre + 0.5) * inverse));
      sum += real[real.length - 1];
    }
    first[i] = low;
    real.forEach((w, k) => {
      const one = (sum ? w / sum : w) * (1 << PRECISION);
      weights[i * most + k] = Math.trunc(one + (one < 0 ? -0.5 : 0.5));
    });
  }
  return { first, weights, most };
}

/** Return a picture with another width, or height, of a part of it.
 * @param {Picture} picture @param {"triangle" | "cubic"} kind @param {boolean} across whether lines are rows
 * @param {number} from @param {number} to @param {number} size @returns {Picture} */
function resizeAlong(picture, kind, across, from, to, size) {
  const { data, width, height, channels } = picture, whole = across ? width : height;
  if (size === whole && from === 0 && to === whole) return picture;
  const { first, weights, most } = lineWeights(kind, whole, from, to, size);
  const columns = across ? size : width, rows = across ? height : size;
  const made = new Uint8Array(rows * columns * channels), step = across ? channels : width * channels;
  let at = 0;
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const i = across ? x : y, begin = across ? y * width * channels : x * channels, count = Math.min(most, whole - first[i]);
      for (let c = 0; c < channels; c++) {
        let sum = 1 << (PRECISION - 1), read = begin + first[i] * step + c;
        for (let k = 0; k < count; k++, read += step) sum += data[read] * weights[i * most + k];
        const rounded = sum >> PRECISION;
        made[at++] = rounded < 0 ? 0 : rounded > 255 ? 255 : rounded;
      }
    }
  }
  return { data: made, width: columns, height: rows, channels };
}

/** Return a picture in red, green and blue, or gray, without what a canvas has for transparency.
 * @param {Picture} picture of 1, 3 or 4 channels @param {boolean} gray @returns {Picture} */
export function inColours({ data, width, height, channels }, gray) {
  const count = width * height, wanted = gray ? 1 : 3;
  if (channels === wanted || (channels === 1 && gray)) return { data, width, height, channels };
  const made = new Uint8Array(count * wanted);
  for (let i = 0; i < count; i++) {
    const r = data[i * channels], g = channels === 1 ? r : data[i * channels + 1], b = channels === 1 ? r : data[i * channels + 2];
    if (gray) made[i] = (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16;
    else made.set([r, g, b], 3 * i);
  }
  return { data: made, width, height, channels: wanted };
}

/** Round halves to even, as Python does. @param {number} x @returns {number} */
function roundEven(x) {
  const below = Math.floor(x), rest = x - below;
  return rest < 0.5 || (rest === 0.5 && below % 2 === 0) ? below : below + 1;
}

/** Return a photograph as `smidgen` reads it: its short side at most 512 pixels. @param {Picture} picture @returns {Picture} */
export function reduced(picture) {
  const excess = Math.max(Math.min(picture.width, picture.height) / SHORT_SIDE, 1);
  const width = roundEven(picture.width / excess), height = roundEven(picture.height / excess);
  const across = resizeAlong(picture, "cubic", true, 0, picture.width, width);
  return resizeAlong(across, "cubic", false, 0, picture.height, height);
}

/** Return the middle of a picture in the size and the colours of a model's input, as pixels.
 * @param {Picture} picture @param {PixelRule} rule @returns {Picture} */
export function seen(picture, rule) {
  const { width, height } = picture, { rows, columns } = rule;
  let w = width, h = height;
  if (!rule.stretch) {
    const scale = Math.min(height / rows, width / columns);
    w = Math.min(columns * scale, width);
    h = Math.min(rows * scale, height);
  }
  const left = (width - w) / 2, top = (height - h) / 2;
  const shown = inColours(picture, rule.colours === 1 || rule.gray);
  const across = resizeAlong(shown, "triangle", true, left, left + w, columns);
  return resizeAlong(across, "triangle", false, top, top + h, rows);
}

/** Return pixels of the input's size as the input's numbers. @param {Picture} picture @param {PixelRule} rule
 * @returns {Int8Array} */
export function encoded(picture, rule) {
  const { data, channels } = picture, { colours, table } = rule, count = rule.rows * rule.columns;
  const numbers = new Int8Array(count * colours);
  for (let i = 0; i < count; i++) {
    for (let c = 0; c < colours; c++) {
      const from = channels === 1 ? 0 : rule.bgr ? colours - 1 - c : c;
      numbers[i * colours + c] = table[data[i * channels + from] * colours + c];
    }
  }
  return numbers;
}
