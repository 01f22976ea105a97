/** What was taught: classes, samples and what was learned of them, and every step back. */

/** @typedef {import("./types.js").Sample} Sample */
/** @typedef {import("./types.js").Place} Place */
/** @typedef {{rows: number, columns: number, channels: number, data: Uint8Array} | null} Shown */
/** @typedef {Place & {sample: Sample, shown: import("./pixels.js").Picture | null, name: string}} Kept */
/** @typedef {{names: string[], kept: Kept[], state: Uint8Array, steps: number, observed: number, fresh: boolean, why: string}} Snapshot */

const EACH = 5; // every fifth sample of a class is held back to test with
const NEW = ["Class 1", "Class 2"];
const MOST_BACK = 20; // steps back that are kept

/** Return whether a class's next sample is held back: every fifth is, as soon as there are five.
 * @param {Place[]} places @param {number} label @returns {boolean} */
export function isHeld(places, label) {
  const own = places.filter((place) => place.label === label), held = own.filter((place) => place.held).length;
  return (own.length + 1) / EACH >= held + 1;
}

/** @param {Place[]} kept @returns {Place[]} */
function places(kept) {
  return kept.map(({ id, label, held }) => ({ id, label, held }));
}

export class Session extends EventTarget {
  /** @type {string[]} */
  names;
  /** @type {Kept[]} */
  kept = [];
  /** @type {Snapshot[]} */
  back = [];
  steps = 0; // since the head was made of sums
  observed = 0; // predictions for sums, all together
  solved = 0;
  busy = "";
  fresh = true; // nothing was learned here yet
  /** @type {{held: import("./types.js").Score, learned: import("./types.js").Score} | null} */
  score = null;
  #id = 0;

  /** @param {import("./calls.js").Calls} calls @param {import("./types.js").Facts} facts */
  constructor(calls, facts) {
    super();
    this.calls = calls;
    this.facts = facts;
    this.names = facts.classes.length ? facts.classes.slice() : NEW.slice(0, facts.room);
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** @param {number} label @returns {Kept[]} */
  of(label) {
    return this.kept.filter((one) => one.label === label);
  }

  /** Whether a class can be predicted: it was learned here, or before. @param {number} label */
  isKnown(label) {
    if (this.facts.kept && this.fresh) return label < this.facts.classes.length;
    return this.kept.some((one) => one.label === label && !one.held);
  }

  /** Whether anything is known, so that a prediction means something. */
  get knows() {
    return this.names.some((_, label) => this.isKnown(label));
  }

  addClass() {
    if (this.names.length < this.facts.room) this.names.push(`Class ${this.names.length + 1}`);
    this.changed();
  }

  /** Remember how things are, to come back to. @param {string} why */
  async remember(why) {
    const { state } = await this.calls.ask("state");
    const { steps, observed, fresh } = this;
    this.back.push({ names: this.names.slice(), kept: this.kept.slice(), state, steps, observed, fresh, why });
    if (this.back.length > MOST_BACK) this.back.shift();
  }

  /** Do one thing at a time; undo it where it fails. @param {string} doing @param {() => Promise<void>} work */
  async during(doing, work) {
    if (this.busy) return;
    this.busy = doing;
    this.changed();
    try {
      await work();
    } finally {
      this.busy = "";
      this.changed();
    }
  }

  /** Keep a sample of a class. @param {Sample} sample @param {number} label @param {string} [name] @returns {Promise<Kept>} */
  async keep(sample, label, name = "") {
    const id = ++this.#id, held = isHeld(this.kept, label);
    const place = { id, label, held };
    const { shown } = await this.calls.ask("keep", { sample, ...place });
    /** @type {Kept} */
    const kept = { ...place, sample: shown ? { rgb: shown } : sample, shown, name };
    this.kept.push(kept);
    if (!held) this.observed += 1;
    return kept;
  }

  /** Make the head of all samples. @param {(done: number, of: number) => void} [progress] */
  async solve(progress) {
    const before = this.steps;
    const found = await this.calls.ask("solve", {}, progress);
    if (before) this.observed += found.learned;
    this.steps = 0;
    this.fresh = this.fresh && !found.learned;
    this.solved += 1;
    await this.test();
    return found;
  }

  /** Drop samples, and learn from those that are left. @param {number[]} ids */
  async drop(ids) {
    await this.remember(ids.length === 1 ? "deleting a sample" : `deleting ${ids.length} samples`);
    for (const id of ids) await this.calls.ask("drop", { id });
    this.kept = this.kept.filter((one) => !ids.includes(one.id));
    await this.solve();
  }

  /** Delete a class and its samples; those behind it move up. @param {number} label */
  async dropClass(label) {
    await this.remember(`deleting ${this.names[label]}`);
    this.names.splice(label, 1);
    const left = this.kept.filter((one) => one.label !== label);
    this.kept = left.map((one) => (one.label > label ? { ...one, label: one.label - 1 } : one));
    await this.calls.ask("arrange", { places: places(this.kept) });
    this.observed += left.length;
    await this.solve();
  }

  /** Take steps. @param {number} rounds @param {number} rate @param {(done: number, of: number, loss: number) => void} progress */
  async step(rounds, rate, progress) {
    const found = await this.calls.ask("steps", { rounds, rate }, progress);
    this.steps += found.done;
    this.fresh = this.fresh && !found.done;
    await this.test();
    return found;
  }

  async test() {
    const [held, learned] = [await this.calls.ask("test", { held: true }), await this.calls.ask("test", { held: false })];
    this.score = this.kept.length ? { held, learned } : null;
  }

  /** Take another state, as a board saved it. @param {Uint8Array} state */
  async load(state) {
    await this.remember("loading a state");
    await this.calls.ask("restore", { state, places: null });
    this.fresh = false;
    await this.test();
  }

  /** Forget everything. */
  async clear() {
    await this.remember("starting over");
    Object.assign(this, { kept: [], steps: 0, observed: 0, solved: 0, fresh: true, names: this.facts.classes.length ? this.facts.classes.slice() : NEW.slice(0, this.facts.room) });
    await this.calls.ask("clear");
    await this.test();
  }

  /** Take up what was taught before. @param {object} about @param {Kept[]} kept */
  async resume(about, kept) {
    const { state, ...rest } = /** @type {any} */ (about);
    for (const one of kept) await this.calls.ask("admit", { sample: one.sample, id: one.id });
    Object.assign(this, rest, { kept });
    this.#id = Math.max(0, ...kept.map((one) => one.id));
    await this.calls.ask("restore", { state, places: places(kept) });
    await this.test();
  }

  /** Go back to how things were. @returns {Promise<string>} what was undone */
  async undo() {
    const last = this.back.pop();
    if (!last) return "";
    Object.assign(this, { names: last.names, kept: last.kept, steps: last.steps, observed: last.observed, fresh: last.fresh });
    await this.calls.ask("restore", { state: last.state, places: places(last.kept) });
    await this.test();
    return last.why;
  }
}
