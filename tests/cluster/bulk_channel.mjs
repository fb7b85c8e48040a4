/**
 * Drives app/js/bulk_channel.js in Node over channels in memory; prints one JSON object.
 *
 * node bulk_channel.mjs frames FRAMES_FILE   frames of daisychain.cluster.wire, length-prefixed
 * node bulk_channel.mjs damage FRAME_FILE    the first of them, damaged bit by bit
 * node bulk_channel.mjs fuzz COUNT SEED      random and mutated frames
 * node bulk_channel.mjs move                 flows between two planes through bad channels
 * node bulk_channel.mjs turns SIZE          how much of a flow is sent without a pause
 * node bulk_channel.mjs given-up             what is sent, passed on and kept of what is given up
 * node bulk_channel.mjs urgent               what is sent first, with and without an urgent channel
 */
import { readFileSync } from "node:fs";
import { BulkPlane } from "../../app/js/bulk_channel.js";

const HEADER_BYTES = 32;
const PAYLOAD_BYTES = 65536 - HEADER_BYTES;

/** Half of a data channel: what is sent arrives at `peer` when `deliver` is called. */
class MemoryChannel {
  readyState = "open";
  bufferedAmount = 0;
  bufferedAmountLowThreshold = 0;
  /** @type {Uint8Array[]} */
  queue = [];
  largest = 0;

  send(bytes) {
    this.queue.push(bytes.slice());
    this.bufferedAmount += bytes.length;
    this.largest = Math.max(this.largest, this.bufferedAmount);
  }

  /** Hand over one queued message, and tell that the buffer drains. */
  deliver(peer, index = 0) {
    const [bytes] = this.queue.splice(index, 1);
    const before = this.bufferedAmount;
    this.bufferedAmount -= bytes.length;
    peer.onmessage({ data: bytes.buffer });
    const low = this.bufferedAmountLowThreshold;
    if (before > low && this.bufferedAmount <= low) this.onbufferedamountlow();
  }
}

let state = 1;
/** xorshift32: the same numbers for the same seed. */
function random(below) {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % below;
}

function header(total, { step = 1, epoch = 1, bucket = 0, target = 0, kind = 5 } = {}) {
  const bytes = new Uint8Array(HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  bytes.set([0x64, 0x63, 1, kind]);
  view.setUint32(4, step, true);
  view.setUint32(8, epoch, true);
  view.setUint16(12, bucket, true);
  bytes[15] = target;
  view.setUint32(20, total, true);
  return bytes;
}

function payload(size) {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i += 7) bytes[i] = random(256);
  return bytes;
}

const same = (a, b) => a.length === b.length && Buffer.compare(a, b) === 0;
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Frames that Python encoded, one flow each: all must be taken. */
function frames(file) {
  const data = readFileSync(file);
  const done = [];
  const plane = new BulkPlane((_peer, head, bytes) =>
    done.push([...head.slice(0, 24), bytes.length]),
  );
  const channel = new MemoryChannel();
  plane.addChannel("peer", channel);
  for (let at = 0; at < data.length; ) {
    const length = data.readUInt32LE(at);
    const frame = new Uint8Array(data.subarray(at + 4, at + 4 + length));
    plane.expect("peer", frame.slice(0, HEADER_BYTES));
    channel.onmessage({ data: frame.buffer });
    at += 4 + length;
  }
  return { done: done.length, dropped: plane.dropped(), left: plane.missing().length };
}

/** A frame of Python's with each of its bits flipped in turn, at last as it was. */
function damage(file) {
  const data = readFileSync(file);
  let completed = 0;
  const plane = new BulkPlane(() => completed++);
  const channel = new MemoryChannel();
  plane.addChannel("peer", channel);
  const frame = new Uint8Array(data.subarray(4));
  plane.expect("peer", frame.slice(0, HEADER_BYTES));
  for (let bit = 0; bit < 8 * frame.length; bit++) {
    const damaged = frame.slice();
    damaged[bit >> 3] ^= 1 << (bit & 7);
    channel.onmessage({ data: damaged.buffer });
  }
  const dropped = plane.dropped().malformed;
  const before = completed;
  channel.onmessage({ data: frame.buffer });
  return { bits: 8 * frame.length, dropped, before, completed };
}

/** What `plane` sends of one flow, for Python to decode. */
async function sent(size) {
  const plane = new BulkPlane(() => {});
  const channel = new MemoryChannel();
  plane.addChannel("peer", channel);
  const bytes = payload(size);
  const sending = plane.send("peer", header(size), bytes);
  const out = [];
  for (let idle = 0; idle < 3; await turn()) {
    idle = channel.queue.length ? 0 : idle + 1;
    while (channel.queue.length) {
      out.push(Buffer.from(channel.queue[0]).toString("base64"));
      channel.deliver({ onmessage() {} });
    }
  }
  await sending;
  return { frames: out, payload: Buffer.from(bytes).toString("base64") };
}

/** Hostile frames: nothing may throw, complete or be kept. */
function fuzz(count, seed) {
  state = seed;
  let completed = 0;
  const plane = new BulkPlane(() => completed++);
  const channel = new MemoryChannel();
  plane.addChannel("peer", channel);
  const total = 3 * PAYLOAD_BYTES;
  plane.expect("", header(total));
  plane.route(7, 7, 0, ["a", "peer", "b"]);
  const good = new Uint8Array(100);
  good.set(header(total));
  const before = process.memoryUsage();
  for (let i = 0; i < count; i++) {
    const bytes = new Uint8Array(i % 3 ? 24 + random(60) : random(70));
    for (let at = 0; at < bytes.length; at++) bytes[at] = i % 2 ? random(256) : good[at];
    for (let flips = random(4); flips >= 0 && bytes.length; flips--) {
      bytes[random(bytes.length)] = random(256);
    }
    channel.onmessage({ data: bytes.buffer });
  }
  for (const data of ["text", null, new Blob(), new ArrayBuffer(65537), new ArrayBuffer(0)]) {
    channel.onmessage({ data });
  }
  const after = process.memoryUsage();
  const grown = after.arrayBuffers - before.arrayBuffers;
  const { left } = plane.missing()[0];
  const dropped = Object.values(plane.dropped()).reduce((a, b) => a + b);
  return { completed, dropped, left, grown };
}

/** Two planes; messages are reordered and duplicated; a third member forwards. */
async function move() {
  const got = [];
  const planes = ["a", "b", "c"].map(
    (name) => new BulkPlane((peer, head, bytes) => got.push({ name, peer, head, bytes })),
  );
  const [a, b, c] = planes;
  const links = [];
  const link = (one, oneName, two, twoName) => {
    const [here, there] = [new MemoryChannel(), new MemoryChannel()];
    one.addChannel(twoName, here);
    two.addChannel(oneName, there);
    links.push([here, there], [there, here]);
  };
  for (let extra = 0; extra < 3; extra++) link(a, "a", b, "b");
  link(b, "b", c, "c");
  const bytes = payload(8_400_000);
  const small = payload(10);
  const heads = [
    header(bytes.length),
    header(0, { bucket: 1 }),
    header(small.length, { bucket: 2 }),
  ];
  b.expect("a", Buffer.concat(heads));
  b.expect("a", header(500_000, { bucket: 9 }));
  b.route(3, 1, 1, ["a", "b", "c"]);
  c.expect("", header(bytes.length, { step: 3, target: 2 }));
  const sending = Promise.all([
    a.send("b", heads[0], bytes),
    a.send("b", heads[1], new Uint8Array(0)),
    a.send("b", heads[2], small),
    a.send("b", header(bytes.length, { step: 3, target: 2 }), bytes),
    a.send("b", header(5, { step: 4 }), payload(5)),
  ]);
  for (let idle = 0; idle < 3; await turn()) {
    idle++;
    for (const [from, to] of links) {
      while (from.queue.length) {
        idle = 0;
        const index = random(Math.min(from.queue.length, 8));
        if (random(50) === 0) from.queue.push(from.queue[index].slice());
        from.deliver(to, index);
      }
    }
  }
  await sending;
  const all = { bytes, empty: new Uint8Array(0), small };
  const arrived = got.map(({ name, peer, bytes: data }) => [
    name,
    peer,
    Object.keys(all).find((key) => same(all[key], data)) ?? "damaged",
  ]);
  const missing = b.missing().map(({ peer, left }) => [peer, left]);
  const largest = Math.max(...links.map(([channel]) => channel.largest));
  b.forget(1, 1);
  const stuck = new MemoryChannel();
  a.addChannel("d", stuck);
  const lost = a.send("d", header(bytes.length), bytes).then(
    () => "sent",
    (error) => error.message,
  );
  await turn();
  stuck.onclose();
  return {
    arrived: arrived.sort(),
    missing,
    afterForget: b.missing().length,
    unexpected: b.dropped().unexpected,
    duplicate: b.dropped().duplicate + c.dropped().duplicate,
    malformed: b.dropped().malformed + c.dropped().malformed,
    largest,
    lost: await lost,
    stuck: stuck.queue.length,
    nobody: await a.send("z", header(0), small).catch((error) => error.message),
  };
}

/** One flow over a link that never fills: the bytes of each task, in turns of our own. */
function turns(size) {
  const waiting = [];
  const original = globalThis.MessageChannel;
  globalThis.MessageChannel = class {
    port1 = {};
    port2 = { postMessage: () => waiting.push(this.port1) };
  };
  const plane = new BulkPlane(() => {});
  globalThis.MessageChannel = original;
  const sent = [0];
  const channel = { readyState: "open", bufferedAmount: 0, label: "bulk" };
  channel.send = (bytes) => {
    sent[sent.length - 1] += bytes.length;
  };
  plane.addChannel("peer", channel);
  plane.send("peer", header(size), new Uint8Array(size));
  while (waiting.length > 0) {
    sent.push(0);
    waiting.shift().onmessage();
  }
  return { largest: Math.max(...sent), total: sent.reduce((a, b) => a + b) };
}

/** Exponents behind a gradient that fills the link: where they go, and what is in front of them. */
async function urgent() {
  const kinds = (channel) => channel.queue.map((frame) => frame[3]);
  const found = {};
  for (const reserved of [true, false]) {
    const plane = new BulkPlane(() => {});
    const bulk = new MemoryChannel();
    const beside = new MemoryChannel();
    plane.addChannel("peer", bulk);
    if (reserved) plane.addChannel("peer", beside, true);
    const from = new MemoryChannel();
    plane.addChannel("other", from);
    plane.route(3, 1, 0, ["me", "peer"]);
    const large = payload(8_400_000);
    plane.send("peer", header(large.length, { kind: 3 }), large);
    while (bulk.bufferedAmount < 1 << 20) await turn(); // as full as it may be
    plane.send("peer", header(large.length, { kind: 4, bucket: 1 }), large);
    plane.send("peer", header(500, { kind: 1, bucket: 1 }), payload(500));
    const far = new MemoryChannel(); // a third member's, for whom we pass exponents on
    const third = new BulkPlane(() => {});
    third.addChannel("me", far);
    third.send("me", header(400, { kind: 2, step: 3, target: 1 }), payload(400));
    far.deliver(from);
    for (let i = bulk.queue.length; i > 0; i--) bulk.deliver({ onmessage() {} });
    await turn();
    found[reserved ? "beside" : "alone"] = [kinds(beside), kinds(bulk).slice(0, 3)];
  }
  return found;
}

/** Flows and frames that wait behind others when they are given up; and awaited ones, partly here. */
async function givenUp() {
  const plane = new BulkPlane(() => {});
  const [link, from] = [new MemoryChannel(), new MemoryChannel()];
  plane.addChannel("peer", link);
  plane.addChannel("other", from);
  plane.route(5, 1, 0, ["me", "peer"]);
  const large = payload(2_000_000);
  const sendings = [
    plane.send("peer", header(large.length, { kind: 3, step: 4 }), large),
    plane.send("peer", header(large.length, { kind: 3, step: 5 }), large),
    plane.send("peer", header(9, { kind: 1, step: 5, bucket: 1 }), payload(9)),
    plane.send("peer", header(large.length, { kind: 5, step: 4 }), large),
    plane.send("peer", header(70, { kind: 7 }), payload(70)),
  ];
  while (link.bufferedAmount < 1 << 20) await turn(); // as full as it may be
  const far = new MemoryChannel(); // a third member's, for whom we pass a gradient on
  const third = new BulkPlane(() => {});
  third.addChannel("me", far);
  third.send("me", header(300, { kind: 4, step: 5, target: 1 }), payload(300));
  far.deliver(from);
  plane.abandon(5, 1);
  plane.stopServing("peer");
  sendings.push(plane.send("peer", header(8, { kind: 3, step: 5, epoch: 2 }), payload(8)));
  const sent = [];
  for (let idle = 0; idle < 3; await turn()) {
    idle = link.queue.length ? 0 : idle + 1;
    while (link.queue.length) {
      const view = new DataView(link.queue[0].buffer);
      const name = `${link.queue[0][3]} of ${view.getUint32(4, true)}.${view.getUint32(8, true)}`;
      if (sent.at(-1) !== name) sent.push(name);
      link.deliver({ onmessage() {} });
    }
  }
  await Promise.all(sendings);
  const source = new MemoryChannel(); // it sends us the first frame of each buffer of a state
  const feeder = new BulkPlane(() => {});
  feeder.addChannel("me", source);
  const heads = [5, 6, 7, 3].map((kind) => header(large.length, { kind, step: 9 }));
  plane.expect("peer", Buffer.concat(heads));
  for (const head of heads) {
    feeder.send("me", head, large);
    while (!source.queue.length) await turn();
    source.deliver(link);
    while (source.queue.length) source.deliver({ onmessage() {} });
  }
  const fetched = plane.fetchedFrames();
  const left = heads.map((head) => plane.framesLeft(head));
  plane.stopFetching();
  return { sent, fetched, left, awaited: plane.missing().map(({ header: head }) => head[3]) };
}

const [task, first, second] = process.argv.slice(2);
const tasks = {
  frames: () => frames(first),
  damage: () => damage(first),
  sent: () => sent(Number(first)),
  fuzz: () => fuzz(Number(first), Number(second)),
  turns: () => turns(Number(first)),
  move,
  "given-up": givenUp,
  urgent,
};
process.stdout.write(JSON.stringify(await tasks[task]()), () => process.exit(0));
