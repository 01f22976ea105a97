/** Where samples come from: a camera, a microphone, motion sensors, files. */

/** @typedef {import("./types.js").Sample} Sample */
/** @typedef {{start(): Promise<void>, stop(): void, take(): Sample | null, running: boolean}} Source */

const MOST_PIXELS = 2 ** 26, MOST_EXACT = 2 ** 24; // pixels of a photograph: refused above, reduced by the browser above
const HEIC = /^ftyp(hei|hev|mif1|msf1)/;

/** Return why a device cannot be used, and what to do. @param {unknown} error @param {string} what @returns {Error} */
function refusal(error, what) {
  const name = error instanceof Error ? error.name : "";
  if (name === "NotAllowedError") return new Error(`The browser was told not to share the ${what}. Allow it in the address bar, or drop files here.`);
  if (name === "NotFoundError") return new Error(`There is no ${what} here. Drop files here, or paste them.`);
  if (name === "NotReadableError") return new Error(`Another program uses the ${what}. Close it, and try again.`);
  return new Error(`The ${what} cannot be used (${name || error}). Drop files here, or paste them.`);
}

/** @param {MediaStreamConstraints} wanted @param {string} what @returns {Promise<MediaStream>} */
async function open(wanted, what) {
  if (!navigator.mediaDevices) throw refusal(new DOMException("", "NotFoundError"), what);
  try {
    return await navigator.mediaDevices.getUserMedia(wanted);
  } catch (error) {
    throw refusal(error, what);
  }
}

/** @param {CanvasImageSource} image @param {number} width @param {number} height @returns {Sample} */
function grabbed(image, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  context.drawImage(image, 0, 0, width, height);
  return { rgb: { data: context.getImageData(0, 0, width, height).data, width, height, channels: 4 } };
}

/** Pictures of a camera, shown in a video. @implements {Source} */
export class Camera {
  running = false;
  facing = "environment";

  /** @param {HTMLVideoElement} video */
  constructor(video) {
    this.video = video;
  }

  async start() {
    const stream = await open({ video: { width: 640, height: 480, facingMode: this.facing } }, "camera");
    this.video.srcObject = stream;
    await this.video.play();
    this.running = true;
    stream.getVideoTracks()[0].onended = () => this.stop();
  }

  stop() {
    const stream = /** @type {MediaStream | null} */ (this.video.srcObject);
    stream?.getTracks().forEach((track) => track.stop());
    this.video.srcObject = null;
    this.running = false;
  }

  take() {
    const { videoWidth, videoHeight } = this.video;
    return this.running && videoWidth ? grabbed(this.video, videoWidth, videoHeight) : null;
  }
}

const MOST_SOUND = 32768; // samples that a browser looks back

/** The last moments of a microphone. @implements {Source} */
export class Microphone {
  running = false;
  /** @type {{context: AudioContext, stream: MediaStream, analyser: AnalyserNode} | null} */
  #open = null;

  /** @param {number} rate @param {number} samples */
  constructor(rate, samples) {
    this.rate = rate;
    this.samples = Math.min(samples, MOST_SOUND);
    this.last = new Float32Array(Math.max(2 ** Math.ceil(Math.log2(this.samples)), 32));
  }

  async start() {
    const stream = await open({ audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } }, "microphone");
    const context = new AudioContext({ sampleRate: this.rate });
    const analyser = new AnalyserNode(context, { fftSize: this.last.length });
    context.createMediaStreamSource(stream).connect(analyser);
    this.#open = { context, stream, analyser };
    this.running = true;
  }

  stop() {
    this.#open?.stream.getTracks().forEach((track) => track.stop());
    this.#open?.context.close();
    this.#open = null;
    this.running = false;
  }

  take() {
    if (!this.#open) return null;
    this.#open.analyser.getFloatTimeDomainData(this.last);
    return { sound: toInt16(this.last.subarray(-this.samples)) };
  }
}

/** @param {Float32Array} sound @returns {Int16Array} */
export function toInt16(sound) {
  return Int16Array.from(sound, (x) => Math.max(-32768, Math.min(32767, Math.round(x * 32768))));
}

const G = 9.80665; // m/s²

/** The last moments of a phone's motion sensors, in g. @implements {Source} */
export class Motion {
  running = false;

  /** @param {number} rows @param {number} columns 3, or 6 with rotation in degrees per second */
  constructor(rows, columns) {
    this.columns = columns;
    this.ring = new Float32Array(rows * columns);
    this.moved = (/** @type {DeviceMotionEvent} */ event) => this.#take(event);
  }

  async start() {
    const kind = /** @type {any} */ (globalThis).DeviceMotionEvent;
    if (!kind) throw new Error("This browser shares no motion sensors. Drop a .csv file of a recording.");
    if (kind.requestPermission && (await kind.requestPermission()) !== "granted") throw refusal(new DOMException("", "NotAllowedError"), "motion sensors");
    addEventListener("devicemotion", this.moved);
    this.running = true;
    await new Promise((resolve) => setTimeout(resolve, 600));
    if (!this.ring.some(Boolean)) {
      this.stop();
      throw new Error("There are no motion sensors here. Open this page on a phone, or drop a .csv file of a recording.");
    }
  }

  /** @param {DeviceMotionEvent} event */
  #take({ accelerationIncludingGravity: a, rotationRate: r }) {
    const row = [a?.x ?? 0, a?.y ?? 0, a?.z ?? 0].map((x) => x / G).concat(this.columns > 3 ? [r?.alpha ?? 0, r?.beta ?? 0, r?.gamma ?? 0] : []);
    this.ring.copyWithin(0, this.columns);
    this.ring.set(row.slice(0, this.columns), this.ring.length - this.columns);
  }

  stop() {
    removeEventListener("devicemotion", this.moved);
    this.running = false;
  }

  take() {
    return this.running ? { table: this.ring.slice(), columns: this.columns } : null;
  }
}

/** Return the sample in a file. @param {File} file @param {import("./types.js").Facts} facts @returns {Promise<Sample>} */
export async function sampleIn(file, facts) {
  if (facts.kind === "audio" && facts.audio) return soundIn(file, facts.audio.rate);
  if (facts.kind === "tensor") return tableIn(await file.text(), file.name);
  const head = new TextDecoder("latin1").decode(await file.slice(4, 16).arrayBuffer());
  if (HEIC.test(head)) throw new Error(`${file.name} is a HEIC photograph. Save it as JPEG first, or take a picture with the camera here.`);
  return photographIn(file);
}

/** @param {File} file @returns {Promise<Sample>} */
async function photographIn(file) {
  let image;
  try {
    image = await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
    if (image.width * image.height > MOST_PIXELS) throw new RangeError();
    if (image.width * image.height > MOST_EXACT) {
      const scale = 1024 / Math.min(image.width, image.height), { width, height } = image;
      image = await createImageBitmap(image, { resizeWidth: Math.round(width * scale), resizeHeight: Math.round(height * scale), resizeQuality: "high" });
    }
  } catch (error) {
    if (error instanceof RangeError) throw new Error(`${file.name} has more than ${MOST_PIXELS / 2 ** 20} megapixels. Reduce it first.`);
    throw new Error(`${file.name} is no picture that this browser reads. Give JPEG, PNG, WebP, GIF or BMP.`);
  }
  const sample = grabbed(image, image.width, image.height);
  image.close();
  return sample;
}

/** @param {File} file @param {number} rate @returns {Promise<Sample>} */
async function soundIn(file, rate) {
  try {
    const context = new OfflineAudioContext(1, 1, rate), sound = await context.decodeAudioData(await file.arrayBuffer());
    const mixed = new Float32Array(sound.length);
    for (let c = 0; c < sound.numberOfChannels; c++) sound.getChannelData(c).forEach((x, i) => (mixed[i] += x / sound.numberOfChannels));
    return { sound: toInt16(mixed) };
  } catch {
    throw new Error(`${file.name} is no recording that this browser reads. Give a .wav file.`);
  }
}

/** Return the numbers of a recording, below a line of names or without one. @param {string} text @param {string} name
 * @returns {Sample} */
export function tableIn(text, name) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const separator = [",", ";", "\t"].reduce((best, one) => (lines[0]?.split(one).length > lines[0]?.split(best).length ? one : best));
  const rows = lines.map((line) => line.split(separator).map((cell) => cell.trim()));
  const isNumber = (/** @type {string} */ cell) => cell !== "" && Number.isFinite(Number(cell));
  const names = rows.length && !rows[0].every(isNumber) ? /** @type {string[]} */ (rows.shift()) : [];
  const time = names.findIndex((one) => /^time(stamp)?$/i.test(one));
  const cells = rows.flatMap((row) => row.filter((_, column) => column !== time));
  if (!cells.length || !cells.every(isNumber)) throw new Error(`${name} is no table of numbers. Give a .csv file with a row for each moment.`);
  return { table: Float32Array.from(cells, Number), columns: cells.length / rows.length };
}
