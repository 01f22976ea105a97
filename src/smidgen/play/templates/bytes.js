/** Bytes: checksums, base64, little-endian numbers. */

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c;
});

/** Return the CRC-32 (IEEE 802.3) of bytes that follow others, whose CRC-32 is `before`.
 * @param {Uint8Array} bytes @param {number} [before] @returns {number} */
export function crc32(bytes, before = 0) {
  let c = ~before;
  for (let i = 0; i < bytes.length; i++) c = CRC_TABLE[(c ^ bytes[i]) & 255] ^ (c >>> 8);
  return ~c >>> 0;
}

/** Return the Adler-32 of bytes. @param {Uint8Array} bytes @returns {number} */
export function adler32(bytes) {
  let a = 1, b = 0;
  for (let i = 0; i < bytes.length; i++) {
    a = (a + bytes[i]) % 65521;
    b = (b + a) % 65521;
  }
  return b * 65536 + a;
}

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

/** Return a build of a program: pieces of another build, and what only this one has.
 * @param {Uint8Array} whole the other build @param {Uint8Array} own @param {[number, number][]} pieces where each
 *   piece begins in the other build, or -1 for what only this one has, and its bytes
 * @returns {Uint8Array<ArrayBuffer>} */
export function pieced(whole, own, pieces) {
  let at = 0;
  return joined(...pieces.map(([from, size]) => (from < 0 ? own.subarray(at, (at += size)) : whole.subarray(from, from + size))));
}
