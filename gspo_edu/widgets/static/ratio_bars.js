// Bars of token ratios on a log axis around 1, to pull up and down.

import { set, svg } from "./frame.js";
import { axis, boxes, drag, path, scale } from "./plot.js";
import { significant } from "./text.js";

// The axis runs from 1 / outer to outer and is marked at inner, too: [outer, inner].
const ZOOMS = [
  [1.5, 1.2],
  [2, 1.5],
  [3, 2],
  [5, 2],
  [10, 3],
  [20, 5],
  [50, 10],
  [100, 10],
];

// Adds the bars to `chart`, `height` pixels high below `top`, from `left` to its right edge. Those
// that stand still have no handles.
export function ratioBars(chart, { top, height, left, right, still = false }) {
  const bottom = top + height;
  const band = svg("rect", { class: "gspo-band" });
  const back = svg("g");
  const yAxis = axis(back, true);
  const bars = svg("path", { class: "gspo-barre" });
  const chosenBar = svg("path", { class: "gspo-barre", "data-chosen": "true" });
  const one = svg("line", { class: "gspo-base" });
  const handles = svg("path", { class: "gspo-handle" });
  const chosenHandle = svg("path", { class: "gspo-handle", "data-chosen": "true" });
  chart.append(band, back, bars, chosenBar, one, handles, chosenHandle);

  let [zoom, inner] = ZOOMS[0];
  let y = scale(0, 1, 0, 1);
  let held = null; // what the hand pulls; the axis never changes under it
  const inside = (log) => Math.min(Math.max(log, -Math.log(zoom)), Math.log(zoom));
  const at = (ratio) => y(inside(Math.log(ratio)));

  const rezoom = (ratios) => {
    const furthest = Math.max(...ratios.map((r) => Math.abs(Math.log(r)))) * 1.04;
    const power = Math.min(Math.ceil(furthest / Math.LN10), 300);
    const huge = [10 ** power, 10 ** Math.ceil(power / 2)];
    [zoom, inner] = ZOOMS.find(([size]) => Math.log(size) >= furthest) ?? huge;
  };

  return {
    at,
    // pick(x) names the token at x; press(token, y) hears of a press below the bars.
    pull({ pick, press, setRatio, redraw }) {
      chart.classList.add("gspo-updown");
      const isOnBars = (px, py) => px >= left && py <= bottom + 4;
      drag(chart, (px, py, first) => {
        if (first && py > bottom + 4) press(pick(px), py);
        else if (first && isOnBars(px, py)) held = pick(px);
        if (held !== null) setRatio(held, Math.exp(inside(y.back(py))));
      }, isOnBars);
      const release = () => {
        if (held === null) return;
        held = null;
        redraw();
      };
      chart.addEventListener("pointerup", release);
      chart.addEventListener("pointercancel", release);
    },
    // spans: [left edge, width] of each bar; low and high: the range behind the bars; also: ratios
    // that must fit on the axis besides.
    draw({ ratios, spans, chosen, low, high, wide, also = [] }) {
      if (held === null) rezoom([...ratios, ...also]);
      y = scale(-Math.log(zoom), Math.log(zoom), bottom, top);
      const marks = [1 / zoom, 1 / inner, 1, inner, zoom];
      yAxis(
        marks.map((v) => [at(v), significant(v, 2)]),
        left,
        wide - right,
      );
      set(band, { x: left, width: wide - right - left });
      set(band, { y: at(1 + high), height: at(1 - low) - at(1 + high) });
      set(one, { x1: left, x2: wide - right, y1: at(1), y2: at(1) });
      const box = (ratio, i) => {
        const upper = at(Math.max(ratio, 1)) - 0.75;
        return [spans[i][0], upper, spans[i][1], at(Math.min(ratio, 1)) + 0.75 - upper];
      };
      const edge = (ratio, i) =>
        path([
          [spans[i][0], at(ratio)],
          [spans[i][0] + spans[i][1], at(ratio)],
        ]);
      set(bars, { d: boxes(ratios.map(box)) });
      set(chosenBar, { d: boxes([box(ratios[chosen], chosen)]) });
      if (still) return;
      set(handles, { d: spans[0][1] > 10 ? ratios.map(edge).join("") : "" });
      set(chosenHandle, { d: edge(ratios[chosen], chosen) });
    },
  };
}
