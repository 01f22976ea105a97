/** The worker: holds the program and the inputs of all samples, and answers the page, one call at a time. */
import { fromBase64 } from "./bytes.js";
import { Engine } from "./engine.js";
import { movement } from "./movement.js";
import { encoded, reduced, seen } from "./pixels.js";

/** @typedef {import("./types.js").Sample} Sample */
/** @typedef {import("./types.js").Place} Place */
/** @typedef {import("./types.js").Prediction} Prediction */

/** Return the next number of a sequence that is the same everywhere. @param {number} state @returns {number} */
function nextRandom(state) {
  return (Math.imul(state, 1664525) + 1013904223) >>> 0;
}

/** Return places in another order, the same for the same seed. @template T @param {T[]} places @param {number} seed @returns {T[]} */
export function shuffled(places, seed) {
  const order = places.slice();
  for (let i = order.length - 1, state = nextRandom(seed); i > 0; i--, state = nextRandom(state)) {
    const j = state % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** Return float32 numbers as an int8 input: halves away from zero. @param {Float32Array} numbers @param {number} scale
 * @param {number} zero @returns {Int8Array} */
export function quantized(numbers, scale, zero) {
  return Int8Array.from(numbers, (x) => {
    const y = Math.min(Math.max(Math.fround(x / Math.fround(scale)), -1e6), 1e6);
    return Math.min(Math.max(Math.sign(y) * Math.floor(Math.abs(y) + 0.5) + zero, -128), 127);
  });
}

/** Return the middle of a recording. @param {Int16Array} samples @param {number} wanted @returns {Int16Array} */
export function middle(samples, wanted) {
  const first = Math.floor((samples.length - wanted) / 2), kept = new Int16Array(wanted);
  const begin = Math.max(first, 0), end = Math.min(first + wanted, samples.length);
  if (begin < end) kept.set(samples.subarray(begin, end), begin - first);
  return kept;
}

const PAUSE = 12; // milliseconds of work between two looks at what the page asks

export class Desk {
  /** @type {Map<number, Int8Array>} */
  inputs = new Map();
  /** @type {Place[]} */
  places = [];
  stopped = false;
  turns = 0; // rounds of steps so far: each takes samples in another order

  /** @param {Engine} engine */
  constructor(engine) {
    const { facts } = engine;
    this.engine = engine;
    this.rule = facts.pixels && { ...facts.pixels, table: new Int8Array(fromBase64(facts.pixels.table).buffer) };
  }

  /** Return a sample as the program takes it, and what it saw of a picture. @param {Sample} sample
   * @returns {{input: Int8Array, shown: import("./pixels.js").Picture | null}} */
  encode(sample) {
    const { facts } = this.engine;
    if ("rgb" in sample && this.rule) {
      const shown = seen(reduced(sample.rgb), this.rule);
      return { input: encoded(shown, this.rule), shown };
    }
    if ("sound" in sample && facts.audio) return { input: this.engine.listen(middle(sample.sound, facts.audio.samples)), shown: null };
    if ("table" in sample && facts.numbers) {
      if (sample.table.length !== facts.input_bytes) {
        throw new Error(`The sample has ${sample.table.length} numbers, the model takes ${facts.input_bytes}, as ${facts.shape.slice(1).join(" × ")}.`);
      }
      return { input: quantized(sample.table, facts.numbers.scale, facts.numbers.zero), shown: null };
    }
    throw new Error(`The model takes ${facts.kind === "picture" ? "pictures" : facts.kind === "audio" ? "sound" : "numbers"}, and this is something else.`);
  }

  /** @param {Int8Array} input @returns {Prediction} */
  predict(input) {
    const begun = performance.now(), { best, scores, distance } = this.engine.predict(input), ms = performance.now() - begun;
    const top = Math.max(...scores), shares = Array.from(scores, (score) => Math.exp(score - top));
    const sum = shares.reduce((a, b) => a + b, 0);
    return { best, probabilities: shares.map((share) => share / sum), distance, ms };
  }

  /** @param {{sample: Sample}} asked @returns {Prediction} */
  see({ sample }) {
    return this.predict(this.encode(sample).input);
  }

  /** @param {{sample: Sample}} asked */
  input({ sample }) {
    return { input: this.encode(sample).input };
  }

  /** Take a sample's input, without learning from it. @param {{sample: Sample, id: number}} asked */
  admit({ sample, id }) {
    const { input, shown } = this.encode(sample);
    this.inputs.set(id, input);
    return { input, shown };
  }

  clear() {
    this.places = [];
    this.engine.run.init();
  }

  /** Keep a sample, and add it to the sums unless it is held back. @param {{sample: Sample} & Place} asked */
  keep({ sample, id, label, held }) {
    const { input, shown } = this.admit({ sample, id });
    if (!held && this.collecting) this.engine.count(input, label, 1);
    this.places.push({ id, label, held });
    return { shown };
  }

  /** Drop a sample, and take it out of the sums. @param {{id: number}} asked */
  drop({ id }) {
    const place = this.places.find((one) => one.id === id), input = this.inputs.get(id);
    if (!place || !input) return;
    if (!place.held && this.collecting) this.engine.count(input, place.label, -1);
    this.places = this.places.filter((one) => one.id !== id);
  }

  get collecting() {
    return this.engine.facts.one_pass && this.engine.run.collecting() !== 0;
  }

  get learnt() {
    return this.places.filter((place) => !place.held);
  }

  /** Make the head of the sums; from the start where steps took their place. @param {object} _ @param {(done: number, of: number) => void} progress */
  async solve(_, progress) {
    if (!this.learnt.length) {
      this.engine.run.init();
      return { learned: 0 };
    }
    if (!this.collecting) await this.recollect(progress);
    const begun = performance.now();
    this.engine.solve();
    return { learned: this.learnt.length, ms: performance.now() - begun };
  }

  /** Observe all samples again. @param {(done: number, of: number) => void} progress */
  async recollect(progress) {
    this.engine.run.collect();
    const places = this.learnt;
    await this.#paced(places, (place, done) => {
      this.engine.count(this.#input(place), place.label, 1);
      progress(done, places.length);
    });
  }

  /** Take other labels for the samples. @param {{places: Place[]}} asked @param {(done: number, of: number) => void} progress */
  async arrange({ places }, progress) {
    this.places = places;
    await this.recollect(progress);
  }

  /** Take steps: each sample in turn, as often as asked. @param {{rounds: number, rate: number}} asked
   * @param {(done: number, of: number, loss: number) => void} progress */
  async steps({ rounds, rate }, progress) {
    const order = [];
    for (let i = 0; i < rounds; i++) order.push(...shuffled(this.learnt, ++this.turns));
    let loss = 0, done = 0, spent = 0;
    if (this.collecting) {
      this.engine.run.steps();
      this.engine.start = this.engine.state();
    }
    this.stopped = false;
    await this.#paced(order, (place) => {
      const begun = performance.now(), one = this.engine.train(this.#input(place), place.label, rate);
      spent += performance.now() - begun;
      if (!Number.isFinite(one)) throw new Error("The loss is no longer a number: undo, and give a smaller rate.");
      loss = done ? 0.9 * loss + 0.1 * one : one;
      progress(++done, order.length, loss);
      return !this.stopped;
    });
    return { done, loss, ms: done ? spent / done : 0 };
  }

  stop() {
    this.stopped = true;
  }

  /** Do something with each place, and let the page ask in between. @param {Place[]} places
   * @param {(place: Place, done: number) => boolean | void} work */
  async #paced(places, work) {
    let due = performance.now() + PAUSE, done = 0;
    for (const place of places) {
      if (work(place, ++done) === false) return;
      if (performance.now() > due) {
        await new Promise((resolve) => setTimeout(resolve));
        due = performance.now() + PAUSE;
      }
    }
  }

  /** @param {Place} place @returns {Int8Array} */
  #input(place) {
    const input = this.inputs.get(place.id);
    if (!input) throw new Error(`Sample ${place.id} is gone.`);
    return input;
  }

  /** Test with samples held back, or learned from. @param {{held: boolean}} asked @returns {Promise<import("./types.js").Score>} */
  async test({ held }) {
    const { room } = this.engine.facts, places = this.places.filter((place) => place.held === held);
    const confusion = Array.from({ length: room }, () => Array(room).fill(0));
    await this.#paced(places, (place) => {
      confusion[place.label][this.engine.predict(this.#input(place)).best] += 1;
    });
    return { right: confusion.reduce((sum, row, i) => sum + row[i], 0), of: places.length, confusion };
  }

  /** Return what was learned, and how far each layer moved. */
  state() {
    const { engine } = this, state = engine.state();
    return { state, moved: this.collecting ? [] : movement(engine.start, state, engine.facts.trained) };
  }

  /** Return the learned model as a file. */
  model() {
    const { engine, collecting } = this, file = engine.file.slice(), now = engine.state();
    for (const { at, state, bytes, lasting, row, places } of engine.facts.file?.patches ?? []) {
      const learned = (collecting && !lasting ? engine.start : now).subarray(state, state + bytes), width = places.length;
      learned.forEach((byte, i) => (file[at + (width ? Math.floor(i / width) * row + places[i % width] : i)] = byte));
    }
    return file;
  }

  /** Put back a state, and the samples that were there with it. @param {{state: Uint8Array, places: Place[] | null}} asked */
  restore({ state, places }) {
    this.engine.restore(state);
    if (places) this.places = places.filter((place) => this.inputs.has(place.id));
  }
}

/** Answer the page until it goes. @param {any} port */
function serve(port) {
  /** @type {Desk | null} */
  let desk = null;
  port.onmessage = async (/** @type {MessageEvent} */ event) => {
    const { call, number, asked } = event.data;
    const progress = (/** @type {number[]} */ ...numbers) => port.postMessage({ number, progress: numbers });
    try {
      if (call === "start") {
        const engine = await Engine.start(asked.packed, asked.facts);
        desk = new Desk(engine);
        port.postMessage({ number, answer: { vectors: engine.vectors } });
      } else {
        port.postMessage({ number, answer: await /** @type {any} */ (desk)[call](asked, progress) });
      }
    } catch (error) {
      port.postMessage({ number, error: error instanceof Error ? error.message : String(error) });
    }
  };
}

if (typeof self !== "undefined" && typeof document === "undefined" && "postMessage" in self) serve(self);
