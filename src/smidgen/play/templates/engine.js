/** The program: a WebAssembly module, and its memory as the page sees it. */
import { joined, through } from "./bytes.js";

/** @typedef {import("./types.js").Facts} Facts */
/** @typedef {Record<string, (...numbers: number[]) => number>} Functions */

// The smallest module with a vector instruction: a browser that takes it runs the faster build.
const VECTORS = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11);

const REFUSALS = [
  "", "There is no room for that class.", "There are too many samples: the sums might overflow.",
  "What is to be forgotten is not in the sums.", "No sample was observed yet.", "The sums are damaged.",
  "Steps were made since, and the sums are gone.",
];

/** Return a build of a program: pieces of another build, and what only this one has.
 * @param {Uint8Array} whole the other build @param {Uint8Array} own @param {[number, number][]} pieces where each
 *   piece begins in the other build, or -1 for what only this one has, and its bytes
 * @returns {Uint8Array<ArrayBuffer>} */
export function pieced(whole, own, pieces) {
  let at = 0;
  return joined(...pieces.map(([from, size]) => (from < 0 ? own.subarray(at, (at += size)) : whole.subarray(from, from + size))));
}

export class Engine {
  file = new Uint8Array(); // the model's, as it was before it learned

  /** @param {WebAssembly.Instance} instance @param {Facts} facts @param {boolean} vectors */
  constructor(instance, facts, vectors) {
    const { memory, ...functions } = instance.exports;
    this.memory = /** @type {WebAssembly.Memory} */ (memory);
    this.run = /** @type {Functions} */ (functions);
    this.facts = facts;
    this.vectors = vectors;
    this.run.init();
    this.start = this.#untrained();
  }

  /** Start a program, in the build that this browser runs.
   * @param {Uint8Array<ArrayBuffer>} packed both builds @param {Facts} facts @returns {Promise<Engine>} */
  static async start(packed, facts) {
    const both = await through(packed, new DecompressionStream("gzip"));
    const whole = both.subarray(0, facts.build.bytes), vectors = WebAssembly.validate(VECTORS);
    const { bytes: size, own, pieces } = facts.build, rest = both.subarray(size);
    const { instance } = await WebAssembly.instantiate(vectors ? whole : pieced(whole, rest.subarray(0, own), pieces));
    const engine = new Engine(instance, facts, vectors);
    if (facts.file) engine.file = pieced(whole, rest.subarray(own), facts.file.pieces);
    return engine;
  }

  /** @param {number} at @param {number} size @returns {Uint8Array<ArrayBuffer>} */
  bytes(at, size) {
    return new Uint8Array(/** @type {ArrayBuffer} */ (this.memory.buffer), at, size);
  }

  /** Return what is there before the first step. */
  #untrained() {
    if (this.facts.one_pass) this.run.steps();
    const state = this.state();
    this.run.init();
    return state;
  }

  /** @returns {Uint8Array<ArrayBuffer>} a copy of all that outlives a run */
  state() {
    return this.bytes(this.run.state(), this.facts.state_bytes).slice();
  }

  /** @param {Uint8Array} state */
  restore(state) {
    this.bytes(this.run.state(), this.facts.state_bytes).set(state);
  }

  /** Hand an input over. @param {Int8Array} input */
  show(input) {
    this.bytes(this.run.input(0), input.length).set(new Uint8Array(input.buffer, input.byteOffset, input.length));
  }

  /** Run an input; what the program makes of it. @param {Int8Array} input
   * @returns {{best: number, scores: Float32Array, distance: number}} */
  predict(input) {
    this.show(input);
    const best = this.run.predict();
    const distance = this.facts.one_pass ? this.run.distance() : 0;
    return { best, scores: new Float32Array(this.bytes(this.run.scores(), 4 * this.facts.room).slice().buffer), distance };
  }

  /** Take a step; the loss before it. @param {Int8Array} input @param {number} label @param {number} rate @returns {number} */
  train(input, label, rate) {
    this.show(input);
    return this.run.train(label, rate);
  }

  /** Add an input to the sums, or take it out. @param {Int8Array} input @param {number} label @param {1 | -1} sign */
  count(input, label, sign) {
    this.show(input);
    this.run.predict();
    this.check(sign > 0 ? this.run.observe(label) : this.run.forget(label));
  }

  solve() {
    this.check(this.run.solve());
  }

  /** @param {number} code */
  check(code) {
    if (code) throw new Error(REFUSALS[Math.abs(code)] ?? `The program refused with code ${code}.`);
  }

  /** Return the front end's input for samples of sound that follow silence. @param {Int16Array} samples @returns {Int8Array} */
  listen(samples) {
    const room = 4096, at = this.run.samples();
    this.run.audio_reset();
    for (let i = 0; i < samples.length; i += room) {
      const part = samples.subarray(i, i + room);
      new Int16Array(this.memory.buffer, at, part.length).set(part);
      this.run.audio_push(part.length);
    }
    this.run.audio_show();
    return new Int8Array(this.bytes(this.run.input(0), this.facts.input_bytes).slice().buffer);
  }
}
