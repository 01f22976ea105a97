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
  if (ms < 0.1) return "under 0.1 ms";
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

/** Return the files a person chooses. @param {string} accept @param {boolean} [multiple] @returns {Promise<File[]>} */
export function chosen(accept, multiple = false) {
  const input = make("input", { type: "file", accept, multiple });
  return new Promise((resolve) => {
    input.onchange = () => resolve(Array.from(input.files ?? []));
    input.oncancel = () => resolve([]);
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
  drawCurves(sample, context);
}

/** Draw a recording, a curve for each of its columns. @param {import("./types.js").Sample} sample
 * @param {CanvasRenderingContext2D} context */
export function drawCurves(sample, context) {
  const { width, height } = context.canvas, style = getComputedStyle(document.documentElement);
  context.clearRect(0, 0, width, height);
  if ("sound" in sample) drawSound(context, sample.sound, style.getPropertyValue("--accent"));
  if (!("table" in sample)) return;
  const { table, columns } = sample, rows = table.length / columns, most = table.reduce((a, x) => Math.max(a, Math.abs(x)), 1e-9);
  context.lineWidth = Math.max(width / 160, 1);
  for (let c = 0; c < columns; c++) {
    context.strokeStyle = style.getPropertyValue(`--class-${c % 8}`);
    context.beginPath();
    for (let i = 0; i < rows; i++) context.lineTo((i / (rows - 1 || 1)) * width, (height / 2) * (1 - (0.9 * table[i * columns + c]) / most));
    context.stroke();
  }
}

/** Draw sound across a canvas. @param {CanvasRenderingContext2D} context @param {Int16Array} numbers
 * @param {string} colour */
function drawSound(context, numbers, colour) {
  const { width, height } = context.canvas, columns = Math.min(width, numbers.length), each = numbers.length / columns;
  let most = 300; // quieter is silence
  for (let i = 0; i < numbers.length; i++) most = Math.max(most, Math.abs(numbers[i]));
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
