// Plots: an SVG with scales, axes and marks, and the hand that drags in it.

import { pool, set, svg, write } from "./frame.js";
import { fixed, significant } from "./text.js";

// An SVG as wide as its place and `height` pixels high; width(plot) is the current width in pixels.
export function plot(height, label) {
  return svg("svg", {
    class: "gspo-plot",
    height,
    role: "img",
    "aria-label": label,
  });
}

export const width = (plot) => plot.plotWidth || 600;

// Calls move(x, y, first) with pixel positions inside `node` while the pointer is down. A finger
// that goes up or down scrolls the page and moves nothing, unless grips(x, y) of its start.
export function drag(node, move, grips = () => false) {
  const place = ({ clientX, clientY }) => {
    const box = node.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  };
  let start = null; // of a finger, until it is known what it wants
  const begin = () => {
    if (start) move(...start, true);
    start = null;
  };
  const scrolls = ([x, y]) => Math.abs(y - start[1]) > Math.abs(x - start[0]) && !grips(...start);
  const hold = (event) => grips(...place(event.touches[0])) && event.preventDefault();
  node.addEventListener("touchstart", hold, { passive: false });
  node.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    node.setPointerCapture(event.pointerId);
    event.preventDefault();
    start = place(event);
    if (event.pointerType !== "touch") begin();
  });
  node.addEventListener("pointermove", (event) => {
    if (!node.hasPointerCapture(event.pointerId)) return;
    const at = place(event);
    if (start && scrolls(at)) return;
    begin();
    move(...at, false);
  });
  node.addEventListener("pointerup", begin);
  node.addEventListener("pointercancel", () => (start = null));
}

// A linear map from [a, b] to [x, y], and back.
export function scale(a, b, x, y) {
  const to = (value) => x + ((value - a) / (b - a)) * (y - x);
  to.back = (pixel) => a + ((pixel - x) / (y - x)) * (b - a);
  return to;
}

// About `count` round numbers within [low, high], each with its text.
export function ticks(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  return Array.from({ length: last - first + 1 }, (_, i) => {
    const value = (first + i) * step;
    return [value, digits > 6 || step >= 1e5 ? significant(value, 3) : fixed(value, digits)];
  });
}

// Axis marks with labels along the lower or left edge, and their grid lines.
export function axis(parent, vertical) {
  const group = svg("g");
  parent.append(group);
  const lines = pool(group, () => svg("line", { class: "gspo-grid" }));
  const labels = pool(group, () =>
    svg("text", { class: "gspo-tick", "text-anchor": vertical ? "end" : "middle" }),
  );
  return (marks, near, far) => {
    const line = lines(marks.length);
    const label = labels(marks.length);
    marks.forEach(([at, text], i) => {
      set(
        line[i],
        vertical ? { x1: near, x2: far, y1: at, y2: at } : { x1: at, x2: at, y1: near, y2: far },
      );
      set(label[i], vertical ? { x: near - 8, y: at + 4 } : { x: at, y: near + 18 });
      write(label[i], text);
    });
  };
}

export const path = (points) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)},${y.toFixed(2)}`).join("");

// Upright rectangles [left, top, wide, tall] as one path: a hundred of them cost as much as one.
export const boxes = (all) =>
  all
    .map((box) => box.map((size) => size.toFixed(2)))
    .map(([left, top, wide, tall]) => `M${left},${top}h${wide}v${tall}h-${wide}z`)
    .join("");
