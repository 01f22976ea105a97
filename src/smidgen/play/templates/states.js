/** What was learned, as a file that a board takes. */
import { joined, numbersIn, packed } from "./bytes.js";
import { adler32 } from "./checksums.js";

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
