/**
 * The byte pump of the cluster: bulk frames over WebRTC data channels, in and out.
 *
 * Python decides what is sent to whom, which flows are awaited and who forwards for whom; here bytes
 * are cut, checked, reassembled and passed on, so that no frame costs a call into Python.  The frame
 * (32-byte header, at most 64 KiB in all, little endian) is that of `daisychain.cluster.wire`:
 * bytes 0..23 name the flow, 3 is its kind, 15 its target, 20 its size, 24 the frame's number, 28 the
 * CRC-32.
 *
 * Exponents are few bytes that everybody waits for, so they are urgent: they have a channel of their
 * own beside the bulk channels, where no gradient is in front of them, and without it they are the
 * next frames to be sent.
 */

import {
  CATCH_UP,
  CRC,
  EPOCH,
  FRAME_BYTES,
  flowKey,
  frameCount,
  frameCrc,
  HEADER_BYTES,
  isOfAttempt,
  isServed,
  isUrgent,
  MAGIC_AND_VERSION,
  PAYLOAD_BYTES,
  SEQUENCE,
  STEP,
  TARGET,
  TOTAL,
  viewOf,
  ZERO,
} from "./bulk/frame.js";

const HIGH_BYTES = 1 << 20; // stop filling a channel at this much unsent data...
const LOW_BYTES = 1 << 18; // ...and go on when it has drained to this
const BURST_FRAMES = 16; // frames in a row before other work of the page gets a turn
const FORWARD_LIMIT_BYTES = 1 << 26; // held for one neighbour on behalf of others
const PAUSE_MS = 100; // a longer gap between frames is waiting, not transfer

/**
 * @typedef {{header: Uint8Array, payload: Uint8Array, next: number, count: number,
 *   resolve: () => void, reject: (reason: Error) => void}} Sending
 * @typedef {{peer: string, header: Uint8Array, total: number, left: number,
 *   come: Uint8Array | null, data: Uint8Array | null}} Awaited
 */

/** What waits for a neighbour: our own flows, and frames that are passed on, which go first. */
class Waiting {
  /** @type {Sending[]} */
  sending = [];
  /** @type {Uint8Array[]} */
  forwarding = [];

  get isEmpty() {
    return this.sending.length === 0 && this.forwarding.length === 0;
  }

  /**
   * Give up flows and frames, whose senders take them for sent.
   * @param {(head: Uint8Array) => boolean} isMeant
   * @returns {number} bytes of the frames that will not be passed on
   */
  drop(isMeant) {
    for (const { header, resolve } of this.sending) if (isMeant(header)) resolve();
    this.sending = this.sending.filter(({ header }) => !isMeant(header));
    const dropped = this.forwarding.filter(isMeant);
    this.forwarding = this.forwarding.filter((frame) => !isMeant(frame));
    return dropped.reduce((bytes, frame) => bytes + frame.length, 0);
  }
}

/** One neighbour: its channels, what waits for it, and what was moved. */
class Neighbour {
  /** @type {RTCDataChannel[]} */
  channels = [];
  /** Those among them for urgent frames alone. @type {Set<RTCDataChannel>} */
  reserved = new Set();
  urgent = new Waiting();
  bulk = new Waiting();
  forwardingBytes = 0;
  sentBytes = 0;
  receivedBytes = 0;
  activeBytes = 0;
  activeMs = 0;
  heardAt = 0;

  /** @param {Uint8Array} head of a flow or frame */
  waiting(head) {
    return isUrgent(head) ? this.urgent : this.bulk;
  }

  /**
   * What is sent next and where: urgent frames first, on the channel with the least unsent data.
   * @returns {{waiting: Waiting, channel: RTCDataChannel} | null}
   */
  next() {
    for (const waiting of [this.urgent, this.bulk]) {
      const channel = waiting.isEmpty ? null : this.#channel(waiting === this.urgent);
      if (channel) return { waiting, channel };
    }
    return null;
  }

  /** The open channel with the least unsent data that may take more. @param {boolean} urgent */
  #channel(urgent) {
    let best = null;
    for (const channel of this.channels) {
      if (channel.readyState !== "open" || channel.bufferedAmount >= HIGH_BYTES) continue;
      if (this.reserved.has(channel) && !urgent) continue;
      if (best === null || channel.bufferedAmount < best.bufferedAmount) best = channel;
    }
    return best;
  }

  /** @param {(head: Uint8Array) => boolean} isMeant what is not to be sent any more */
  drop(isMeant) {
    this.forwardingBytes -= this.urgent.drop(isMeant) + this.bulk.drop(isMeant);
  }

  /** @param {number} bytes that just came, for the measured speed */
  heard(bytes) {
    const now = performance.now();
    this.receivedBytes += bytes;
    this.activeBytes += bytes;
    this.activeMs += Math.min(now - this.heardAt, PAUSE_MS);
    this.heardAt = now;
    if (this.activeBytes > 1 << 24) {
      this.activeBytes /= 2; // older transfers count for less and less
      this.activeMs /= 2;
    }
  }
}

/** All bulk traffic of this page. */
export class BulkPlane {
  /** @type {Map<string, Neighbour>} */
  #neighbours = new Map();
  /** @type {Map<string, Awaited>} */
  #awaited = new Map();
  /** @type {Map<string, {me: number, hops: string[]}>} */
  #routes = new Map();
  #scratch = new Uint8Array(FRAME_BYTES);
  #turns = new MessageChannel();
  /** @type {Neighbour[]} */
  #ready = [];
  #dropped = { malformed: 0, unexpected: 0, duplicate: 0, overflow: 0 };
  #fetchedFrames = 0;

  /** @param {(peer: string, header: Uint8Array, data: Uint8Array) => void} complete */
  constructor(complete) {
    this.complete = complete;
    this.#turns.port1.onmessage = () => {
      const neighbour = this.#ready.shift();
      if (neighbour) this.#pump(neighbour);
    };
  }

  /**
   * Use one more channel to a neighbour, from when it opens until it closes.
   * @param {string} peer
   * @param {RTCDataChannel} channel
   * @param {boolean} [urgent] whether it is reserved for urgent frames
   */
  addChannel(peer, channel, urgent = false) {
    const neighbour = this.#neighbours.get(peer) ?? new Neighbour();
    this.#neighbours.set(peer, neighbour);
    neighbour.channels.push(channel);
    if (urgent) neighbour.reserved.add(channel);
    channel.binaryType = "arraybuffer";
    channel.bufferedAmountLowThreshold = LOW_BYTES;
    channel.onmessage = (event) => this.#receive(peer, neighbour, event.data);
    channel.onopen = channel.onbufferedamountlow = () => this.#pump(neighbour);
    channel.onclose = () => this.removeChannel(peer, channel);
  }

  /**
   * Stop using a channel; with the last one all that waits for the neighbour is given up.
   * @param {string} peer
   * @param {RTCDataChannel} channel
   */
  removeChannel(peer, channel) {
    const neighbour = this.#neighbours.get(peer);
    if (!neighbour?.channels.includes(channel)) return;
    neighbour.channels = neighbour.channels.filter((other) => other !== channel);
    neighbour.reserved.delete(channel);
    if (neighbour.channels.length) return;
    this.#neighbours.delete(peer);
    for (const waiting of [neighbour.urgent, neighbour.bulk]) {
      for (const { reject } of waiting.sending.splice(0)) {
        reject(new Error(`link to ${peer} closed`));
      }
      waiting.forwarding = [];
    }
  }

  /**
   * Send one flow to a neighbour: resolves when all of it is with the browser.  The payload must
   * not change until then.
   * @param {string} peer
   * @param {Uint8Array} header of which sequence and CRC are filled in here
   * @param {Uint8Array} payload
   * @returns {Promise<void>}
   */
  send(peer, header, payload) {
    const neighbour = this.#neighbours.get(peer);
    if (!neighbour) return Promise.reject(new Error(`no link to ${peer}`));
    const count = frameCount(payload.length);
    return new Promise((resolve, reject) => {
      neighbour.waiting(header).sending.push({ header, payload, next: 0, count, resolve, reject });
      this.#pump(neighbour);
    });
  }

  /**
   * Await flows; everything that is not awaited is dropped.
   * @param {string} peer who must send them, or "" for any neighbour
   * @param {Uint8Array} headers 32 bytes each
   */
  expect(peer, headers) {
    for (let at = 0; at + HEADER_BYTES <= headers.length; at += HEADER_BYTES) {
      const header = headers.slice(at, at + HEADER_BYTES);
      const view = viewOf(header);
      const total = view.getUint32(TOTAL, true);
      const left = frameCount(total);
      this.#awaited.set(flowKey(view), { peer, header, total, left, come: null, data: null });
    }
  }

  /**
   * Pass frames of one attempt at a step on.
   * @param {number} step
   * @param {number} epoch
   * @param {number} me this device's index in the roster: frames for it stay here
   * @param {string[]} hops by target index the neighbour that is nearer
   */
  route(step, epoch, me, hops) {
    this.#routes.set(`${step}.${epoch}`, { me, hops });
  }

  /**
   * End an attempt: its flows are awaited and forwarded no more.
   * @param {number} step
   * @param {number} epoch
   */
  forget(step, epoch) {
    this.#routes.delete(`${step}.${epoch}`);
    const isMeant = isOfAttempt(step, epoch);
    for (const [key, { header }] of this.#awaited) if (isMeant(header)) this.#awaited.delete(key);
  }

  /**
   * Send nothing more of an attempt, to anybody: it was given up everywhere.
   * @param {number} step
   * @param {number} epoch
   */
  abandon(step, epoch) {
    const isMeant = isOfAttempt(step, epoch);
    for (const neighbour of this.#neighbours.values()) neighbour.drop(isMeant);
  }

  /** Send nothing more of what is served to a neighbour that comes in. @param {string} peer */
  stopServing(peer) {
    this.#neighbours.get(peer)?.drop(isServed);
  }

  /** Await nothing more of what this device fetched as it came in; what has come of it is freed. */
  stopFetching() {
    for (const [key, { header }] of this.#awaited) if (isServed(header)) this.#awaited.delete(key);
  }

  /** How many frames of the state or plan that this device fetches have come so far. */
  fetchedFrames() {
    return this.#fetchedFrames;
  }

  /** How many frames of an awaited flow are still to come; 0 if it is not awaited. @param {Uint8Array} header */
  framesLeft(header) {
    return this.#awaited.get(flowKey(viewOf(header)))?.left ?? 0;
  }

  /** Flows that are still awaited: `{peer, header, left}`, `left` frames of it have not come. */
  missing() {
    return [...this.#awaited.values()].map(({ peer, header, left }) => ({ peer, header, left }));
  }

  /** Frames that were dropped, by reason. */
  dropped() {
    return { ...this.#dropped };
  }

  /**
   * What was moved to and from a neighbour.
   * @param {string} peer
   */
  traffic(peer) {
    const n = this.#neighbours.get(peer) ?? new Neighbour();
    const megabytesPerSecond = n.activeMs > 0 ? n.activeBytes / n.activeMs / 1000 : 0;
    return {
      channels: n.channels.filter((channel) => channel.readyState === "open").length,
      sentBytes: n.sentBytes,
      receivedBytes: n.receivedBytes,
      megabytesPerSecond,
    };
  }

  /** @param {Neighbour} neighbour fill its channels, but not for long at a time */
  #pump(neighbour) {
    for (let burst = 0; burst < BURST_FRAMES; burst++) {
      const next = neighbour.next();
      if (!next) return;
      const { waiting, channel } = next;
      const frame = waiting.forwarding.shift();
      if (frame) {
        channel.send(frame);
        neighbour.sentBytes += frame.length;
        neighbour.forwardingBytes -= frame.length;
        continue;
      }
      const [sending] = waiting.sending;
      const bytes = this.#fill(sending);
      channel.send(bytes);
      neighbour.sentBytes += bytes.length;
      if (++sending.next === sending.count) {
        waiting.sending.shift();
        sending.resolve();
      }
    }
    this.#ready.push(neighbour);
    this.#turns.port2.postMessage(null);
  }

  /** @param {Sending} sending its next frame, in a buffer that is used again */
  #fill({ header, payload, next }) {
    const offset = next * PAYLOAD_BYTES;
    const part = payload.subarray(offset, offset + PAYLOAD_BYTES);
    const frame = this.#scratch.subarray(0, HEADER_BYTES + part.length);
    frame.set(header);
    frame.set(part, HEADER_BYTES);
    const view = viewOf(frame);
    view.setUint16(SEQUENCE, next, true);
    view.setUint32(CRC, frameCrc(frame), true);
    return frame;
  }

  /**
   * @param {string} peer
   * @param {Neighbour} neighbour
   * @param {unknown} data
   */
  #receive(peer, neighbour, data) {
    if (!(data instanceof ArrayBuffer) || data.byteLength > FRAME_BYTES) {
      this.#dropped.malformed++;
      return;
    }
    neighbour.heard(data.byteLength);
    const frame = new Uint8Array(data);
    const length = frame.length - HEADER_BYTES;
    const view = new DataView(data);
    if (length < 0 || (view.getUint32(0, true) & 0xffffff) !== MAGIC_AND_VERSION) {
      this.#dropped.malformed++;
      return;
    }
    const total = view.getUint32(TOTAL, true);
    const sequence = view.getUint16(SEQUENCE, true);
    const offset = sequence * PAYLOAD_BYTES;
    const fits =
      sequence < frameCount(total) &&
      length === Math.min(PAYLOAD_BYTES, total - offset) &&
      view.getUint16(ZERO, true) === 0;
    if (!fits || view.getUint32(CRC, true) !== frameCrc(frame)) {
      this.#dropped.malformed++;
      return;
    }
    const route = this.#routes.get(`${view.getUint32(STEP, true)}.${view.getUint32(EPOCH, true)}`);
    if (route && frame[TARGET] !== route.me) this.#forward(peer, route.hops[frame[TARGET]], frame);
    else this.#store(peer, flowKey(view), sequence, frame.subarray(HEADER_BYTES));
  }

  /**
   * @param {string} peer from whom it came
   * @param {string | undefined} hop
   * @param {Uint8Array} frame
   */
  #forward(peer, hop, frame) {
    const neighbour = hop === undefined || hop === peer ? undefined : this.#neighbours.get(hop);
    if (!neighbour) {
      this.#dropped.unexpected++;
    } else if (neighbour.forwardingBytes + frame.length > FORWARD_LIMIT_BYTES) {
      this.#dropped.overflow++;
    } else {
      neighbour.waiting(frame).forwarding.push(frame);
      neighbour.forwardingBytes += frame.length;
      this.#pump(neighbour);
    }
  }

  /**
   * @param {string} peer
   * @param {string} key
   * @param {number} sequence
   * @param {Uint8Array} payload
   */
  #store(peer, key, sequence, payload) {
    const flow = this.#awaited.get(key);
    if (!flow || (flow.peer && flow.peer !== peer)) {
      this.#dropped.unexpected++;
      return;
    }
    flow.data ??= new Uint8Array(flow.total);
    flow.come ??= new Uint8Array(frameCount(flow.total));
    if (flow.come[sequence]) {
      this.#dropped.duplicate++;
      return;
    }
    flow.come[sequence] = 1;
    if (isServed(flow.header) && flow.header[3] !== CATCH_UP) this.#fetchedFrames++;
    flow.data.set(payload, sequence * PAYLOAD_BYTES);
    if (--flow.left > 0) return;
    this.#awaited.delete(key);
    this.complete(peer, flow.header, flow.data);
  }
}
