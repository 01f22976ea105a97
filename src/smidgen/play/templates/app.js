/** The page: what its buttons do. */
import { fromBase64 } from "./bytes.js";
import { Calls } from "./calls.js";
import { chosen, drawCurves, drawSample, duration, part, some, the } from "./dom.js";
import { keep } from "./keep.js";
import { Session } from "./session.js";
import { Camera, Microphone, Motion, sampleIn } from "./sources.js";
import { takeAlong } from "./take.js";
import { ClassCards, showCosts, showMoved, showPrediction, showTally } from "./views.js";

/** @typedef {import("./types.js").Sample} Sample */

const EACH_SAMPLE = 160; // milliseconds between two samples while a button is held
const ACCEPT = { picture: "image/*", audio: "audio/*", tensor: ".csv,text/csv" };

/** Show a sentence at the top of the page. @param {string} text @param {boolean} [bad] */
function note(text, bad = false) {
  part("note").textContent = text;
  part("note").classList.toggle("bad", bad);
  part("note").hidden = !text;
}

/** Do something, and say in a sentence what went wrong. @param {() => Promise<unknown> | unknown} work */
async function trying(work) {
  try {
    note("");
    await work();
  } catch (error) {
    note(error instanceof Error ? error.message : String(error), true);
  }
}

/** Light or dark: as the system has it, until the button says otherwise. */
function wireTheme() {
  const root = document.documentElement, button = part("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const named = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  };
  button.onclick = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    named();
  };
  system.addEventListener("change", named);
  named();
}

/** The part of the page that looks: its source, what it saw last, and what the program says of it. */
class Looking {
  /** @type {Sample | null} */
  still = null;
  asking = false;

  /** @param {Session} session */
  constructor(session) {
    this.session = session;
    this.source = this.#source();
  }

  #source() {
    const { kind, audio, shape } = this.session.facts;
    if (kind === "picture") return new Camera(the("video", HTMLVideoElement));
    if (audio) return new Microphone(audio.rate, audio.samples);
    const columns = shape[shape.length - 1] === 1 ? shape[shape.length - 2] : shape[shape.length - 1];
    return new Motion(this.session.facts.input_bytes / columns, columns);
  }

  /** @returns {Sample | null} what is seen now */
  get now() {
    return this.still ?? this.source.take();
  }

  async start() {
    this.still = null;
    await this.source.start();
    this.#arranged();
  }

  stop() {
    this.source.stop();
    this.still = null;
    this.#arranged();
    showPrediction(this.session, null);
  }

  /** Look at a file. @param {File} file */
  async open(file) {
    this.source.stop();
    this.still = await sampleIn(file, this.session.facts);
    this.#arranged();
    this.#draw(this.still);
    await this.look();
  }

  #arranged() {
    const seeing = this.source.running || this.still !== null;
    part("empty").hidden = seeing;
    part("stop").hidden = !seeing;
    part("flip").hidden = !(this.source instanceof Camera && this.source.running);
    if (this.session.facts.kind === "picture") part("still").hidden = this.still === null;
  }

  /** @param {Sample} sample */
  #draw(sample) {
    const canvas = the("still", HTMLCanvasElement);
    if ("rgb" in sample) drawSample({ id: 0, label: 0, held: false, sample, shown: sample.rgb, name: "" }, canvas);
    else drawCurves(sample, /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")));
  }

  /** Predict what is seen now. */
  async look() {
    const sample = this.now;
    if (!sample || this.asking) return;
    const { still } = this;
    this.asking = true;
    try {
      const prediction = await this.session.calls.ask("see", { sample });
      if (this.now && still === this.still) {
        showPrediction(this.session, prediction);
        part("took").textContent = `A prediction takes ${duration(prediction.ms)} here.`;
      }
    } finally {
      this.asking = false;
    }
    if (still !== this.still) await this.look();
  }

  /** Look again and again. */
  async forever() {
    for (;;) {
      if (this.source.running && !document.hidden) {
        const sample = this.source.take();
        if (sample && !("rgb" in sample)) this.#draw(sample);
        await this.look().catch((error) => note(error.message, true));
      }
      await new Promise((resolve) => (document.hidden || !this.source.running ? setTimeout(resolve, 120) : requestAnimationFrame(resolve)));
    }
  }
}

/** Teach while a button is held. */
class Teaching {
  #label = -1;
  /** @type {Promise<void>} */
  #last = Promise.resolve();

  /** @param {Session} session @param {Looking} looking @param {ClassCards} cards */
  constructor(session, looking, cards) {
    this.session = session;
    this.looking = looking;
    this.cards = cards;
  }

  /** @param {number} label */
  hold(label) {
    if (this.#label >= 0 || this.session.busy === "steps") return;
    if (!this.looking.now) {
      note(`Nothing to see yet: ${this.session.facts.kind === "picture" ? "start the camera, or give pictures" : "start a source, or give files"} first.`, true);
      return;
    }
    this.#label = label;
    this.cards.press(label);
    this.#last = this.#last.then(() => trying(() => this.session.during("teaching", () => this.#burst(label))));
  }

  /** @param {number} label */
  async #burst(label) {
    const { session, looking } = this;
    await session.remember("adding samples");
    do {
      const sample = looking.now, due = performance.now() + EACH_SAMPLE;
      if (sample) await session.keep(sample, label);
      session.changed();
      if (looking.still) break;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
    } while (this.#label === label);
    this.release(label);
    await session.solve();
    await looking.look();
  }

  /** @param {number} label */
  release(label) {
    if (label !== this.#label) return;
    this.#label = -1;
    this.cards.press(-1);
  }

  /** Teach files. @param {number} label @param {File[]} files */
  async files(label, files) {
    await trying(() => this.session.during("teaching", async () => {
      const { session } = this, refused = [];
      await session.remember("adding files");
      for (const [i, file] of files.entries()) {
        try {
          await session.keep(await sampleIn(file, session.facts), label, file.name);
          if (i % 4 === 3) session.changed();
        } catch (error) {
          refused.push(error instanceof Error ? error.message : String(error));
        }
      }
      await session.solve();
      if (refused.length) throw new Error(refused.length === 1 ? refused[0] : `${some(refused.length, "file")} were left out. ${refused[0]}`);
    }));
  }
}

/** @param {Session} session */
function wireSteps(session) {
  let seen = 0;
  const moved = async () => showMoved((await session.calls.ask("state")).moved);
  part("step").onclick = () => trying(() => session.during("steps", async () => {
    const rounds = Number(the("rounds", HTMLSelectElement).value), rate = Number(the("rate", HTMLSelectElement).value);
    const bar = the("bar", HTMLProgressElement);
    await session.remember("taking steps");
    part("progress").hidden = false;
    try {
      const found = await session.step(rounds, rate, (done, of, loss) => {
        [bar.value, bar.max] = [done, of];
        part("loss").textContent = `${done} of ${some(of, "step")}, loss ${loss.toFixed(3)}`;
        if (performance.now() - seen > 400) {
          seen = performance.now();
          moved();
        }
      });
      part("how").textContent = `${some(found.done, "step")}, ${duration(found.ms)} each in this page. What is none of the classes shows only behind one pass, whose sums steps replace.`;
    } finally {
      part("progress").hidden = true;
      await moved();
    }
  }));
  part("halt").onclick = () => session.calls.ask("stop");
  part("undo").onclick = () => trying(() => session.during("undo", async () => {
    await session.undo();
    await moved();
  }));
}

/** Take what is dropped or pasted. @param {Looking} looking */
function wireFiles(looking) {
  const take = (/** @type {DataTransfer | null} */ data) => {
    const file = Array.from(data?.files ?? [])[0];
    if (file) trying(() => looking.open(file));
    return Boolean(file);
  };
  addEventListener("dragover", (event) => {
    event.preventDefault();
    part("stage").classList.add("over");
  });
  addEventListener("dragleave", () => part("stage").classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    part("stage").classList.remove("over");
    take(event.dataTransfer);
  });
  addEventListener("paste", (event) => take(event.clipboardData));
}

/** @param {import("./types.js").Facts} facts @param {Session} session @param {Looking} looking */
function wireLooking(facts, session, looking) {
  part("start").onclick = () => trying(() => looking.start());
  part("stop").onclick = () => looking.stop();
  part("choose").onclick = () => trying(async () => {
    const [file] = await chosen(ACCEPT[facts.kind]);
    if (file) await looking.open(file);
  });
  part("flip").onclick = () => trying(async () => {
    const camera = /** @type {Camera} */ (looking.source);
    camera.facing = camera.facing === "user" ? "environment" : "user";
    camera.stop();
    await camera.start();
    camera.video.classList.toggle("mirrored", camera.facing === "user");
  });
  const board = the("board", HTMLSelectElement);
  board.onchange = () => showCosts(session, Number(board.value));
  part("clear").onclick = () => trying(() => session.during("deleting", () => session.clear()));
  part("add").onclick = () => session.addClass();
}

async function main() {
  wireTheme();
  const facts = /** @type {import("./types.js").Facts} */ (JSON.parse(part("facts").textContent ?? ""));
  const url = URL.createObjectURL(new Blob([part("worker").textContent ?? ""], { type: "text/javascript" }));
  const calls = new Calls(new Worker(url)), session = new Session(calls, facts);
  const packed = fromBase64(part("program").textContent ?? "");
  part("program").textContent = "";
  const { vectors } = await calls.ask("start", { packed, facts });
  part("build").textContent = vectors ? "This browser computes with vectors." : "This browser has no vectors (SIMD): it computes the same, slower.";
  const looking = new Looking(session);
  const cards = new ClassCards(session, {
    hold: (label) => teaching.hold(label),
    release: (label) => teaching.release(label),
    rename: (label, name) => {
      session.names[label] = name;
    },
    drop: (kept) => trying(() => session.during("deleting", () => session.drop([kept.id]))),
    dropClass: (label) => trying(() => session.during("deleting", () => session.dropClass(label))),
    addFiles: (label) => trying(async () => {
      const files = await chosen(ACCEPT[facts.kind], true);
      if (files.length) await teaching.files(label, files);
    }),
  });
  const teaching = new Teaching(session, looking, cards);
  session.addEventListener("change", () => {
    document.documentElement.dataset.busy = session.busy;
    cards.show();
    showTally(session);
    showCosts(session, Number(the("board", HTMLSelectElement).value));
    if (!looking.now) showPrediction(session, null);
  });
  wireLooking(facts, session, looking);
  wireSteps(session);
  wireFiles(looking);
  takeAlong(session, looking, trying);
  await keep(session, (text) => {
    part("standing").textContent = text;
    part("standing").hidden = false;
  });
  session.changed();
  document.documentElement.dataset.ready = "yes";
  await looking.forever();
}

trying(main);
