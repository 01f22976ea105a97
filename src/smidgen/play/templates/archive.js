/** Files to take along: a zip of samples, and pictures as PNG. */
import { joined, packed, through } from "./bytes.js";
import { crc32 } from "./checksums.js";

const EPOCH = 0x00210000; // 1 January 1980, the first day of a zip: the same samples give the same bytes
const UTF8 = 1 << 11; // names are UTF-8

/** Return a zip of files, stored as they are: pictures are compressed already.
 * @param {{name: string, bytes: Uint8Array}[]} files @returns {Uint8Array<ArrayBuffer>} */
export function zipped(files) {
  const parts = [], index = [];
  let at = 0;
  for (const { name, bytes } of files) {
    const path = new TextEncoder().encode(name);
    /** @type {[number, number][]} */
    const about = [[20, 2], [UTF8, 2], [0, 2], [EPOCH, 4], [crc32(bytes), 4], [bytes.length, 4], [bytes.length, 4], [path.length, 2], [0, 2]];
    const local = joined(packed([0x04034b50, 4], ...about), path);
    index.push(joined(packed([0x02014b50, 4], [20, 2], ...about, [0, 2], [0, 2], [0, 2], [0, 4], [at, 4]), path));
    parts.push(local, bytes);
    at += local.length + bytes.length;
  }
  const listed = joined(...index), count = files.length;
  return joined(...parts, listed, packed([0x06054b50, 4], [0, 2], [0, 2], [count, 2], [count, 2], [listed.length, 4], [at, 4], [0, 2]));
}

/** Return pixels as a PNG file, 8 bits of each channel.
 * @param {Uint8Array} pixels @param {number} width @param {number} height @param {number} channels 1 or 3
 * @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function png(pixels, width, height, channels) {
  const row = width * channels, lines = new Uint8Array(height * (row + 1));
  for (let y = 0; y < height; y++) lines.set(pixels.subarray(y * row, (y + 1) * row), y * (row + 1) + 1);
  const kind = channels === 1 ? 0 : 2;
  const head = joined(bigEndian(width), bigEndian(height), [8, kind, 0, 0, 0]);
  const data = await through(lines, new CompressionStream("deflate"));
  return joined([137, 80, 78, 71, 13, 10, 26, 10], chunk("IHDR", head), chunk("IDAT", data), chunk("IEND", new Uint8Array()));
}

/** @param {number} number @returns {Uint8Array} */
function bigEndian(number) {
  return packed([number, 4]).reverse();
}

/** @param {string} name @param {Uint8Array} data @returns {Uint8Array} */
function chunk(name, data) {
  const body = joined(new TextEncoder().encode(name), data);
  return joined(bigEndian(data.length), body, bigEndian(crc32(body)));
}

/** Return a name of a class as the name of a folder that every system takes; others are told apart by a number.
 * @param {string} name @param {Set<string>} taken lower-case names in use, to which this one is added @returns {string} */
export function folderName(name, taken) {
  const plain = name.normalize("NFC").replace(/[\\/:*?\x22<>|\u0000-\u001f]/g, "_").replace(/^[.\s]+|[.\s]+$/g, "").slice(0, 60) || "class";
  let own = plain;
  for (let i = 2; taken.has(own.toLowerCase()); i++) own = `${plain} ${i}`;
  taken.add(own.toLowerCase());
  return own;
}
