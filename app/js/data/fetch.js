/**
 * One attempt at a time to get bytes over HTTP or out of a File: no retries here, Python decides on them.
 *
 * Every failure is a Failure with a kind: "network" (no answer, or none that the page may read), "status",
 * "whole" (200 where 206 was asked for), "range" (another range than asked for), "short" (the body was cut),
 * "stalled", "large", "changed" (not the size that was listed), "preflight".
 */

const STALL_MS = 30_000;

export class Failure extends Error {
  constructor(kind, message, facts = {}) {
    super(message);
    this.kind = kind;
    this.facts = facts;
  }
}

/** @typedef {{url?: string, blob?: Blob}} Source a file on the network or one of the user's own */

/**
 * Bytes `start` to `end` of a file, exactly.
 * @param {Source} source @param {number} start @param {number} end exclusive
 * @param {number} fileBytes what the listing says of the whole file
 * @returns {Promise<{bytes: Uint8Array, url: string}>} `url` after redirects
 */
export async function fetchRange(source, start, end, fileBytes) {
  if (source.blob) {
    const bytes = await readBlob(source.blob.slice(start, end));
    if (bytes.length !== end - start) throw new Failure("changed", "it is shorter than it was");
    return { bytes, url: "" };
  }
  const abort = new AbortController();
  const response = await request(source.url, abort, { Range: `bytes=${start}-${end - 1}` });
  const host = new URL(response.url || source.url).host;
  if (response.status !== 206) {
    abort.abort();
    throw new Failure("whole", `${host} sent the whole file where a part was asked for`, { host });
  }
  rangeOrigins.add(new URL(source.url).origin);
  const range = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(response.headers.get("content-range") ?? "");
  const sent = range ? `${range[1]}-${range[2]}` : null;
  if (sent !== null && sent !== `${start}-${end - 1}`) {
    abort.abort();
    throw new Failure("range", `${host} sent bytes ${sent}, asked for ${start}-${end - 1}`, {
      host,
    });
  }
  if (range && range[3] !== "*" && Number(range[3]) !== fileBytes) {
    abort.abort();
    const message = `the file at ${host} has ${range[3]} bytes, the listing says ${fileBytes}`;
    throw new Failure("changed", message, { host });
  }
  const bytes = await readBody(response, abort, end - start);
  if (bytes.length !== end - start) {
    const message = `${host} sent ${bytes.length} of ${end - start} bytes`;
    throw new Failure("short", message, { host });
  }
  return { bytes, url: response.url };
}

/**
 * A whole file of at most `maxBytes`.
 * @param {Source} source @param {number} maxBytes
 */
export async function fetchWhole(source, maxBytes) {
  if (source.blob) {
    if (source.blob.size > maxBytes) throw tooLarge("the file", maxBytes);
    return { bytes: await readBlob(source.blob), headers: new Headers() };
  }
  const abort = new AbortController();
  const response = await request(source.url, abort, {});
  const bytes = await readBody(response, abort, maxBytes);
  return { bytes, headers: response.headers };
}

async function readBlob(blob) {
  try {
    return new Uint8Array(await blob.arrayBuffer());
  } catch (error) {
    throw new Failure("changed", `the file can no longer be read (${error.message})`);
  }
}

function tooLarge(what, maxBytes) {
  return new Failure("large", `${what} is larger than ${Math.round(maxBytes / 2 ** 20)} MiB`);
}

async function request(url, abort, headers) {
  const { host } = new URL(url);
  const stalled = setTimeout(
    () => abort.abort(new Failure("stalled", `${host} does not answer`, { host })),
    STALL_MS,
  );
  let response;
  try {
    response = await fetch(url, {
      headers,
      signal: abort.signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw await diagnose(url, headers, error);
  } finally {
    clearTimeout(stalled);
  }
  if (response.ok) return response;
  abort.abort();
  const answered = new URL(response.url || url).host;
  throw new Failure("status", `${answered} answered ${response.status}`, {
    host: answered,
    status: response.status,
    retryAfter: response.headers.get("retry-after"),
  });
}

/** Origins that have answered a request for a part. */
const rangeOrigins = new Set();

/**
 * A page is not told why a request failed. If an address that never gave a part answers when none is asked
 * for, and fails again when one is, then some host on the way forbids pages to ask for parts (its CORS
 * preflight fails): no use in trying again.
 */
async function diagnose(url, headers, error) {
  const { host, origin } = new URL(url);
  const lost = new Failure("network", `${host} cannot be reached (${error.message})`, { host });
  if (self.navigator?.onLine === false) {
    return new Failure("network", "this device is offline", { host });
  }
  if (!headers.Range || rangeOrigins.has(origin)) return lost;
  const storage = await answering(url, {});
  if (storage === null || (await answering(url, headers)) !== null) return lost;
  const message = `${storage} does not let web pages ask for parts of files (CORS)`;
  return new Failure("preflight", message, { host: storage });
}

/** The host that answers in the end, null if none does. */
async function answering(url, headers) {
  const abort = new AbortController();
  const stalled = setTimeout(() => abort.abort(), STALL_MS);
  const options = { headers, signal: abort.signal, cache: "no-store", credentials: "omit" };
  try {
    return new URL((await fetch(url, options)).url).host;
  } catch {
    return null;
  } finally {
    clearTimeout(stalled);
    abort.abort();
  }
}

/** The body, refused as soon as it grows beyond `maxBytes`. A cut body gives what came. */
async function readBody(response, abort, maxBytes) {
  const { host } = new URL(response.url);
  const reader = response.body.getReader();
  const chunks = [];
  let total = 0;
  for (;;) {
    const { done, value } = await nextChunk(reader, host);
    if (done) break;
    total += value.length;
    if (total > maxBytes) {
      abort.abort();
      throw tooLarge(`the answer of ${host}`, maxBytes);
    }
    chunks.push(value);
  }
  const bytes = new Uint8Array(total);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}

async function nextChunk(reader, host) {
  let timer;
  const stalled = new Promise((_, reject) => {
    timer = setTimeout(
      () => reject(new Failure("stalled", `${host} stopped sending`, { host })),
      STALL_MS,
    );
  });
  try {
    return await Promise.race([reader.read(), stalled]);
  } catch (error) {
    reader.cancel().catch(() => {});
    if (error instanceof Failure) throw error;
    throw new Failure("short", `${host} broke off (${error.message})`, { host });
  } finally {
    clearTimeout(timer);
  }
}
