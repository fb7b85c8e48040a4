/**
 * A bulk frame as it travels, that of `daisychain.cluster.wire`: where its fields lie, its check sum,
 * and what its header says.
 */

export const HEADER_BYTES = 32;
export const FRAME_BYTES = 65536;
export const PAYLOAD_BYTES = FRAME_BYTES - HEADER_BYTES;
export const MAGIC_AND_VERSION = 0x016364; // "dc", 1
export const [STEP, EPOCH, TARGET, TOTAL, SEQUENCE, ZERO, CRC] = [4, 8, 15, 20, 24, 26, 28];

/** The tables of CRC-32 (zlib) for eight bytes at a time. */
const CRC_TABLES = (() => {
  const tables = Array.from({ length: 8 }, () => new Uint32Array(256));
  for (let i = 0; i < 256; i++) {
    let c = i;
    for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
    tables[0][i] = c;
  }
  for (let i = 0; i < 256; i++) {
    for (let t = 1; t < 8; t++) {
      const before = tables[t - 1][i];
      tables[t][i] = (before >>> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
})();

/**
 * CRC-32 of a frame as it travels: all of it but the CRC field.
 * @param {Uint8Array} frame which starts at a multiple of 4 in its buffer
 */
export function frameCrc(frame) {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = CRC_TABLES;
  const words = new Uint32Array(frame.buffer, frame.byteOffset, frame.length >>> 2);
  let c = 0xffffffff;
  for (let i = 0; i < CRC / 4; i++) {
    c ^= words[i];
    c = t3[c & 0xff] ^ t2[(c >>> 8) & 0xff] ^ t1[(c >>> 16) & 0xff] ^ t0[c >>> 24];
  }
  let i = HEADER_BYTES / 4;
  for (; i + 2 <= words.length; i += 2) {
    c ^= words[i];
    const d = words[i + 1];
    c =
      t7[c & 0xff] ^
      t6[(c >>> 8) & 0xff] ^
      t5[(c >>> 16) & 0xff] ^
      t4[c >>> 24] ^
      t3[d & 0xff] ^
      t2[(d >>> 8) & 0xff] ^
      t1[(d >>> 16) & 0xff] ^
      t0[d >>> 24];
  }
  for (let at = 4 * i; at < frame.length; at++) c = t0[(c ^ frame[at]) & 0xff] ^ (c >>> 8);
  return ~c >>> 0;
}

/** @param {Uint8Array} bytes */
export const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** @param {DataView} view the name of the flow to which a header belongs */
export const flowKey = (view) =>
  `${view.getUint32(0, true)}.${view.getUint32(4, true)}.${view.getUint32(8, true)}.` +
  `${view.getUint32(12, true)}.${view.getUint32(16, true)}.${view.getUint32(20, true)}`;

/** Whether a frame or header is one of exponents, `Kind.EXPONENTS_UP` or `_DOWN`. @param {Uint8Array} head */
export const isUrgent = (head) => head[3] === 1 || head[3] === 2;

/**
 * Whether a flow belongs to no attempt but to one who comes in: `Kind.STATE`, `CATCH_UP` or `PLAN`.
 * @param {Uint8Array} head
 */
export const isServed = (head) => head[3] >= 5;
export const CATCH_UP = 6;

/**
 * Tells a frame or header of one attempt at a step.
 * @param {number} step
 * @param {number} epoch
 * @returns {(head: Uint8Array) => boolean}
 */
export const isOfAttempt = (step, epoch) => (head) => {
  const view = viewOf(head);
  return view.getUint32(STEP, true) === step && view.getUint32(EPOCH, true) === epoch;
};

/** @param {number} total */
export const frameCount = (total) => Math.max(1, Math.ceil(total / PAYLOAD_BYTES));
