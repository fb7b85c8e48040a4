/**
 * Row groups kept from one visit to the next in the browser's Cache API, the oldest dropped at the limit.
 * A cache that is absent, forbidden or full is no error: the bytes are then fetched again.
 */

const NAME = "daisychain-row-groups";
const SIZE_HEADER = "x-bytes";

/** Cache keys must be http addresses; these are never fetched. */
function address(key) {
  return new URL(`/daisychain-cache/${encodeURIComponent(key)}`, self.location.origin).href;
}

async function open() {
  try {
    return await self.caches.open(NAME);
  } catch {
    return null;
  }
}

/** @param {string} key @param {number} size the only acceptable length @returns {Promise<Uint8Array | null>} */
export async function cached(key, size) {
  try {
    const response = await (await open())?.match(address(key));
    if (!response) return null;
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (bytes.length === size) return bytes;
    await forget(key);
  } catch {
    // Storage that fails to answer is like storage without the entry.
  }
  return null;
}

/** Keep bytes; older entries make room, and a full disk halves what is kept. */
export async function keep(key, bytes, limitBytes) {
  const cache = await open();
  if (!cache || bytes.length > limitBytes) return;
  let room = limitBytes;
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      await shrink(cache, room - bytes.length);
      const headers = { [SIZE_HEADER]: String(bytes.length) };
      await cache.put(address(key), new Response(bytes, { headers }));
      return;
    } catch {
      room = Math.max(bytes.length, Math.floor(room / 4));
    }
  }
}

async function shrink(cache, allowedBytes) {
  const requests = await cache.keys();
  const sizes = await Promise.all(requests.map((request) => entrySize(cache, request)));
  let total = sizes.reduce((sum, size) => sum + size, 0);
  for (let i = 0; i < requests.length && total > allowedBytes; i++) {
    await cache.delete(requests[i]);
    total -= sizes[i];
  }
}

async function entrySize(cache, request) {
  return Number((await cache.match(request))?.headers.get(SIZE_HEADER) ?? 0);
}

export async function forget(key) {
  await (await open())?.delete(address(key));
}

/** Bytes of row groups in the cache. */
export async function cachedBytes() {
  const cache = await open();
  if (!cache) return 0;
  const sizes = await Promise.all((await cache.keys()).map((r) => entrySize(cache, r)));
  return sizes.reduce((sum, size) => sum + size, 0);
}

export async function clearCache() {
  try {
    await self.caches.delete(NAME);
  } catch {
    // Nothing can be kept where caches are forbidden.
  }
}
