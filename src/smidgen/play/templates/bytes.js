/** Bytes: base64, little-endian numbers, streams. */

/** Return bytes one after the other. @param {ArrayLike<number>[]} parts @returns {Uint8Array<ArrayBuffer>} */
export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Return numbers as bytes, the lowest first; each pair is a number and how many bytes it takes.
 * @param {[number, number][]} numbers @returns {Uint8Array<ArrayBuffer>} */
export function packed(...numbers) {
  const bytes = [];
  for (const [number, size] of numbers) {
    for (let i = 0; i < size; i++) bytes.push(Math.floor(number / 2 ** (8 * i)) & 255);
  }
  return Uint8Array.from(bytes);
}

/** Return a view of bytes as numbers. @param {Uint8Array} bytes @returns {DataView} */
export function numbersIn(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Return the bytes that base64 stands for. @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export function fromBase64(text) {
  const characters = atob(text.trim());
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

/** Return what a stream of the browser makes of bytes: "gzip" or "deflate", unpacked or packed.
 * @param {Uint8Array<ArrayBuffer>} bytes @param {DecompressionStream | CompressionStream} stream
 * @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}
