/**
 * Unpacked row groups: loaded one after the other, held in memory up to a limit, the least used dropped first.
 */
import { cached, forget, keep } from "./cache.js";
import { fetchRange } from "./fetch.js";
import { readColumnChunk } from "./parquet.js";

/** @type {Map<string, {texts: (Uint8Array | null)[], bytes: number, url: string}>} */
const held = new Map();
let heldBytes = 0;
/** What the next load waits for: two at once would need twice the memory, and share the link. */
let turn = Promise.resolve();

/**
 * The texts of a row group's column.
 * @param {import("./fetch.js").Source} source
 * @param {object} group start, end, rows, codec, optional and maxBytes of the column chunk
 * @param {{key: string, keepBytes: number, holdBytes: number}} limits an empty key is never kept on disk
 * @returns {Promise<{texts: (Uint8Array | null)[], url: string, received: number}>}
 */
export async function rowGroup(source, group, { key, keepBytes, holdBytes }) {
  const name = key || `${source.url ?? "own file"} ${group.start}`;
  const known = recall(name);
  if (known) return known;
  const loading = turn.then(async () => {
    const meanwhile = recall(name);
    if (meanwhile) return meanwhile;
    const loaded = await load(source, group, key, keepBytes);
    hold(name, loaded, holdBytes);
    return loaded;
  });
  turn = loading.catch(() => {});
  return loading;
}

function recall(name) {
  const known = held.get(name);
  if (!known) return null;
  held.delete(name);
  held.set(name, known);
  return { ...known, received: 0 };
}

function hold(name, { texts, bytes, url }, holdBytes) {
  held.set(name, { texts, bytes, url });
  heldBytes += bytes;
  for (const [oldest, entry] of held) {
    if (heldBytes <= holdBytes || oldest === name) break;
    held.delete(oldest);
    heldBytes -= entry.bytes;
  }
}

async function load(source, group, key, keepBytes) {
  const size = group.end - group.start;
  const kept = key ? await cached(key, size) : null;
  if (kept) {
    try {
      return { ...unpack(kept, group), url: "", received: 0 };
    } catch {
      await forget(key);
    }
  }
  let fetched = await fetchRange(source, group.start, group.end, group.fileBytes);
  let received = size;
  let unpacked;
  try {
    unpacked = unpack(fetched.bytes, group);
  } catch {
    // Bytes may be spoilt on the way: what is damaged twice is damaged at its source.
    fetched = await fetchRange(source, group.start, group.end, group.fileBytes);
    received += size;
    unpacked = unpack(fetched.bytes, group);
  }
  if (key) await keep(key, fetched.bytes, keepBytes);
  return { ...unpacked, url: fetched.url, received };
}

function unpack(bytes, group) {
  const texts = readColumnChunk(bytes, group);
  return { texts, bytes: texts.reduce((sum, text) => sum + (text?.length ?? 0), 0) };
}
