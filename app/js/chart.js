/**
 * The loss chart: uPlot with our series, colours and zoom.  Python decides what is shown.
 *
 * Colours are the page's custom properties, read at each change of the colour scheme.
 */
import uPlot from "uplot";

const PADDING = 0.06; // of the visible span, above and below
const LEAST_MARGIN = 0.05; // nats or bits: the noise of two steps must not fill the chart
const LEAST_STEPS = 10; // an axis shorter than this would show fractions of steps

/** @param {HTMLElement} host */
function palette(host) {
  const style = getComputedStyle(host);
  const names = ["ink", "muted", "faint", "rule", "accent"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

/** @param {number | null} low @param {number | null} high @returns {[number, number]} */
function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  const margin = Math.max((high - low) * PADDING, LEAST_MARGIN);
  return [low - margin, high + margin];
}

export class LossChart {
  /**
   * @param {HTMLElement} host its size is the chart's size
   * @param {(index: number) => void} onCursor number of the point under the cursor, or -1
   * @param {(zoomed: boolean) => void} onZoom a person has chosen a part, or has let it go
   */
  constructor(host, onCursor, onZoom) {
    this.host = host;
    this.onZoom = onZoom;
    this.colours = palette(host);
    this.steps = [];
    this.series = [[], [], []]; // each step's loss, the smoothed loss, held-out
    this.factor = 1;
    this.last = 0; // how many steps back the chart shows; 0 = all
    this.zoomed = false;
    this.plot = new uPlot(this.#options(onCursor), [[], [], [], []], host);
    new ResizeObserver(() =>
      this.plot.setSize({ width: host.clientWidth, height: host.clientHeight }),
    ).observe(host);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = palette(host);
      this.plot.redraw(false, true);
    });
    this.#listenForTouch();
  }

  /** @param {number} step @param {number} loss @param {number} smooth @param {number?} heldout */
  add(step, loss, smooth, heldout) {
    this.steps.push(step);
    this.series[0].push(loss);
    this.series[1].push(smooth);
    this.series[2].push(heldout ?? null);
  }

  /** The held-out loss of the last step. @param {number} heldout */
  amend(heldout) {
    this.series[2][this.series[2].length - 1] = heldout;
  }

  draw() {
    const scaled =
      this.factor === 1
        ? this.series
        : this.series.map((values) => values.map((v) => (v === null ? null : v * this.factor)));
    this.plot.setData([this.steps, ...scaled], false);
    if (this.zoomed) return this.plot.redraw();
    const newest = this.steps.at(-1) ?? 0;
    const first = this.last
      ? Math.max(this.steps[0] ?? 0, newest - this.last)
      : (this.steps[0] ?? 0);
    this.plot.setScale("x", { min: first, max: Math.max(newest, first + LEAST_STEPS) });
  }

  /** Show the last so many steps, or all for 0. @param {number} steps */
  show(steps) {
    this.last = steps;
    this.#zoom(false);
    this.draw();
  }

  /** Multiply what is shown. @param {number} factor */
  scale(factor) {
    this.factor = factor;
    this.draw();
  }

  /** Move the cursor by so many points. @param {number} points */
  move(points) {
    const from = this.plot.cursor.idx ?? this.steps.length - 1;
    const index = Math.max(0, Math.min(this.steps.length - 1, from + points));
    const left = this.plot.valToPos(this.steps[index], "x");
    this.plot.setCursor({ left, top: this.plot.over.clientHeight / 2 });
  }

  clear() {
    this.steps.length = 0;
    for (const values of this.series) values.length = 0;
    this.#zoom(false);
    this.draw();
  }

  /** @param {boolean} zoomed */
  #zoom(zoomed) {
    if (zoomed === this.zoomed) return;
    this.zoomed = zoomed;
    this.onZoom(zoomed);
  }

  /** A finger moves the cursor; up and down still scrolls the page (touch-action: pan-y). */
  #listenForTouch() {
    this.plot.over.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch")
        this.plot.setCursor({ left: event.offsetX, top: event.offsetY });
    });
  }

  /** @param {(index: number) => void} onCursor */
  #options(onCursor) {
    const font = `11px ${getComputedStyle(this.host).fontFamily}`;
    const colour = (/** @type {string} */ name) => () => this.colours[name];
    const axis = { stroke: colour("muted"), font, ticks: { show: false } };
    const grid = { stroke: colour("rule"), width: 1 };
    return {
      width: this.host.clientWidth,
      height: this.host.clientHeight,
      padding: [8, 14, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false },
        points: { size: 7, width: 0 },
        bind: {
          dblclick: () => () => {
            this.#zoom(false);
            this.draw();
          },
        },
      },
      scales: { x: { time: false }, y: { range: (_, low, high) => padded(low, high) } },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 24,
          gap: 6,
          incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5],
        },
        { ...axis, grid, size: 40, gap: 6 },
      ],
      series: [
        {},
        { stroke: colour("faint"), width: 1, points: { show: false } },
        { stroke: colour("accent"), width: 2, points: { show: false } },
        {
          stroke: colour("ink"),
          width: 1.25,
          spanGaps: true,
          points: { show: true, size: 5, width: 0, fill: colour("ink") },
        },
      ],
      hooks: {
        setCursor: [(plot) => onCursor(plot.cursor.idx ?? -1)],
        setSelect: [(plot) => plot.select.width > 0 && this.#zoom(true)],
      },
    };
  }
}

/**
 * @param {HTMLElement} host @param {(index: number) => void} onCursor
 * @param {(zoomed: boolean) => void} onZoom @returns {LossChart}
 */
export const openChart = (host, onCursor, onZoom) => new LossChart(host, onCursor, onZoom);
