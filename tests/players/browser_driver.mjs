// Drives app/js/webgpu_player.js in a real browser for the tests: one JSON request a line on stdin,
// one JSON answer a line on stdout.  usage: node browser_driver.mjs chromium|firefox EXECUTABLE
//
// {"method": m, "args": [...]} calls the page's player; m = "open" makes it, m = "loseInRun" starts
// a run and destroys the device under it.  Bytes travel as {"base64": text}.  Answers:
// {"value": ...} or {"error": [name, message]}.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import puppeteer from "puppeteer-core";

const [browserName, executablePath] = process.argv.slice(2);
const scripts = new URL("../../app/js/", import.meta.url);

const PAGE = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<script type="module">
import { WebGPUPlayer } from "/webgpu_player.js";
let player = null;
const pack = (value) => {
  if (Array.isArray(value)) return value.map(pack);
  return value instanceof Uint8Array ? { base64: value.toBase64() } : value;
};
const unpack = (value) => (value?.base64 === undefined ? value : Uint8Array.fromBase64(value.base64));
window.request = async ({ method, args }) => {
  try {
    if (method === "open") {
      player?.destroy();
      player = await WebGPUPlayer.open(navigator.gpu);
      const { info, limits, languageFeatures } = player;
      return { value: { info, limits, languageFeatures } };
    }
    if (method === "loseInRun") {
      const run = player.run(...args);
      player.destroy();
      return { value: pack(await run) };
    }
    if (method === "counters") return { value: player.counters };
    return { value: pack(await player[method](...args.map(unpack))) ?? null };
  } catch (error) {
    return { error: [error.name, error.message] };
  }
};
</script>`;

const FLAGS = [
  "--no-sandbox",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
];
const PREFERENCES = {
  "dom.webgpu.enabled": true,
  "gfx.webgpu.ignore-blocklist": true,
  "gfx.webgpu.force-enabled": true,
  "dom.webgpu.allow-fallback-adapter": true,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "browser.safebrowsing.malware.enabled": false,
  "browser.safebrowsing.phishing.enabled": false,
  "browser.safebrowsing.downloads.enabled": false,
};

const server = createServer(async (request, response) => {
  const isScript = /^\/(webgpu\/)?\w+\.js$/.test(request.url);
  response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
  response.end(isScript ? await readFile(new URL(request.url.slice(1), scripts)) : PAGE);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const common = { executablePath, headless: true, protocolTimeout: 300_000 };
const browser = await puppeteer.launch(
  browserName === "firefox"
    ? { ...common, browser: "firefox", extraPrefsFirefox: PREFERENCES }
    : { ...common, args: FLAGS },
);
try {
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  await page.waitForFunction("window.request !== undefined");
  process.stdout.write('{"value": "ready"}\n');
  for await (const line of createInterface({ input: process.stdin })) {
    const answer = await page.evaluate((text) => window.request(JSON.parse(text)), line);
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
} finally {
  await browser.close();
  server.close();
}
