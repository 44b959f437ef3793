// A small timeline of the running trial: its median with a band up to p99, and lost packets on a strip
// below. It shows what the events say since the page was opened.
import { delay } from "./page";

/** Maximum number of points; beyond it, neighbours are merged. */
const MAX_POINTS = 240;
/** Time without events that is shown as a gap, in milliseconds. */
const GAP_TIME = 2_000;
/** Sizes in pixels. The width is that of the page. */
const [HEIGHT, LEFT, RIGHT, TOP, STRIP] = [168, 60, 8, 8, 18];
const PLOT_HEIGHT = 110;
const MIN_WIDTH = 240;
const SVG = "http://www.w3.org/2000/svg";

/** Figures of a trial so far, as events report them. */
export interface Progress {
  at: string;
  trial: number;
  sent: number | null;
  lost: number | null;
  p50_ns: number | null;
  p99_ns: number | null;
}

interface Point {
  /** Milliseconds since the trial began. */
  time: number;
  p50: number;
  p99: number;
  /** Packets lost since the point before. */
  lost: number;
}

/** Halves the number of points: each pair becomes its later point, with the losses of both. */
export function merged(points: Point[]): Point[] {
  const pairs = points.filter((_, i) => i % 2 === 1);
  pairs.forEach((later, i) => (later.lost += points[2 * i].lost));
  if (points.length % 2 === 1) pairs.push(points[points.length - 1]);
  return pairs;
}

function element(name: string, parent: Element, attributes: Record<string, string | number> = {}): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return parent.appendChild(made) as SVGElement;
}

/** Values 1, 2 and 5 times powers of ten within a range; at least its ends. */
function ticks(from: number, to: number): number[] {
  const found: number[] = [];
  for (let power = 10 ** Math.floor(Math.log10(from)); power <= to; power *= 10) {
    for (const value of [power, 2 * power, 5 * power]) if (value >= from && value <= to) found.push(value);
  }
  while (found.length > 5) found.splice(0, found.length, ...found.filter((_, i) => i % 2 === 0));
  return found.length >= 2 ? found : [from, to];
}

/** A delay without decimals that say nothing. */
function tickText(ns: number): string {
  const [unit, name] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "us"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${Number((ns / unit).toPrecision(3))} ${name}`;
}

export class Timeline {
  private trial = 0;
  private began = 0;
  private lost = 0;
  private points: Point[] = [];
  private readonly svg: SVGElement;
  private readonly plot: SVGElement;
  private readonly text: SVGElement;

  constructor(private readonly box: HTMLElement) {
    this.svg = element("svg", box.querySelector(".drawing")!, {
      role: "img", height: HEIGHT, "aria-labelledby": "timeline-name", "aria-describedby": "timeline-text",
    });
    element("title", this.svg, { id: "timeline-name" }).textContent = "Delay during the trial";
    this.text = element("desc", this.svg, { id: "timeline-text" });
    this.plot = element("g", this.svg);
  }

  /** Forgets the trial before. */
  begin(trial: number, at: string): void {
    if (trial === this.trial && this.points.length) return;
    Object.assign(this, { trial, began: Date.parse(at), lost: 0, points: [] });
  }

  /** Adds the figures of an event. */
  add(progress: Progress): void {
    const at = Date.parse(progress.at);
    // The page was opened during the trial.
    if (progress.trial !== this.trial) this.begin(progress.trial, progress.at);
    const { p50_ns: p50, p99_ns: p99 } = progress;
    if (p50 === null || p50 <= 0 || !Number.isFinite(at)) return;
    const lost = this.points.length ? Math.max(0, (progress.lost ?? 0) - this.lost) : 0;
    this.lost = progress.lost ?? 0;
    this.points.push({ time: at - this.began, p50, p99: Math.max(p99 ?? p50, p50), lost });
    if (this.points.length > MAX_POINTS) this.points = merged(this.points);
  }

  /** Draws the points, unless there are too few for a line. */
  draw(): void {
    const { points } = this;
    this.box.hidden = points.length < 2;
    if (this.box.hidden) return;
    const width = Math.max(MIN_WIDTH, this.box.clientWidth);
    this.svg.setAttribute("width", String(width));
    const [first, last] = [points[0].time, points[points.length - 1].time];
    const least = Math.min(...points.map(({ p50 }) => p50));
    const most = Math.max(...points.map(({ p99 }) => p99), least * 1.05);
    const [low, high] = [Math.log(least / 1.1), Math.log(most * 1.1)];
    const x = (time: number) => LEFT + ((time - first) / Math.max(1, last - first)) * (width - LEFT - RIGHT);
    const y = (ns: number) => TOP + (1 - (Math.log(ns) - low) / (high - low)) * PLOT_HEIGHT;
    const at = (time: number, ns: number) => `${x(time).toFixed(1)},${y(ns).toFixed(1)}`;

    this.plot.replaceChildren();
    for (const tick of ticks(least, most)) {
      element("line", this.plot, { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) });
      element("text", this.plot, { class: "axis", x: LEFT - 6, y: y(tick) + 4 }).textContent = tickText(tick);
    }
    // Points after a pause of events begin anew.
    const usual = (last - first) / points.length;
    const parts: Point[][] = [];
    points.forEach((point, i) => {
      if (i === 0 || point.time - points[i - 1].time > GAP_TIME + 3 * usual) parts.push([]);
      parts[parts.length - 1].push(point);
    });
    for (const part of parts) {
      const up = part.map(({ time, p99 }) => at(time, p99));
      const down = part.map(({ time, p50 }) => at(time, p50));
      element("polygon", this.plot, { class: "band", points: [...up, ...[...down].reverse()].join(" ") });
      element("polyline", this.plot, { class: "median", points: down.join(" ") });
    }
    const strip = TOP + PLOT_HEIGHT + STRIP;
    element("line", this.plot, { class: "grid", x1: LEFT, x2: width - RIGHT, y1: strip, y2: strip });
    element("text", this.plot, { class: "axis", x: LEFT - 6, y: strip + 4 }).textContent = "lost";
    for (const { time, lost } of points) {
      if (!lost) continue;
      const [cx, size] = [x(time), 4];
      const cross = `M${cx - size},${strip - size}l${2 * size},${2 * size}m0,${-2 * size}l${-2 * size},${2 * size}`;
      element("path", this.plot, { class: "lost", d: cross });
    }
    const seconds = (time: number) => `${(time / 1e3).toFixed(1)} s`;
    element("text", this.plot, { class: "axis start", x: LEFT, y: HEIGHT - 6 }).textContent = seconds(first);
    element("text", this.plot, { class: "axis", x: width - RIGHT, y: HEIGHT - 6 }).textContent = seconds(last);
    this.describe(first, last);
  }

  /** Says what the drawing shows. */
  private describe(first: number, last: number): void {
    const medians = this.points.map(({ p50 }) => p50);
    const lost = this.points.reduce((sum, point) => sum + point.lost, 0);
    const now = this.points[this.points.length - 1];
    const text =
      `Trial ${this.trial} from ${(first / 1e3).toFixed(1)} to ${(last / 1e3).toFixed(1)} s: the median so far was between ` +
      `${delay(Math.min(...medians))} and ${delay(Math.max(...medians))} and is ${delay(now.p50)}, p99 is ${delay(now.p99)}; ${lost} lost.`;
    if (this.text.textContent !== text) this.text.textContent = text;
  }
}
