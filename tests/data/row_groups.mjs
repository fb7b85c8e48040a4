// Row groups in memory and in the browser's cache, under Node with a network and a storage of its own.
import { readFileSync } from "node:fs";

const { file, groups } = JSON.parse(readFileSync(0, "utf8"));
const bytes = readFileSync(file);

const network = { log: [], open: 0, most: 0, broken: "" };
globalThis.fetch = async (url, { headers }) => {
  network.log.push(headers.Range);
  network.most = Math.max(network.most, ++network.open);
  await new Promise((resolve) => setTimeout(resolve, 2));
  network.open--;
  if (headers.Range === network.broken) throw new TypeError("lost");
  const [first, last] = headers.Range.slice(6).split("-").map(Number);
  const range = `bytes ${first}-${last}/${bytes.length}`;
  const body = bytes.subarray(first, last + 1);
  const response = new Response(body, { status: 206, headers: { "Content-Range": range } });
  return Object.defineProperty(response, "url", { value: url });
};

/** A Cache API with a quota; `forbidden` as in a private window. */
const storage = { entries: new Map(), quota: Infinity, forbidden: false };
const cache = {
  async match(request) {
    const kept = storage.entries.get(request.url ?? request);
    return kept && new Response(kept.bytes, { headers: kept.headers });
  },
  async put(url, response) {
    const kept = new Uint8Array(await response.arrayBuffer());
    const used = [...storage.entries.values()].reduce((sum, entry) => sum + entry.bytes.length, 0);
    if (used + kept.length > storage.quota) throw new DOMException("full", "QuotaExceededError");
    storage.entries.set(url, { bytes: kept, headers: response.headers });
  },
  keys: async () => [...storage.entries.keys()].map((url) => ({ url })),
  delete: async (url) => storage.entries.delete(url.url ?? url),
};
globalThis.self = {
  location: { origin: "http://page.example" },
  navigator: { onLine: true },
  caches: {
    async open() {
      if (storage.forbidden) throw new DOMException("no", "SecurityError");
      return cache;
    },
    delete: async () => storage.entries.clear(),
  },
};

const { rowGroup } = await import("../../app/js/data/row_groups.js");
const { cachedBytes, clearCache } = await import("../../app/js/data/cache.js");
const source = { url: "http://hub.example/file" };
const range = (n) => `bytes=${groups[n].start}-${groups[n].end - 1}`;

/** What a row group gives: its first text and whether it was fetched. */
async function read(n, { holdBytes = 1, keepBytes = 0, key = "" } = {}) {
  network.log = [];
  const group = { ...groups[n], optional: true, maxBytes: 1 << 22, fileBytes: bytes.length };
  const { texts, received } = await rowGroup(source, group, { key, keepBytes, holdBytes });
  return { text: new TextDecoder().decode(texts[0]), received, fetched: network.log };
}

const found = {};
const roomy = { holdBytes: 1 << 20 };
const together = await Promise.all([0, 1, 2, 0].map((n) => read(n, roomy)));
found.together = { texts: together.map((part) => part.text), most: network.most };
found.requests = network.log.length;
found.again = await read(1, roomy);
await read(3, { holdBytes: 1 });
found.dropped = await read(3, roomy);
found.refetched = (await read(0, roomy)).fetched;
network.broken = range(4);
const outcomes = await Promise.allSettled([read(4, roomy), read(5, roomy)]);
found.beside = outcomes.map((outcome) => outcome.status);
network.broken = "";
found.healed = (await read(4, roomy)).fetched.length;

const size = (n) => groups[n].end - groups[n].start;
const keepBytes = size(0) + size(1) + size(2);
for (const n of [0, 1, 2, 3]) await read(n, { keepBytes, key: `g${n}` });
found.kept = { bytes: await cachedBytes(), limit: keepBytes, names: [...storage.entries.keys()] };
found.fromCache = await read(2, { keepBytes, key: "g2" });
storage.entries.get([...storage.entries.keys()][0]).bytes[40] ^= 255;
found.spoilt = (await read(1, { keepBytes, key: "g1" })).text;
storage.quota = size(4) + 10;
found.full = [await read(4, { keepBytes, key: "g4" }), await cachedBytes()];
storage.quota = 0;
found.none = (await read(5, { keepBytes, key: "g5" })).text;
storage.forbidden = true;
found.forbidden = [(await read(0, { keepBytes, key: "h0" })).text, await cachedBytes()];
storage.forbidden = false;
storage.quota = Infinity;
await read(0, { keepBytes, key: "i0" });
found.beforeClearing = await cachedBytes();
await clearCache();
found.cleared = await cachedBytes();
process.stdout.write(JSON.stringify(found));
