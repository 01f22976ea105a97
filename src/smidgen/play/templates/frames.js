/** A board at the end of a byte stream: frames, and requests that are done once however often they are sent. */
import { joined, numbersIn, packed } from "./bytes.js";
import { crc32 } from "./checksums.js";

export const ASK = { hello: 1, rows: 2, label: 3, train: 4, predict: 5, output: 6, statistics: 7, save: 8, load: 9, read: 10, write: 11, adopt: 12 };
const DONE = 0, DAMAGED = 1, STRANGER = 2, REFUSED = 5, FAILED = 6;
const LONGEST = 254; // bytes that one of COBS counts
const VERSION = 1;

/** @typedef {{read(milliseconds: number): Promise<Uint8Array>, write(bytes: Uint8Array): Promise<void>}} ByteStream */
/** @typedef {{session: number, boot: number, number: number, status: number, data: Uint8Array}} Reply */
/** @typedef {{piece: number, fingerprint: string, stateBytes: number, imageBytes: number, stateSum: number}} Hello */

/** Return content between zeros, with its CRC-32, in which no zero is left. @param {Uint8Array} content
 * @returns {Uint8Array<ArrayBuffer>} */
export function framed(content) {
  const whole = joined(content, packed([crc32(content), 4])), coded = [0];
  let begin = 0;
  for (let at = 0; at <= whole.length; at++) {
    const full = at - begin === LONGEST;
    if (!full && at < whole.length && whole[at]) continue;
    coded.push(at - begin + 1, ...whole.subarray(begin, at));
    begin = full ? at : at + 1;
    if (full) at--;
  }
  coded.push(0);
  return Uint8Array.from(coded);
}

/** Return the content of what came between two zeros; null where it is damaged. @param {Uint8Array} coded
 * @returns {Uint8Array | null} */
export function unframed(coded) {
  const whole = [];
  for (let at = 0; at < coded.length; ) {
    const end = at + coded[at];
    if (end > coded.length) return null;
    whole.push(...coded.subarray(at + 1, end));
    if (end < coded.length && coded[at] <= LONGEST) whole.push(0);
    at = end;
  }
  if (whole.length < 4) return null;
  const bytes = Uint8Array.from(whole), content = bytes.subarray(0, -4);
  return numbersIn(bytes).getUint32(content.length, true) === crc32(content) ? content : null;
}

/** Bytes as they come, cut into frames. */
export class Frames {
  /** @type {number[]} */
  #begun = [];

  /** Return the content of each frame that ends in these bytes; null for one that is damaged.
   * @param {Uint8Array} bytes @returns {(Uint8Array | null)[]} */
  take(bytes) {
    const found = [];
    for (const byte of bytes) {
      if (byte) {
        if (this.#begun.length < 2 * LONGEST) this.#begun.push(byte); // noise without a zero: damaged already
      } else if (this.#begun.length) {
        found.push(unframed(Uint8Array.from(this.#begun)));
        this.#begun = [];
      }
    }
    return found;
  }
}

/** @param {Uint8Array} content @returns {Reply | null} */
function replyIn(content) {
  if (content.length < 11) return null;
  const view = numbersIn(content);
  return {
    session: view.getUint32(0, true), boot: view.getUint32(4, true), number: view.getUint16(8, true),
    status: content[10], data: content.subarray(11),
  };
}

/** One request at a time, by number. */
export class Line {
  #frames = new Frames();
  #session = 0;
  #number = 0;
  #boot = -1;
  #piece = 16;

  /** @param {ByteStream} stream @param {{again: number, slowest: number, silent: number}} [timing] milliseconds: without
   *   an answer until a request is repeated, at first and at most, and until a board is silent */
  constructor(stream, timing = { again: 250, slowest: 2000, silent: 8000 }) {
    this.stream = stream;
    this.timing = timing;
  }

  /** Begin a session. @returns {Promise<Hello>} */
  async hello() {
    this.#boot = -1;
    [this.#session, this.#number] = [Math.floor(Math.random() * 2 ** 32), Math.floor(Math.random() * 2 ** 16)];
    const data = await this.ask(ASK.hello, packed([Math.floor(Math.random() * 2 ** 32), 4]));
    if (data.length !== 32) throw new Error("The board speaks another version of the link. Compile and flash it again.");
    const view = numbersIn(data), at = (/** @type {number} */ place) => view.getUint32(place, true);
    const version = view.getUint16(0, true);
    if (version !== VERSION) throw new Error(`The board speaks version ${version} of the link, this page ${VERSION}. Compile and flash it again.`);
    this.#piece = view.getUint16(2, true);
    const hex = (/** @type {number} */ word) => word.toString(16).padStart(8, "0");
    return { piece: this.#piece, fingerprint: hex(at(4)) + hex(at(8)), stateBytes: at(12), imageBytes: at(16), stateSum: at(24) };
  }

  /** Return a board's answer to a request, which it does once however often it has to be sent.
   * @param {number} command @param {Uint8Array} [data] @returns {Promise<Uint8Array>} */
  async ask(command, data = new Uint8Array()) {
    this.#number = (this.#number + 1) & 0xffff;
    const sent = framed(joined(packed([this.#session, 4], [this.#number, 2], [command, 1]), data));
    const reply = await this.#answered(sent);
    if (reply.status === STRANGER || (this.#boot >= 0 && reply.boot !== this.#boot)) throw new Error("The board has restarted. Connect it again.");
    this.#boot = reply.boot;
    if (reply.status === DONE) return reply.data;
    const name = Object.entries(ASK).find(([, one]) => one === command)?.[0] ?? command;
    if (reply.status === FAILED) throw new Error(`The board tried ${name}, and its own function failed with ${numbersIn(reply.data).getInt32(0, true)}.`);
    throw new Error(`The board refused ${name}${reply.status === REFUSED ? "" : `: it answered ${reply.status}`}. It runs another program, or is not ready for that.`);
  }

  /** @param {Uint8Array} sent @returns {Promise<Reply>} */
  async #answered(sent) {
    let wait = this.timing.again;
    for (const end = Date.now() + this.timing.silent; Date.now() < end; wait = Math.min(1.5 * wait, this.timing.slowest)) {
      await this.stream.write(sent);
      for (const due = Date.now() + wait; Date.now() < due; ) {
        let damaged = false;
        for (const content of this.#frames.take(await this.stream.read(due - Date.now()))) {
          const reply = content && replyIn(content);
          if (reply && reply.session === this.#session && reply.number === this.#number) return reply;
          damaged ||= !reply || reply.status === DAMAGED;
        }
        if (damaged) break;
      }
    }
    throw new Error(`The board is silent: no answer came in ${this.timing.silent / 1000} s. Check the cable, the baud rate, and that firmware with a link runs there.`);
  }

  /** Send data in pieces; what the last of them is answered with. @param {number} command @param {Uint8Array} data
   * @param {(done: number) => void} [onProgress] @returns {Promise<Uint8Array>} */
  async put(command, data, onProgress = () => {}) {
    let answer = new Uint8Array();
    for (let at = 0; at < data.length; at += this.#piece - 4) {
      const part = data.subarray(at, at + this.#piece - 4);
      answer = new Uint8Array(await this.ask(command, joined(packed([at, 4]), part)));
      onProgress(at + part.length);
    }
    return answer;
  }

  /** Return so many bytes of a block on the board. @param {number} command @param {number} size @param {Uint8Array} [which]
   * @returns {Promise<Uint8Array<ArrayBuffer>>} */
  async take(command, size, which = new Uint8Array()) {
    const parts = [];
    for (let at = 0; at < size; at += this.#piece) {
      parts.push(await this.ask(command, joined(packed([at, 4], [Math.min(this.#piece, size - at), 2]), which)));
    }
    return joined(...parts);
  }

  /** Give the board another state, which it adopts when all of it has come, and keeps where it can.
   * @param {Uint8Array} state @param {(done: number) => void} [onProgress] @returns {Promise<boolean>} whether it was kept */
  async writeState(state, onProgress) {
    await this.put(ASK.write, state, onProgress);
    await this.ask(ASK.adopt, packed([crc32(state), 4]));
    return this.ask(ASK.save).then(() => true, () => false);
  }

  /** Show the board an input; the class that it gives. @param {Uint8Array} input @returns {Promise<number>} */
  async predict(input) {
    return numbersIn(await this.put(ASK.rows, input)).getInt32(0, true);
  }
}
