/** Types that the page, its worker and the program share; nothing here runs. */

/**
 * @typedef {object} Facts About a program, written into the page
 * @property {string} model its name
 * @property {"picture" | "audio" | "tensor"} kind of its samples
 * @property {string[]} classes names that it begins with
 * @property {number} room classes that there is room for
 * @property {boolean} kept whether its head knows the classes before it is taught here
 * @property {boolean} one_pass whether it learns in one pass
 * @property {boolean} distances whether it tells what is none of the classes
 * @property {string} scheme what learns by steps
 * @property {string} fingerprint of what gives its state a meaning
 * @property {number} state_bytes
 * @property {number} input_bytes
 * @property {number[]} shape of its input
 * @property {{bytes: number, own: number, pieces: [number, number][]}} build the faster build, and how the other follows from it
 * @property {{pieces: [number, number][], patches: {at: number, state: number, bytes: number, lasting: boolean, row: number,
 *   places: number[]}[]} | null} file how the model's file follows from it, and where what is learned goes
 * @property {{rows: number, columns: number, colours: number, gray: boolean, bgr: boolean, stretch: boolean, table: string} | null} pixels
 * @property {{rate: number, samples: number} | null} audio
 * @property {{scale: number, zero: number} | null} numbers of an input that is neither
 * @property {import("./movement.js").Trained[]} trained
 * @property {{name: string, title: string, sram: number, sram_room: number, flash: number, flash_room: number,
 *   forward: number | null, step: number | null, mhz: number, per_cycle: number}[]} boards
 * @property {{step: string, load: string, compile: string, fit: string}} commands
 */

/** @typedef {{rgb: import("./pixels.js").Picture} | {sound: Int16Array} | {table: Float32Array, columns: number}} Sample */

/** @typedef {{id: number, label: number, held: boolean}} Place a sample's label, and whether it is held back */

/** @typedef {{probabilities: number[], best: number, distance: number, ms: number}} Prediction */

/** @typedef {{right: number, of: number, confusion: number[][]}} Score */

export {};
