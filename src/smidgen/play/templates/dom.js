/** Elements, numbers in words, and files that are saved. */

/** @typedef {Record<string, string | number | boolean | EventListener>} Attributes */

/** Return an element. @template {keyof HTMLElementTagNameMap} Tag @param {Tag} tag @param {Attributes} attributes
 * @param {(Node | string)[]} children @returns {HTMLElementTagNameMap[Tag]} */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/** @template {HTMLElement} T @param {string} id @param {new () => T} kind @returns {T} */
export function the(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`There is no ${id} in this page.`);
  return element;
}

/** @param {string} id @returns {HTMLElement} */
export function part(id) {
  return the(id, HTMLElement);
}

/** @param {number} number @returns {string} */
export function counted(number) {
  return Math.round(number).toLocaleString("en");
}

/** @param {number} count @param {string} one @param {string} [many] @returns {string} */
export function some(count, one, many = `${one}s`) {
  return `${counted(count)} ${count === 1 ? one : many}`;
}

/** @param {number} ms @returns {string} */
export function duration(ms) {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${(ms / 60_000).toFixed(1)} min`;
}

/** @param {number} share @param {number} [digits] @returns {string} */
export function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)} %`;
}

/** Let the browser save a file. @param {string} name @param {Uint8Array<ArrayBuffer> | string} content */
export function save(name, content) {
  const url = URL.createObjectURL(new Blob([content]));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Return the file a person chooses; null where none is. @param {string} accept @returns {Promise<File | null>} */
export function chosen(accept) {
  const input = make("input", { type: "file", accept });
  return new Promise((resolve) => {
    input.onchange = () => resolve(input.files?.[0] ?? null);
    input.oncancel = () => resolve(null);
    input.click();
  });
}

/** Draw a sample, small. @param {import("./session.js").Kept} kept @param {HTMLCanvasElement} canvas */
export function drawSample({ shown, sample }, canvas) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  if (shown) {
    canvas.width = shown.width;
    canvas.height = shown.height;
    const image = context.createImageData(shown.width, shown.height), { data, channels } = shown;
    for (let i = 0; i < shown.width * shown.height; i++) {
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = data[i * channels + (channels === 1 ? 0 : c)];
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    return;
  }
  const numbers = "sound" in sample ? sample.sound : "table" in sample ? sample.table : [];
  drawCurve(context, numbers, getComputedStyle(document.documentElement).getPropertyValue("--accent"));
}

/** Draw numbers as a curve across a canvas. @param {CanvasRenderingContext2D} context @param {ArrayLike<number>} numbers
 * @param {string} colour */
export function drawCurve(context, numbers, colour) {
  const { width, height } = context.canvas, columns = Math.min(width, numbers.length), each = numbers.length / columns;
  let most = 1e-9;
  for (let i = 0; i < numbers.length; i++) most = Math.max(most, Math.abs(numbers[i]));
  context.clearRect(0, 0, width, height);
  context.fillStyle = colour;
  for (let x = 0; x < columns; x++) {
    let low = Infinity, high = -Infinity;
    for (let i = Math.floor(x * each); i < Math.max((x + 1) * each, Math.floor(x * each) + 1); i++) {
      low = Math.min(low, numbers[i] ?? 0);
      high = Math.max(high, numbers[i] ?? 0);
    }
    const top = (height / 2) * (1 - (0.92 * high) / most), bottom = (height / 2) * (1 - (0.92 * low) / most);
    context.fillRect((x * width) / columns, top, Math.max(width / columns, 1), Math.max(bottom - top, 1.5));
  }
}
