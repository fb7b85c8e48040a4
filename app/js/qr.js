/**
 * QR codes: drawn by uqr, read from the camera by the browser's BarcodeDetector or, without that, by
 * jsQR on a canvas.
 */
import jsQR from "jsqr";
import { renderSVG } from "uqr";

const SCAN_MS = 120; // between two looks at the picture
const LONGEST_SIDE = 960; // pixels that jsQR gets to see

/**
 * An SVG picture of a QR code, black on white whatever the page's colours.
 * @param {string} text
 */
export const qrSvg = (text) => renderSVG(text, { ecc: "L", border: 2 });

/** The detector of the browser, or null where it cannot read QR codes. */
async function detector() {
  const Detector = globalThis.BarcodeDetector;
  if (!Detector) return null;
  const formats = await Detector.getSupportedFormats().catch(() => []);
  return formats.includes("qr_code") ? new Detector({ formats: ["qr_code"] }) : null;
}

/**
 * The text of the QR code in a picture, or "".
 * @param {CanvasImageSource} picture
 * @param {number} width
 * @param {number} height
 */
export async function readQr(picture, width, height) {
  const native = await detector();
  if (native) {
    const [found] = await native.detect(picture).catch(() => []);
    if (found) return found.rawValue;
  }
  if (!width || !height) return "";
  const scale = Math.min(1, LONGEST_SIDE / Math.max(width, height));
  const canvas = new OffscreenCanvas(Math.ceil(width * scale), Math.ceil(height * scale));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  return jsQR(data, canvas.width, canvas.height)?.data ?? "";
}

/**
 * Show the camera in a video element and watch for a QR code until `stop`.
 * @param {HTMLVideoElement} video
 * @param {(text: string) => boolean} found called with each text; true ends the scan
 * @returns {Promise<() => void>} stops the scan and the camera; rejects without a camera
 */
export async function scanQr(video, found) {
  const camera = { video: { facingMode: "environment" } };
  const stream = await navigator.mediaDevices.getUserMedia(camera);
  let running = true;
  const stop = () => {
    running = false;
    for (const track of stream.getTracks()) track.stop();
    video.srcObject = null;
  };
  video.srcObject = stream;
  video.playsInline = true;
  video.muted = true;
  await video.play();
  const look = async () => {
    if (!running) return;
    const text = await readQr(video, video.videoWidth, video.videoHeight);
    if (running && text && found(text)) stop();
    else setTimeout(look, SCAN_MS);
  };
  look();
  return stop;
}
