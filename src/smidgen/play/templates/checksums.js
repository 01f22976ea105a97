/** Checksums: CRC-32 and Adler-32. */

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
