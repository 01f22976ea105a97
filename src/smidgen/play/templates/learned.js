/** What was learned, as a file that a board takes, and how far each layer moved. */
import { adler32, joined, numbersIn, packed } from "./bytes.js";

/** @typedef {{name: string, layer: string, at: number, bytes: number, dtype: "int8" | "int16" | "int32" | "float32",
 *   unit: number[]}} Trained a tensor of the state */

const HEAD = 16; // bytes: the fingerprint's first 64 bits, bytes of state, Adler-32

/** Return a state as `smidgen device PORT load -i` reads it. @param {Uint8Array} state @param {string} fingerprint
 * @returns {Uint8Array<ArrayBuffer>} */
export function stateFile(state, fingerprint) {
  const words = [fingerprint.slice(0, 8), fingerprint.slice(8, 16)].map((word) => parseInt(word, 16));
  return joined(packed([words[0], 4], [words[1], 4], [state.length, 4], [adler32(state), 4]), state);
}

/** Return the state in a file; an error in a sentence where it is no state of this program.
 * @param {Uint8Array} file @param {string} fingerprint @param {number} size @returns {Uint8Array} */
export function stateIn(file, fingerprint, size) {
  if (file.length < HEAD) throw new Error(`The file has ${file.length} bytes and is not what a program saved.`);
  const view = numbersIn(file), hex = (/** @type {number} */ at) => view.getUint32(at, true).toString(16).padStart(8, "0");
  const state = file.subarray(HEAD);
  const whole = state.length === view.getUint32(8, true) && adler32(state) === view.getUint32(12, true);
  if (!whole) throw new Error("The file is cut short, damaged, or not what a program saved.");
  if (hex(0) + hex(4) !== fingerprint.slice(0, 16) || state.length !== size) {
    throw new Error(`The file was saved by another program, ${hex(0)}${hex(4)}; this page runs ${fingerprint.slice(0, 16)}. Make a page for that one: smidgen play with its model and options.`);
  }
  return state;
}

const VIEWS = { int8: Int8Array, int16: Int16Array, int32: Int32Array, float32: Float32Array };

/** Return a tensor's numbers. @param {Uint8Array} state @param {Trained} tensor */
function numbersOf(state, tensor) {
  return new VIEWS[tensor.dtype](state.slice(tensor.at, tensor.at + tensor.bytes).buffer);
}

/** Return by how much each tensor moved from one state to another: the distance over the length of where it began.
 * @param {Uint8Array} before @param {Uint8Array} now @param {Trained[]} tensors
 * @returns {{tensor: Trained, moved: number, changed: number, size: number}[]} */
export function movement(before, now, tensors) {
  return tensors.map((tensor) => {
    const a = numbersOf(before, tensor), b = numbersOf(now, tensor);
    let far = 0, length = 0, changed = 0;
    for (let i = 0; i < a.length; i++) {
      far += (b[i] - a[i]) ** 2;
      length += a[i] ** 2;
      changed += a[i] !== b[i] ? 1 : 0;
    }
    return { tensor, moved: Math.sqrt(far / (length || far || 1)), changed, size: a.length };
  });
}
