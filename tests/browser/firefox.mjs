// Opens a page in headless Firefox and prints the first truthy value of an expression there as JSON.
// A page from the disk gets no network at all: all of it goes to a proxy that is not there.
// usage: node firefox.mjs EXECUTABLE URL EXPRESSION TIMEOUT_S

import puppeteer from "puppeteer-core";

const [executablePath, url, expression, timeout_s] = process.argv.slice(2);

const NO_NETWORK = {
  "network.proxy.type": 1,
  "network.proxy.http": "127.0.0.1",
  "network.proxy.http_port": 9,
  "network.proxy.ssl": "127.0.0.1",
  "network.proxy.ssl_port": 9,
  "network.proxy.allow_hijacking_localhost": true,
};

const browser = await puppeteer.launch({
  browser: "firefox",
  executablePath,
  headless: true,
  protocolTimeout: Number(timeout_s) * 1000,
  extraPrefsFirefox: {
    "dom.webgpu.enabled": true,
    "gfx.webgpu.ignore-blocklist": true,
    "gfx.webgpu.force-enabled": true,
    "dom.webgpu.allow-fallback-adapter": true,
    "media.peerconnection.ice.loopback": true,
    "media.peerconnection.ice.obfuscate_host_addresses": false,
    "network.captive-portal-service.enabled": false,
    "network.connectivity-service.enabled": false,
    "browser.safebrowsing.malware.enabled": false,
    "browser.safebrowsing.phishing.enabled": false,
    "browser.safebrowsing.downloads.enabled": false,
    ...(url.startsWith("file:") ? NO_NETWORK : {}),
  },
});
const lines = [];
try {
  const page = await browser.newPage();
  page.on("console", (message) => lines.push(message.text()));
  page.on("pageerror", (error) => lines.push(String(error)));
  await page.goto(url);
  const handle = await page.waitForFunction(expression, { timeout: Number(timeout_s) * 1000 });
  process.stdout.write(JSON.stringify(await handle.jsonValue()));
} catch (error) {
  process.stderr.write([String(error), ...lines].join("\n"));
  process.exitCode = 1;
} finally {
  await browser.close();
}
