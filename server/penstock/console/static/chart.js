// Plots as SVG: areas and lines over time, and bars. A plot can be read by pointer, keys and screen readers.

import { h, s, say } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 190;
const LEFT = 46;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 22;
const BAR_HEIGHT = 130;
const MINUTES = [1, 2, 5, 10, 15, 30];

/** Three or four round numbers from 0 up to the greatest value or a little more. */
export function ticks(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const count = Math.ceil(most / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, number) => number * step);
}

class Plot {
  /** `format` writes a value; `label` says what is plotted, for readers who can't see it. */
  constructor({ label, format, height }) {
    this.label = label;
    this.format = format;
    this.height = height;
    this.at = null;
    this.svg = s("svg", { class: "plot", tabindex: "0", role: "img" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.spoken = h("p", { class: "unseen", "aria-live": "polite" });
    this.element = h("div", { class: "plot-box" }, this.svg, this.tip, this.spoken);
    this.svg.addEventListener("pointermove", (event) => this.point(this.indexAt(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  get width() {
    return Math.max(this.element.clientWidth, 160);
  }

  onKey(event) {
    const last = this.count() - 1;
    const here = this.at ?? last + 1;
    const aims = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last };
    if (!(event.key in aims) || last < 0) return;
    event.preventDefault();
    this.point(Math.min(Math.max(aims[event.key], 0), last));
    say(this.spoken, this.read(this.at));
  }

  point(index) {
    this.at = index === null || index < 0 || index >= this.count() ? null : index;
    this.mark();
  }

  mark() {
    this.tip.hidden = this.at === null;
    this.cursor?.setAttribute("visibility", this.at === null ? "hidden" : "visible");
    if (this.at === null) return;
    const x = this.middle(this.at);
    this.cursor?.setAttribute("transform", `translate(${x} 0)`);
    this.tip.replaceChildren(...this.tipLines(this.at));
    this.tip.style.setProperty("left", `${Math.min(Math.max(x, 70), this.width - 70)}px`);
  }

  axis(most) {
    const marks = ticks(most);
    const top = marks[marks.length - 1];
    const plotted = this.height - TOP - BOTTOM;
    this.y = (value) => TOP + plotted * (1 - value / top);
    return marks.map((value) => s("g", { class: "grid" },
      s("line", { x1: LEFT, x2: this.width - RIGHT, y1: this.y(value), y2: this.y(value) }),
      s("text", { x: LEFT - 8, y: this.y(value) + 4, "text-anchor": "end" }, this.format(value))));
  }

  show(parts) {
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    this.svg.setAttribute("aria-label", this.summary());
    this.svg.replaceChildren(...parts);
    this.mark();
  }
}

/** Lines or stacked areas over time: `series` are {name, kind, style}. */
export class TimePlot extends Plot {
  constructor({ series, label, format, stacked = false }) {
    super({ label, format, height: HEIGHT });
    this.series = series;
    this.stacked = stacked;
    this.times = [];
    this.rows = [];
    this.cursor = s("line", { class: "cursor", x1: 0, x2: 0, y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    const keys = series.map(({ name, style }) => h("li", {}, h("span", { class: `key ${style}` }), name));
    this.element.prepend(h("ul", { class: "legend", "aria-hidden": "true" }, ...keys));
  }

  /** `rows` has the values of each series at each time; null where there is none. */
  update(times, rows) {
    this.times = times;
    this.rows = rows;
    this.draw();
  }

  count() { return this.times.length; }

  middle(index) {
    const plotted = this.width - LEFT - RIGHT;
    return LEFT + (this.count() < 2 ? plotted : (plotted * index) / (this.count() - 1));
  }

  indexAt(x) {
    const share = (x - LEFT) / (this.width - LEFT - RIGHT);
    return Math.round(Math.min(Math.max(share, 0), 1) * (this.count() - 1));
  }

  draw() {
    const stack = this.times.map(() => 0);
    const shapes = [];
    const tops = this.rows.map((row) => row.map((value, index) => {
      if (!this.stacked) return [0, value];
      const below = stack[index];
      stack[index] += value ?? 0;
      return [below, value === null ? null : stack[index]];
    }));
    const most = Math.max(0, ...tops.flat().map(([, top]) => top ?? 0));
    const grid = this.axis(most);
    tops.forEach((values, number) => {
      const { style } = this.series[number];
      for (const run of runs(values)) {
        const upper = run.map(([index, [, top]]) => `${this.middle(index).toFixed(1)} ${this.y(top).toFixed(1)}`);
        if (this.stacked) {
          const lower = run.map(([index, [base]]) => `${this.middle(index).toFixed(1)} ${this.y(base).toFixed(1)}`).reverse();
          shapes.push(s("path", { class: `area ${style}`, d: `M${[...upper, ...lower].join("L")}Z` }));
        }
        shapes.push(s("path", { class: `line ${style}`, d: `M${upper.join("L")}${run.length === 1 ? "h1" : ""}` }));
      }
    });
    this.show([...grid, ...this.hours(), ...shapes, this.cursor]);
  }

  /** Whole minutes, as far apart as there is room for. */
  hours() {
    const last = this.count() - 1;
    if (last < 1) return [];
    const span = this.times[last] - this.times[0];
    const room = Math.max(2, Math.floor((this.width - LEFT) / 90));
    const every = MINUTES.map((minutes) => minutes * 60_000).find((size) => span / size <= room) ?? span;
    const marks = [];
    for (let at = Math.ceil(this.times[0] / every) * every; at <= this.times[last]; at += every) {
      const x = LEFT + ((this.width - LEFT - RIGHT) * (at - this.times[0])) / span;
      if (x < LEFT + 12 || x > this.width - 20) continue;
      marks.push(s("text", { class: "hour", x, y: HEIGHT - 5, "text-anchor": "middle" }, clock(at, false)));
    }
    return marks;
  }

  tipLines(index) {
    const lines = this.series.map(({ name, style }, number) => h("p", {},
      h("span", { class: `key ${style}` }), `${name} `, h("b", {}, this.written(number, index))));
    return [h("p", { class: "when" }, clock(this.times[index])), ...lines];
  }

  written(number, index) {
    const value = this.rows[number]?.[index];
    return value === null || value === undefined ? "–" : this.format(value);
  }

  read(index) {
    return `${clock(this.times[index])}: ${this.series.map(({ name }, number) => `${name} ${this.written(number, index)}`).join(", ")}`;
  }

  summary() {
    const last = this.count() - 1;
    return last < 0 ? `${this.label}: nothing yet` : `${this.label}. Latest, ${this.read(last)}. Arrow keys read older values.`;
  }
}

/** The parts of a line that have no gaps, as [index, value]. */
function runs(values) {
  const found = [[]];
  values.forEach((value, index) => {
    if (value[1] === null || value[1] === undefined) found.push([]);
    else found[found.length - 1].push([index, value]);
  });
  return found.filter((run) => run.length);
}

/** A bar for each of some names, such as hours. */
export class BarPlot extends Plot {
  constructor({ label, format }) {
    super({ label, format, height: BAR_HEIGHT });
    this.names = [];
    this.values = [];
    this.cursor = s("rect", { class: "cursor", y: TOP, height: BAR_HEIGHT - TOP - BOTTOM, visibility: "hidden" });
  }

  update(names, values) {
    this.names = names;
    this.values = values;
    this.draw();
  }

  count() { return this.values.length; }

  get step() { return (this.width - LEFT - RIGHT) / Math.max(1, this.count()); }

  middle(index) { return LEFT + this.step * (index + 0.5); }

  indexAt(x) { return Math.floor((x - LEFT) / this.step); }

  draw() {
    const grid = this.axis(Math.max(0, ...this.values));
    const wide = Math.max(1, this.step - Math.min(3, this.step / 4));
    this.cursor.setAttribute("width", this.step);
    this.cursor.setAttribute("x", -this.step / 2);
    const bars = this.values.map((value, index) => {
      const y = value ? Math.min(this.y(value), this.y(0) - 1.5) : this.y(0);
      return s("rect", { class: "bar-value", x: this.middle(index) - wide / 2, y, width: wide, height: this.y(0) - y, rx: Math.min(2, wide / 3) });
    });
    const wanted = Math.max(2, Math.floor(this.width / 110));
    const every = Math.max(1, Math.ceil(this.count() / wanted));
    const marks = [];
    for (let index = this.count() - 1; index >= 0; index -= every) {
      const anchor = index === this.count() - 1 ? "end" : "middle";
      const x = anchor === "end" ? this.middle(index) + wide / 2 : this.middle(index);
      marks.push(s("text", { class: "hour", x, y: BAR_HEIGHT - 5, "text-anchor": anchor }, this.names[index]));
    }
    this.show([this.cursor, ...grid, ...marks, ...bars]);
  }

  tipLines(index) {
    return [h("p", { class: "when" }, this.names[index]), h("p", {}, h("b", {}, this.format(this.values[index])))];
  }

  read(index) { return `${this.names[index]}: ${this.format(this.values[index])}`; }

  summary() {
    const total = this.values.reduce((sum, value) => sum + value, 0);
    return `${this.label}: ${this.format(total)} in all. Arrow keys read each bar.`;
  }
}
