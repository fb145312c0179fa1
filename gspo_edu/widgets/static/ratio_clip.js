// The clipped objective over the ratio: one point to drag, its slope, and the truth table.

import { clippedSurrogate } from "./math.js";
import { short, signed, significant } from "./text.js";
import { choice, facts, h, legend, mount, set, slider, svg, write } from "./frame.js";
import { axis, drag, path, plot, scale, ticks, width } from "./plot.js";

const NAMES = ["objective", "clip_low", "clip_high", "ratio", "advantage"];
const HEIGHT = 300;
const EDGE = { left: 62, right: 16, top: 22, bottom: 44 };
const LEAST = 0.01; // ratio
const SIDES = ["below", "inside", "above"];

export function render(context) {
  return mount(context, "Ratio and clipping", NAMES, [2, 3, 4], ({ root, get, change, say }) => {
    const presets = get("presets");
    const bounds = () => ({ low: get("clip_low"), high: get("clip_high") });
    let half = 0; // half the width of the ratio axis; follows the range, never the moving hand
    let halfOf = "";
    let byHand = null; // the last ratio that the hand chose

    const lowest = () => Math.max(1 - half, 10 ** -decimals(half));
    const setRatio = (value) => {
      const inside = Math.min(Math.max(value, lowest()), 1 + half);
      byHand = Number(inside.toFixed(decimals(half)));
      change({ ratio: byHand });
    };

    const objective = choice(
      "Clip range",
      Object.entries(presets).map(([key, [low, high]]) => [
        key,
        `${key.toUpperCase()} `,
        h("small", {}, `${short(low)}/${short(high)}`),
      ]),
      (key) => {
        const [low, high] = presets[key];
        // The point keeps its place relative to the range while the axis zooms.
        const zoom = Math.max(low, high) / Math.max(get("clip_low"), get("clip_high"));
        const ratio = Math.max(1 + (get("ratio") - 1) * zoom, LEAST);
        const digits = decimals(axisHalf(low, high));
        change({
          objective: key,
          clip_low: low,
          clip_high: high,
          ratio: Number(ratio.toFixed(digits)),
        });
      },
    );
    const sign = choice(
      "Advantage",
      [
        ["+", "A > 0 ", h("small", {}, "better than expected")],
        ["-", "A < 0 ", h("small", {}, "worse")],
      ],
      (key) => change({ advantage: Math.abs(get("advantage")) * (key === "+" ? 1 : -1) }),
    );

    const chart = plot(HEIGHT, "Curve of the clipped objective over the ratio");
    const band = svg("rect", { class: "gspo-band" });
    const bandText = svg("text", {
      class: "gspo-title",
      "data-tone": "green",
      "text-anchor": "middle",
    });
    const xAxis = axis(chart, false);
    const yAxis = axis(chart, true);
    const one = svg("line", { class: "gspo-one" });
    const free = svg("path", { class: "gspo-free" });
    const pieces = SIDES.map(() => svg("path", { class: "gspo-curve", "stroke-linecap": "round" }));
    const drop = svg("line", { class: "gspo-here" });
    const tangent = svg("line", { class: "gspo-tangent" });
    const slopeText = svg("text", { class: "gspo-title gspo-halo", "text-anchor": "middle" });
    const point = svg("circle", { class: "gspo-dot", r: 9 });
    const xLabel = svg("text", { class: "gspo-label", "text-anchor": "middle" });
    const yLabel = svg("text", { class: "gspo-label", x: 8, y: 13 }, "objective");
    chart.prepend(band);
    chart.append(one, free, ...pieces, drop, tangent, point, slopeText, bandText);
    chart.append(xLabel, yLabel);
    chart.classList.add("gspo-sideways");

    const ratio = slider("ratio r", setRatio);
    const numbers = facts([
      ["advantage", "advantage A"],
      ["objective", "objective"],
      ["slope", "slope in the ratio"],
      ["weight", "gradient on log π"],
      ["outside", "outside the range?"],
      ["zero", "gradient zero?"],
    ]);
    const table = truthTable();

    let x = scale(0, 1, 0, 1);
    drag(chart, (at) => setRatio(x.back(at)));

    root.append(
      h("div", { class: "gspo-bar" }, objective.node, sign.node),
      h(
        "div",
        { class: "gspo-columns" },
        h(
          "div",
          {},
          chart,
          legend([
            ["blue", "gradient flows", "solid"],
            ["red", "gradient zero", "dotted"],
            ["soft", "without clip", "dashed"],
          ]),
          ratio.node,
        ),
        h("div", {}, numbers.node, table.node),
      ),
    );

    return function draw() {
      const { low, high } = bounds();
      const r = get("ratio");
      const a = get("advantage");
      const key = get("objective");
      const symbol = key === "gspo" ? "s" : "r";
      // A late answer of the kernel can pair the new range with an old ratio for one drawing: only
      // a ratio from the hand may leave the axis as it is.
      const kept = r === byHand && halfOf === `${low}/${high}`;
      if (!kept || Math.abs(r - 1) > half * 1.0001) {
        half = Math.max(axisHalf(low, high), 1.1 * Math.abs(r - 1));
        halfOf = `${low}/${high}`;
      }
      const digits = decimals(half);
      const at = (ratio) => clippedSurrogate(ratio, a, low, high);
      const here = at(r);
      const left = Math.max(1 - half, 0);
      const right = 1 + half;
      const wide = width(chart);
      x = scale(left, right, EDGE.left, wide - EDGE.right);
      const ends = [a * left, a * right].sort((p, q) => p - q);
      const y = scale(...ends, HEIGHT - EDGE.bottom, EDGE.top);
      const bottom = HEIGHT - EDGE.bottom;

      const own = presets[key][0] === low && presets[key][1] === high;
      objective.show(own ? key : "");
      sign.show(a > 0 ? "+" : "-");

      const marks = ticks(left, right, wide < 400 ? 4 : 7);
      xAxis(
        marks.map(([v, text]) => [x(v), text]),
        bottom,
        EDGE.top,
      );
      yAxis(
        ticks(...ends, 5).map(([v, text]) => [y(v), text]),
        EDGE.left,
        wide - EDGE.right,
      );
      set(band, {
        x: x(1 - low),
        width: x(1 + high) - x(1 - low),
        y: EDGE.top,
        height: bottom - EDGE.top,
      });
      // Between the name of the axis and the edge.
      const title = (x(1 - low) + x(1 + high)) / 2;
      set(bandText, { x: Math.min(Math.max(title, 145), wide - 76), y: EDGE.top - 7 });
      write(bandText, `range ${significant(1 - low, 7)} … ${significant(1 + high, 7)}`);
      set(one, { x1: x(1), x2: x(1), y1: EDGE.top, y2: bottom });
      set(free, {
        d: path([
          [x(left), y(left * a)],
          [x(right), y(right * a)],
        ]),
      });
      const corners = [left, Math.max(1 - low, left), 1 + high, right];
      pieces.forEach((piece, i) => {
        const ratios = corners.slice(i, i + 2);
        set(piece, {
          d: path(ratios.map((v) => [x(v), y(at(v).value)])),
          ...line(at((ratios[0] + ratios[1]) / 2).clipped),
        });
      });

      const px = x(r);
      const py = y(here.value);
      const run = x(1) - x(0);
      const rise = here.slope * (y(1) - y(0));
      const size = 52 / Math.hypot(run, rise);
      const back = Math.min(size, (px - EDGE.left) / run);
      const on = Math.min(size, (wide - EDGE.right - px) / run);
      set(tangent, {
        x1: px - run * back,
        x2: px + run * on,
        y1: py - rise * back,
        y2: py + rise * on,
        "data-tone": tone(here.clipped),
      });
      set(point, { cx: px, cy: py, "data-tone": tone(here.clipped) });
      set(drop, { x1: px, x2: px, y1: py, y2: bottom });
      // The label stays on the empty side of the curve.
      const below = a > 0 || here.clipped;
      set(slopeText, {
        x: Math.min(Math.max(px + (here.clipped ? 0 : 46), EDGE.left + 30), wide - EDGE.right - 32),
        y: below ? Math.min(py + 32, bottom - 26) : Math.max(py - 24, EDGE.top + 32),
        "data-tone": tone(here.clipped),
      });
      write(slopeText, `slope ${signed(here.slope)}`);
      set(xLabel, { x: (EDGE.left + wide - EDGE.right) / 2, y: HEIGHT - 6 });
      xLabel.textContent =
        symbol === "s" ? "sequence ratio s of the answer" : "importance ratio r of the token";

      const shown = r.toFixed(digits);
      ratio.show({
        min: lowest(),
        max: right,
        step: 10 ** -digits,
        at: r,
        text: shown,
        spoken: `${shown}, slope ${signed(here.slope)}`,
        label: symbol === "s" ? "sequence ratio s" : "ratio r",
      });
      numbers.show({
        advantage: signed(a),
        objective: signed(here.value, digits),
        slope: signed(here.slope),
        weight: signed(here.slope * r, digits),
        outside: here.outside ? "yes" : "no",
        zero: here.slope === 0 ? "yes" : "no",
      });
      table.show(low, high, r, a, symbol);
      say(sentence(here, r, a, symbol));
    };
  });
}

const tone = (zero) => (zero ? "red" : "blue");
const line = (zero) => ({
  "data-tone": tone(zero),
  "stroke-dasharray": zero ? "1 6.5" : "none",
});
const axisHalf = (low, high) => Math.min(1, 3.5 * Math.max(low, high, 1e-6));
// Decimals of the ratio so that a key press moves the point by about one hundredth of the axis.
const decimals = (half) => Math.max(2, Math.ceil(-Math.log10(half / 70)));

function sentence({ clipped, outside }, ratio, a, symbol) {
  const sign = a > 0 ? "A > 0" : "A < 0";
  if (!outside) {
    return `${symbol} lies inside the range. Both branches of min() agree, so the gradient flows.`;
  }
  const side = ratio > 1 ? "above" : "below";
  if (clipped) {
    return (
      `${symbol} lies ${side} the range and ${sign}: min() takes the clipped branch. ` +
      "The curve is flat and the gradient exactly zero."
    );
  }
  return (
    `${symbol} lies ${side} the range, but ${sign}: min() takes the unclipped branch. ` +
    "Outside the range, and yet the gradient flows in full."
  );
}

// Sign of A × side of the range: "outside" and "gradient exactly zero" are different columns.
function truthTable() {
  const heads = SIDES.map(() => h("th", { scope: "col" }));
  const rows = [1, -1].map((sign) => ({
    sign,
    head: h("th", { scope: "row" }, sign > 0 ? "A > 0" : "A < 0"),
    cells: SIDES.map(() => h("td", {}, h("span"), h("strong"))),
  }));
  const node = h(
    "table",
    {},
    h("caption", {}, "All cases. The outlined one is yours."),
    h("thead", {}, h("tr", {}, h("td"), ...heads)),
    h("tbody", {}, ...rows.map(({ head, cells }) => h("tr", {}, head, ...cells))),
  );
  return {
    node,
    show(low, high, ratio, a, symbol) {
      const middle = [1 - 2 * low, 1, 1 + 2 * high];
      const names = [`${symbol} below`, `${symbol} inside`, `${symbol} above`];
      const side = ratio < 1 - low ? 0 : ratio > 1 + high ? 2 : 1;
      heads.forEach((head, i) => write(head, names[i]));
      for (const { sign, cells } of rows) {
        cells.forEach((cell, i) => {
          const { slope, outside } = clippedSurrogate(middle[i], sign, low, high);
          const mine = i === side && Math.sign(a) === sign;
          write(cell.firstChild, outside ? "outside" : "inside");
          write(cell.lastChild, slope === 0 ? "gradient 0" : "gradient A");
          set(cell, { "data-tone": tone(slope === 0), "data-mine": mine });
          if (mine) cell.setAttribute("aria-current", "true");
          else cell.removeAttribute("aria-current");
        });
      }
    },
  };
}
