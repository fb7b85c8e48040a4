/**
 * Service Worker that makes the page cross-origin isolated on hosts that cannot set headers.
 *
 * Isolation gives the page shared memory, and so the CPU player more than one Worker.  The page
 * registers this file only when a person asks for it (`daisychain.platform.isolation`).  Nothing is
 * cached: every answer is the network's own with two headers more.
 */

const HEADERS = {
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Opener-Policy": "same-origin",
};

/** @param {Request} request */
async function isolated(request) {
  const response = await fetch(request);
  if (response.status === 0) return response; // opaque or a redirect: nothing may be added
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}

addEventListener("install", () => self.skipWaiting());
addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
addEventListener("fetch", (event) => {
  const { request } = event;
  const isOwn = new URL(request.url).origin === location.origin;
  if (isOwn && !(request.cache === "only-if-cached" && request.mode !== "same-origin"))
    event.respondWith(isolated(request));
});
