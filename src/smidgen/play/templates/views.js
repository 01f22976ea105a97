/** What the page shows of a session. */
import { counted, drawSample, duration, make, part, percent, some } from "./dom.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./session.js").Kept} Kept */
/** @typedef {import("./types.js").Prediction} Prediction */

const TONES = 8, FAR = 1; // a distance above which a sample is none of the classes

/** @param {HTMLElement} element @param {number} label */
function tinted(element, label) {
  element.style.setProperty("--tone", label < 0 ? "var(--muted)" : `var(--class-${label % TONES})`);
}

/** Return a bar that shows a share. @param {number} share @returns {HTMLElement} */
function rail(share) {
  const bar = make("span", { class: "rail", "aria-hidden": "true" }, make("i"));
  bar.style.setProperty("--share", `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`);
  return bar;
}

/** Return what a prediction says in words: a class, or none. @param {Session} session @param {Prediction} prediction
 * @returns {{label: number, words: string, sure: string}} */
export function verdict({ names, facts }, { best, probabilities, distance }) {
  if (facts.distances && distance > FAR) {
    return { label: -1, words: names.length === 1 ? `not ${names[0]}` : "none of these", sure: `distance ${distance.toFixed(1)}` };
  }
  return { label: best, words: names[best] ?? `class ${best + 1}`, sure: percent(probabilities[best]) };
}

/** Show a prediction. @param {Session} session @param {Prediction | null} prediction */
export function showPrediction(session, prediction) {
  const bars = part("bars"), known = session.names.map((_, label) => label).filter((label) => session.isKnown(label));
  const shown = prediction && known.length ? prediction : null;
  part("verdict").hidden = !shown;
  if (shown) {
    const { label, words, sure } = verdict(session, shown);
    tinted(part("verdict"), label);
    if (part("best").textContent !== words) part("spoken").textContent = words;
    part("best").textContent = words;
    part("sure").textContent = sure;
  }
  const order = shown && known.length > 6 ? known.toSorted((a, b) => shown.probabilities[b] - shown.probabilities[a]).slice(0, 6) : known;
  bars.replaceChildren(...order.map((label) => {
    const share = shown ? shown.probabilities[label] : 0;
    const line = make("li", { class: shown?.best === label ? "top-one" : "" },
      make("span", { class: "name" }, session.names[label]), rail(share), make("span", { class: "value" }, shown ? percent(share) : "–"));
    tinted(line, label);
    return line;
  }));
}

/** @typedef {{hold(label: number): void, release(label: number): void, rename(label: number, name: string): void,
 *   drop(kept: Kept): void, dropClass(label: number): void, addFiles(label: number): void}} Actions */

/** The cards of the classes, of which each is changed in place: a press on its button outlives a change. */
export class ClassCards {
  /** @type {{card: HTMLElement, name: HTMLInputElement, count: HTMLElement, thumbs: HTMLElement, hold: HTMLButtonElement, remove: HTMLButtonElement}[]} */
  #cards = [];
  /** @type {Map<number, HTMLElement>} */
  #thumbs = new Map();

  /** @param {Session} session @param {Actions} actions */
  constructor(session, actions) {
    this.session = session;
    this.actions = actions;
  }

  show() {
    const { names, kept, busy, fresh, facts } = this.session;
    while (this.#cards.length > names.length) this.#cards.pop()?.card.remove();
    while (this.#cards.length < names.length) this.#cards.push(this.#made(this.#cards.length));
    const there = new Set(kept.map((one) => one.id));
    for (const [id, thumb] of this.#thumbs) {
      if (!there.has(id)) {
        thumb.remove();
        this.#thumbs.delete(id);
      }
    }
    this.#cards.forEach(({ card, name, count, thumbs, hold, remove }, label) => {
      const own = this.session.of(label), held = own.filter((one) => one.held).length;
      if (document.activeElement !== name) name.value = names[label];
      count.textContent = own.length ? some(own.length, "sample") + (held ? `, ${held} held back to test` : "") : "no samples yet";
      card.setAttribute("aria-label", `Class ${names[label]}`);
      hold.disabled = busy === "steps";
      remove.hidden = names.length < 2 || (facts.kept && fresh);
      thumbs.hidden = !own.length;
      const mine = own.map((one) => this.#thumb(one)).reverse();
      if (mine.length !== thumbs.children.length || mine.some((one, i) => thumbs.children[i] !== one)) thumbs.replaceChildren(...mine);
    });
  }

  /** @param {number} label */
  #made(label) {
    const { actions, session } = this;
    const place = () => this.#cards.findIndex((one) => one.card === card);
    const name = make("input", { "aria-label": `Name of class ${label + 1}`, maxlength: 40, value: session.names[label], autocomplete: "off" });
    name.oninput = () => actions.rename(place(), name.value.trim() || `Class ${place() + 1}`);
    name.onfocus = () => name.select();
    const remove = make("button", { type: "button", class: "icon", title: "Delete this class", click: () => actions.dropClass(place()) }, "✕", make("span", { class: "aside" }, ` Delete class ${label + 1}`));
    const hold = make("button", { type: "button", class: "hold" }, "Hold to teach");
    hold.onpointerdown = (event) => {
      if (event.button) return;
      hold.setPointerCapture(event.pointerId);
      actions.hold(place());
    };
    hold.onpointerup = hold.onpointercancel = hold.onlostpointercapture = () => actions.release(place());
    hold.onkeydown = (event) => {
      if (event.key !== " " && event.key !== "Enter") return;
      event.preventDefault();
      if (!event.repeat) actions.hold(place());
    };
    hold.onkeyup = hold.onblur = () => actions.release(place());
    hold.oncontextmenu = (event) => event.preventDefault();
    const files = make("button", { type: "button", class: "quiet", click: () => actions.addFiles(place()) }, "Files…");
    const count = make("p", { class: "small" }), thumbs = make("div", { class: "thumbs" });
    const card = make("div", { class: "class card", role: "group" },
      make("div", { class: "head" }, name, remove), make("div", { class: "row" }, hold, files), count, thumbs);
    tinted(card, label);
    part("classes").append(card);
    return { card, name, count, thumbs, hold, remove };
  }

  /** @param {Kept} kept @returns {HTMLElement} */
  #thumb(kept) {
    let thumb = this.#thumbs.get(kept.id);
    if (!thumb) {
      const canvas = make("canvas", { width: 96, height: 96, "aria-hidden": "true" });
      const what = `Delete sample ${kept.id}${kept.name ? `, ${kept.name}` : ""}${kept.held ? ", held back to test" : ""}`;
      thumb = make("button", { type: "button", class: kept.held ? "held" : "", title: what, "aria-label": what, click: () => this.actions.drop(kept) }, canvas);
      drawSample(kept, canvas);
      this.#thumbs.set(kept.id, thumb);
    }
    return thumb;
  }

  /** @param {number} label -1 for none */
  press(label) {
    this.#cards.forEach(({ hold }, i) => {
      hold.classList.toggle("held", i === label);
      hold.textContent = i === label ? "Teaching…" : "Hold to teach";
    });
  }
}

/** Show how much was learned, and how good it is. @param {Session} session */
export function showTally({ kept, score, steps, names, facts, fresh, back, busy }) {
  const learned = kept.filter((one) => !one.held).length;
  part("tally-learned").textContent = learned ? some(learned, "sample") : facts.kept && fresh ? "before this page" : "no samples";
  const held = score?.held;
  part("tally-held").textContent = held?.of ? `${held.right} of ${held.of}` : "none yet";
  part("tally-held").title = score?.learned.of ? `of those learned from: ${score.learned.right} of ${score.learned.of}` : "";
  part("tally-steps").textContent = counted(steps);
  /** @type {HTMLButtonElement} */ (part("step")).disabled = !learned || busy !== "";
  /** @type {HTMLButtonElement} */ (part("undo")).disabled = !back.length || busy !== "";
  part("undo").title = back.length ? `Undo ${back[back.length - 1].why}` : "";
  /** @type {HTMLButtonElement} */ (part("add")).disabled = names.length >= facts.room || busy !== "";
  /** @type {HTMLButtonElement} */ (part("clear")).disabled = busy !== "" || (fresh && !kept.length);
  part("room").textContent = names.length >= facts.room ? `This program has room for ${some(facts.room, "class", "classes")}.` : "";
}

/** Show what a board needs for it, and for what happened so far. @param {Session} session @param {number} chosen */
export function showCosts({ facts, observed, steps, solved }, chosen) {
  const board = facts.boards[chosen];
  if (!board) return;
  const rate = board.mhz * 1000 * board.per_cycle;
  /** @type {(name: string, value: string, note: string, share?: number) => HTMLElement} */
  const cost = (name, value, note, share) => make("div", {}, make("dt", {}, name),
    make("dd", {}, make("b", {}, value), make("span", { class: "small" }, note), ...(share === undefined ? [] : [rail(share)])));
  /** @type {(name: string, instructions: number | null) => HTMLElement[]} */
  const timed = (name, instructions) => instructions === null ? [] : [cost(name, `≈ ${duration(instructions / rate)}`, `${(instructions / 1e6).toFixed(1)} M instructions`)];
  part("costs").replaceChildren(
    cost("SRAM", `${(board.sram / 1024).toFixed(1)} KB`, `of ${counted(board.sram_room / 1024)} KB`, board.sram / board.sram_room),
    cost("Flash", `${counted(board.flash / 1024)} KB`, `of ${counted(board.flash_room / 1024)} KB`, board.flash / board.flash_room),
    ...timed("A prediction", board.forward), ...timed("A training step", board.step));
  const fits = board.sram <= board.sram_room && board.flash <= board.flash_room ? "" : "It does not fit this board. ";
  const spent = (observed * (board.forward ?? 0) + steps * (board.step ?? 0)) / rate;
  part("sofar").textContent = fits + (board.forward === null
    ? "Sizes are planned; smidgen profile measures instructions on the emulated board."
    : `${observed + steps ? `What you taught here (${some(observed, "sample")} observed, ${some(solved, "head")} made, ${some(steps, "step")}) takes it about ${duration(spent)}, making heads aside. ` : ""}At ${board.mhz} MHz and ${board.per_cycle} instructions per cycle: an estimate.`);
}

/** Show how far each layer moved. @param {ReturnType<typeof import("./movement.js").movement>} moved */
export function showMoved(moved) {
  part("moved-note").textContent = moved.length
    ? "How far the steps moved each tensor, as a share of its length. Point at one for how many of its numbers changed."
    : "In one pass only the last layer is made. Take steps to see the others move.";
  const most = Math.max(...moved.map((one) => one.moved), 1e-9);
  part("moved").replaceChildren(...moved.map(({ tensor, moved: far, changed, size }) => {
    const line = make("li", { title: `${counted(changed)} of ${some(size, "number")} changed` },
      make("span", {}, tensor.layer), rail(far / most), make("span", { class: "value" }, percent(far, far < 0.1 ? 2 : 1)));
    tinted(line, /weights$/.test(tensor.layer) ? 0 : 1);
    return line;
  }));
}
