/** What is taken along: a state, the samples, a model, and a board at the end of a cable. */
import { folderName, png, zipped } from "./archive.js";
import { joined, packed } from "./bytes.js";
import { chosen, part, save, the } from "./dom.js";
import { Line } from "./frames.js";
import { stateFile, stateIn } from "./states.js";
import { showMoved } from "./views.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {(work: () => Promise<unknown> | unknown) => Promise<void>} Trying */

/** Return the samples as files, a folder for each class. @param {Session} session
 * @returns {Promise<{name: string, bytes: Uint8Array}[]>} */
export async function sampleFiles({ kept, names, facts }) {
  const taken = new Set(), folders = names.map((name) => folderName(name, taken)), counts = names.map(() => 0);
  const files = [];
  for (const { label, sample } of kept) {
    const number = String(++counts[label]).padStart(4, "0");
    if ("rgb" in sample) {
      const { data, width, height, channels } = sample.rgb;
      files.push({ name: `${folders[label]}/${number}.png`, bytes: await png(new Uint8Array(data), width, height, channels) });
    } else if ("sound" in sample) {
      files.push({ name: `${folders[label]}/${number}.wav`, bytes: wav(sample.sound, facts.audio?.rate ?? 16000) });
    } else {
      files.push({ name: `${folders[label]}/${number}.csv`, bytes: table(sample.table, facts.shape) });
    }
  }
  return files;
}

/** @param {Int16Array} sound @param {number} rate @returns {Uint8Array} */
function wav(sound, rate) {
  const data = new Uint8Array(sound.buffer, sound.byteOffset, sound.byteLength), text = (/** @type {string} */ name) => new TextEncoder().encode(name);
  return joined(text("RIFF"), packed([36 + data.length, 4]), text("WAVEfmt "), packed([16, 4], [1, 2], [1, 2], [rate, 4], [2 * rate, 4], [2, 2], [16, 2]),
    text("data"), packed([data.length, 4]), data);
}

/** @param {Float32Array} numbers @param {number[]} shape @returns {Uint8Array} */
function table(numbers, shape) {
  const dims = shape.slice(1).filter((one) => one > 1), columns = dims[dims.length - 1] ?? 1;
  const rows = Array.from({ length: numbers.length / columns }, (_, i) => Array.from(numbers.subarray(i * columns, (i + 1) * columns)).join(","));
  return new TextEncoder().encode(`${rows.join("\n")}\n`);
}

/** A serial port, as the browser has it. */
class Port {
  /** @type {Promise<{value?: Uint8Array, done: boolean}> | null} */
  #coming = null;

  /** @param {any} port */
  constructor(port) {
    this.port = port;
    this.reader = port.readable.getReader();
    this.writer = port.writable.getWriter();
  }

  /** @param {number} milliseconds @returns {Promise<Uint8Array>} */
  async read(milliseconds) {
    this.#coming ??= /** @type {Promise<{value?: Uint8Array, done: boolean}>} */ (this.reader.read());
    const late = new Promise((resolve) => setTimeout(resolve, Math.max(milliseconds, 0), null));
    const came = await Promise.race([this.#coming, late]);
    if (!came) return new Uint8Array();
    this.#coming = null;
    if (came.done) throw new Error("The board was unplugged. Plug it in, and connect it again.");
    return came.value ?? new Uint8Array();
  }

  /** @param {Uint8Array} bytes */
  async write(bytes) {
    await this.writer.write(bytes);
  }
}

/** @param {Session} session @param {{now: import("./types.js").Sample | null}} looking @param {Trying} trying */
function wireSerial(session, looking, trying) {
  const { facts } = session, said = part("serial"), serial = /** @type {any} */ (navigator).serial;
  const buttons = ["push", "pull", "ask"].map((id) => the(id, HTMLButtonElement));
  /** @type {Line | null} */
  let line = null;
  if (!serial) {
    the("connect", HTMLButtonElement).disabled = true;
    part("serial-note").textContent = "This browser has no WebSerial; Chrome and Edge on a computer do. Save the state above, and load it with smidgen device.";
    return;
  }
  part("connect").onclick = () => trying(async () => {
    const port = await serial.requestPort().catch(() => null);
    if (!port) return;
    await port.open({ baudRate: 115200, bufferSize: 4096 });
    const found = new Line(new Port(port)), hello = await found.hello();
    if (hello.fingerprint !== facts.fingerprint.slice(0, 16)) {
      await port.close().catch(() => {});
      throw new Error(`The board runs another program, ${hello.fingerprint}; this page runs ${facts.fingerprint.slice(0, 16)}. Compile it as shown above, and flash it.`);
    }
    line = found;
    buttons.forEach((button) => (button.disabled = false));
    said.textContent = "Connected: the board runs this program.";
  });
  wireBoard(session, looking, trying, () => /** @type {Line} */ (line));
  serial.addEventListener("disconnect", () => {
    buttons.forEach((button) => (button.disabled = true));
    said.textContent = "The board was unplugged.";
  });
}

/** @param {Session} session @param {{now: import("./types.js").Sample | null}} looking @param {Trying} trying @param {() => Line} line */
function wireBoard(session, looking, trying, line) {
  const said = part("serial"), moving = the("moving", HTMLProgressElement);
  part("push").onclick = () => trying(async () => {
    const { state } = await session.calls.ask("state");
    moving.hidden = false;
    moving.max = state.length;
    try {
      const kept = await line().writeState(state, (done) => (moving.value = done));
      said.textContent = kept ? "The board learned what this page did, and keeps it." : "The board learned what this page did; a reset loses it, for it has nowhere to keep it.";
    } finally {
      moving.hidden = true;
    }
  });
  part("pull").onclick = () => trying(async () => {
    const hello = await line().hello(), state = await line().take(10, hello.stateBytes);
    await session.during("loading", () => session.load(state));
    said.textContent = "This page has the board's state now.";
  });
  part("ask").onclick = () => trying(async () => {
    const sample = looking.now;
    if (!sample) throw new Error("Nothing to see yet: start the camera, or give a file.");
    const { input } = await session.calls.ask("input", { sample });
    const label = await line().predict(new Uint8Array(input.buffer, input.byteOffset, input.length));
    said.textContent = `The board says: ${session.names[label] ?? `class ${label + 1}`}.`;
  });
}

/** Wire what is taken along. @param {Session} session @param {{now: import("./types.js").Sample | null}} looking @param {Trying} trying */
export function takeAlong(session, looking, trying) {
  const { facts, calls } = session;
  part("save-state").onclick = () => trying(async () => save(`${facts.model}.state`, stateFile((await calls.ask("state")).state, facts.fingerprint)));
  part("load-state").onclick = () => trying(async () => {
    const [file] = await chosen("");
    if (!file) return;
    const state = stateIn(new Uint8Array(await file.arrayBuffer()), facts.fingerprint, facts.state_bytes);
    await session.during("loading", () => session.load(state));
    showMoved((await calls.ask("state")).moved);
  });
  part("save-samples").onclick = () => trying(async () => {
    if (!session.kept.length) throw new Error("There are no samples yet: teach a class first.");
    const files = await sampleFiles(session);
    save("samples.zip", zipped(files));
  });
  if (facts.file) part("save-model").onclick = () => trying(async () => save(`${facts.model}.tflite`, await calls.ask("model")));
  wireSerial(session, looking, trying);
}
