// The replay loop on a counting fake: what it asks of the device, and what it does when that fails.

import assert from "node:assert/strict";
import test from "node:test";
import { WebGPUPlayer } from "../../app/js/webgpu_player.js";
import { fakeGPU } from "./fake_gpu.mjs";

const SOURCES = JSON.stringify([{ key: "k", code: "fn main() {}", access: ["storage"] }]);
const PROGRAM = JSON.stringify({
  scalarBytes: 64,
  storages: [400, 24],
  buffers: [
    ["x", 0, 400],
    ["record", 1, 24],
  ],
  kernels: ["k"],
  params: [[1, 2], [3]],
  calls: [
    [0, 0, 1, 1, 1, 0],
    [0, 1, 2, 1, 1, 1],
  ],
  plans: { step: [0, 1, 0], end: [1] },
});

async function loaded(options) {
  const gpu = fakeGPU(options);
  const player = await WebGPUPlayer.open(gpu);
  assert.equal(await player.compile(SOURCES), "[]");
  await player.load(PROGRAM);
  return { player, device: gpu.device };
}

test("a run is one submit and one map, and buffers do not grow", async () => {
  const { player, device } = await loaded();
  await player.run(["step", "end"], "record");
  const before = { ...device.counts };
  const { buffers, bufferBytes } = player.counters;
  for (let step = 0; step < 200; step++) {
    player.writeScalars(0, new Uint32Array(4));
    player.write("x", 0, new Uint8Array(16));
    const record = await player.run(["step", "end"], "record");
    assert.equal(record.length, 24);
  }
  assert.equal(device.counts.submits - before.submits, 200);
  assert.equal(device.counts.maps - before.maps, 200);
  assert.equal(device.counts.dispatches - before.dispatches, 800);
  assert.equal(device.counts.writes - before.writes, 400);
  assert.equal(device.counts.created, before.created);
  assert.equal(device.counts.live, before.live);
  assert.deepEqual([player.counters.buffers, player.counters.bufferBytes], [buffers, bufferBytes]);
  assert.equal(player.counters.buffers, device.counts.live);
  assert.equal(player.counters.submits, 201);
});

test("two runs may be in flight, a third is refused", async () => {
  const { player, device } = await loaded();
  let open = () => {};
  const gate = new Promise((resolve) => {
    open = resolve;
  });
  device.mapping = () => gate;
  const both = [player.run(["step"], "x"), player.run(["end"], "record")];
  await assert.rejects(player.run(["end"], "x"), { name: "Invalid" });
  open();
  await Promise.all(both);
  await player.run(["end"], "x");
});

test("a run with several reads is one submit and one map too", async () => {
  const { player, device } = await loaded();
  const piece = () => player.runAndRead(["step"], ["x", "record"]);
  await Promise.all([piece(), piece()]);
  const before = { ...device.counts };
  let open = () => {};
  const gate = new Promise((resolve) => {
    open = resolve;
  });
  device.mapping = () => gate;
  const both = [piece(), player.runAndRead(["end"], ["x"])];
  await Promise.resolve(); // both are with the device, though nothing was read back
  assert.equal(device.counts.submits - before.submits, 2);
  open();
  const [[x, record, scalars], second] = await Promise.all(both);
  assert.deepEqual([x.length, record.length, scalars.length], [400, 24, 64]);
  assert.deepEqual(
    second.map((part) => part.length),
    [400, 64],
  );
  assert.equal(device.counts.maps - before.maps, 2);
  assert.equal(device.counts.dispatches - before.dispatches, 4);
  assert.equal(device.counts.created - before.created, 0);
});

test("a new program takes the place of the old one", async () => {
  const { player, device } = await loaded();
  const live = device.counts.live;
  for (let i = 0; i < 5; i++) await player.load(PROGRAM);
  assert.equal(device.counts.live, live);
});

test("a download leaves no buffer behind", async () => {
  const { player, device } = await loaded();
  const live = device.counts.live;
  assert.equal((await player.read(["x", "record", "x"])).length, 824);
  assert.equal((await player.readScalars()).length, 64);
  assert.equal(device.counts.live, live);
  assert.equal(device.counts.maps, 2);
});

test("a device lost in mid-run rejects the run, though the map hangs", async () => {
  const { player, device } = await loaded();
  device.mapping = () => new Promise(() => {});
  const run = player.run(["step"], "record");
  device.lose("unknown");
  await assert.rejects(run, { name: "DeviceLost", message: "unknown: the test took it" });
  assert.equal(await player.lost, "unknown: the test took it");
  await assert.rejects(player.run(["step"], "record"), { name: "DeviceLost" });
  await assert.rejects(player.load(PROGRAM), { name: "DeviceLost" });
  await assert.rejects(player.read(["x"]), { name: "DeviceLost" });
});

test("a rejected map is a lost device", async () => {
  const { player, device } = await loaded();
  device.mapping = async () => {
    throw new Error("Device was lost before mapping was resolved");
  };
  await assert.rejects(player.run(["step"], "record"), {
    name: "DeviceLost",
    message: "Device was lost before mapping was resolved",
  });
});

test("an uncaptured error makes the run's result unusable", async () => {
  const { player, device } = await loaded();
  for (const listener of device.listeners) listener({ error: { message: "bad dispatch" } });
  await assert.rejects(player.run(["step"], "record"), {
    name: "Invalid",
    message: "bad dispatch",
  });
  await player.run(["step"], "record");
});

test("a shader that does not compile is named with its first error", async () => {
  const player = await WebGPUPlayer.open(fakeGPU());
  const broken = { key: "gemm3", code: "dot4I8Packed(a, b)", access: [] };
  const answer = JSON.parse(await player.compile(JSON.stringify([broken])));
  assert.deepEqual(answer, [["gemm3", "line 7: unknown identifier 'dot4I8Packed'"]]);
  await assert.rejects(
    player.load(JSON.stringify({ ...JSON.parse(PROGRAM), kernels: ["gemm3"] })),
    {
      name: "Invalid",
      message: "kernel gemm3 is not compiled",
    },
  );
});

test("no adapter and no device are refusals", async () => {
  for (const options of [{ noAdapter: true }, { noDevice: true }]) {
    await assert.rejects(WebGPUPlayer.open(fakeGPU(options)), { name: "AdapterRefused" });
  }
});

test("an adapter that comes late is found", async () => {
  const gpu = fakeGPU({ lateAdapter: true });
  await WebGPUPlayer.open(gpu);
  assert.equal(gpu.adapters, 2);
});

test("each opening asks for a new adapter", async () => {
  const gpu = fakeGPU();
  await WebGPUPlayer.open(gpu);
  await WebGPUPlayer.open(gpu);
  assert.equal(gpu.adapters, 2);
});

test("an adapter without info, features and limits opens", async () => {
  const player = await WebGPUPlayer.open(fakeGPU({ bare: true }));
  assert.equal(player.info, "");
  assert.deepEqual(player.languageFeatures, []);
});

test("memory and validation errors at load free everything", async () => {
  for (const [failingScope, name] of [
    ["out-of-memory", "OutOfMemory"],
    ["validation", "Invalid"],
  ]) {
    const gpu = fakeGPU({ failingScope });
    const player = await WebGPUPlayer.open(gpu);
    await player.compile(SOURCES);
    await assert.rejects(player.load(PROGRAM), { name, message: "the fake says no" });
    assert.equal(gpu.device.counts.live, 0);
    assert.equal(player.counters.bufferBytes, 0);
  }
});
