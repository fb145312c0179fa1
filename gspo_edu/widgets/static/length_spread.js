// How far the sequence ratio spreads at a length, and the share of answers that is clipped.

import { middle90, sequenceRatioSpread } from "./math.js";
import { exponential, percent, short, significant } from "./text.js";
import { choice, facts, h, legend, mount, set, steps, svg, twoDigits, write } from "./frame.js";
import { axis, drag, path, plot, scale, ticks, width } from "./plot.js";

const NAMES = ["sigma", "length", "clip_low", "clip_high"];
const HEIGHT = 230;
const EDGE = { left: 46, right: 20, top: 26, bottom: 42 };
const LONGEST = 10000;
const ROUND = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];
const PARTS = ["blue", "green", "purple"]; // below, inside and above the range
const CURVES = [
  ["outside", "ink", "none"],
  ["above", "purple", "8 4"],
  ["below", "blue", "2 4"],
];

export function render(context) {
  return mount(context, "Length and spread", NAMES, [2, 3, 6], ({ root, get, change, say }) => {
    const presets = get("presets");
    const range = choice(
      "Clip range",
      Object.entries(presets).map(([key, [low, high]]) => [
        key,
        `${key.toUpperCase()} `,
        h("small", {}, `${short(low)}/${short(high)}`),
      ]),
      (key) => change({ clip_low: presets[key][0], clip_high: presets[key][1] }),
    );

    const density = plot(HEIGHT, "Distribution of the sequence ratio with the clip range");
    const band = svg("rect", { class: "gspo-band" });
    const sAxis = axis(density, false);
    const areas = PARTS.map((tone) => svg("path", { class: "gspo-area", "data-tone": tone }));
    const outline = svg("path", { class: "gspo-outline" });
    const one = svg("line", { class: "gspo-base" });
    const belowText = svg("text", { class: "gspo-title", "data-tone": "blue", x: 2, y: 13 });
    const aboveText = svg("text", {
      class: "gspo-title",
      "data-tone": "purple",
      "text-anchor": "end",
      y: 13,
    });
    const sLabel = svg(
      "text",
      { class: "gspo-label", "text-anchor": "middle", y: HEIGHT - 5 },
      "sequence ratio s (log scale)",
    );
    density.prepend(band);
    density.append(...areas, outline, one, belowText, aboveText, sLabel);

    const shares = plot(HEIGHT, "Share of answers outside and clipped, over the answer's length");
    shares.classList.add("gspo-sideways");
    const lAxis = axis(shares, false);
    const shareAxis = axis(shares, true);
    const curves = CURVES.map(([kind, tone, dashes]) => [
      kind,
      svg("path", { class: "gspo-curve", "data-tone": tone, "stroke-dasharray": dashes }),
      svg("circle", { class: "gspo-dot", "data-tone": tone, r: 5 }),
    ]);
    const here = svg("line", { class: "gspo-here" });
    const shareLabel = svg("text", { class: "gspo-label", x: 2, y: 13 }, "share of answers");
    const lLabel = svg(
      "text",
      { class: "gspo-label", "text-anchor": "middle", y: HEIGHT - 5 },
      "answer length L (log scale)",
    );
    shares.append(here, ...curves.flatMap(([, line, dot]) => [line, dot]), shareLabel, lLabel);
    let xLength = scale(0, 1, 0, 1);
    drag(shares, (at) => {
      const tokens = Math.min(Math.max(10 ** xLength.back(at), 1), LONGEST);
      change({ length: Math.round(tokens.toPrecision(2)) });
    });

    const sigma = steps("σ: std of token log-ratios", twoDigits(0.001, 1), (value) =>
      change({ sigma: value }),
    );
    const lengths = [...new Set(twoDigits(1, LONGEST).map(Math.round))];
    const length = steps("L: tokens in the answer", lengths, (value) => change({ length: value }));
    const low = steps("ε low", twoDigits(1e-5, 0.9), (value) => change({ clip_low: value }));
    const high = steps("ε high", twoDigits(1e-5, 1), (value) => change({ clip_high: value }));
    const numbers = facts([
      ["outside", "answers outside"],
      ["positive", "clipped if A > 0"],
      ["negative", "clipped if A < 0"],
      ["half", "mean of these two"],
      ["mean", "mean of log s"],
      ["std", "std of log s"],
      ["s", "90 % of s within"],
      ["product", "90 % of the product"],
    ]);
    root.append(
      h("div", { class: "gspo-bar" }, range.node),
      h("div", { class: "gspo-quad" }, sigma.node, length.node, low.node, high.node),
      h(
        "div",
        { class: "gspo-columns gspo-even" },
        h("div", {}, density),
        h(
          "div",
          {},
          shares,
          legend([
            ["ink", "outside", "solid"],
            ["purple", "clipped if A > 0", "dashed"],
            ["blue", "clipped if A < 0", "dotted"],
          ]),
        ),
      ),
      numbers.node,
    );
    numbers.node.classList.add("gspo-four");

    return function draw() {
      const sd = get("sigma");
      const tokens = get("length");
      const down = get("clip_low");
      const up = get("clip_high");
      const found = sequenceRatioSpread(sd, tokens, down, up);
      const bounds = [Math.log1p(-down), Math.log1p(up)];

      const preset = Object.entries(presets).find(([, [p, q]]) => p === down && q === up);
      range.show(preset ? preset[0] : "");

      // Distribution
      let wide = width(density);
      const reach = roundUp(
        Math.max(-bounds[0] * 1.25, bounds[1] * 1.25, 3.2 * found.std - found.mean),
      );
      const x = scale(-reach, reach, 20, wide - 20);
      const bottom = HEIGHT - EDGE.bottom;
      const y = scale(0, 1.04, bottom, EDGE.top);
      const marks =
        reach < 1
          ? ticks(Math.exp(-reach), Math.exp(reach), 5)
          : ROUND.filter((v) => Math.abs(Math.log(v)) <= reach).map((v) => [v, String(v)]);
      sAxis(
        marks.map(([v, text]) => [x(Math.log(v)), text]),
        bottom,
        EDGE.top,
      );
      set(band, {
        x: x(bounds[0]),
        width: x(bounds[1]) - x(bounds[0]),
        y: EDGE.top,
        height: bottom - EDGE.top,
      });
      set(one, { x1: x(0), x2: x(0), y1: EDGE.top, y2: bottom });
      const bell = (from, to) => {
        const points = Array.from({ length: 61 }, (_, i) => from + ((to - from) * i) / 60);
        return points.map((z) => [x(found.mean + z * found.std), y(Math.exp((-z * z) / 2))]);
      };
      const cuts = [-4.5, ...bounds.map((v) => (v - found.mean) / found.std), 4.5].map((z) =>
        Math.min(Math.max(z, -4.5), 4.5),
      );
      areas.forEach((area, i) => {
        const top = bell(cuts[i], cuts[i + 1]);
        const [first, last] = [top[0], top[top.length - 1]];
        set(area, { d: `${path([[first[0], y(0)], ...top, [last[0], y(0)]])}Z` });
      });
      set(outline, { d: path(bell(-4.5, 4.5)) });
      set(aboveText, { x: wide - 2 });
      set(sLabel, { x: wide / 2 });
      write(belowText, `below ${percent(found.below)}`);
      write(aboveText, `${percent(found.above)} above`);

      // Shares over length
      wide = width(shares);
      xLength = scale(0, Math.log10(LONGEST), EDGE.left, wide - EDGE.right);
      const yShare = scale(0, 1, bottom, EDGE.top);
      lAxis(
        [1, 10, 100, 1000, 10000].map((v) => [xLength(Math.log10(v)), String(v)]),
        bottom,
        EDGE.top,
      );
      shareAxis(
        [0, 0.25, 0.5, 0.75, 1].map((v) => [yShare(v), `${100 * v} %`]),
        EDGE.left,
        wide - EDGE.right,
      );
      const points = Array.from({ length: 81 }, (_, i) => (i / 80) * Math.log10(LONGEST));
      const along = points.map((v) => sequenceRatioSpread(sd, 10 ** v, down, up));
      const at = xLength(Math.log10(tokens));
      for (const [kind, line, dot] of curves) {
        set(line, { d: path(points.map((v, i) => [xLength(v), yShare(along[i][kind])])) });
        set(dot, { cx: at, cy: yShare(found[kind]) });
      }
      set(here, { x1: at, x2: at, y1: EDGE.top, y2: bottom });
      set(lLabel, { x: (EDGE.left + wide - EDGE.right) / 2 });

      sigma.show(sd, significant(sd, 2));
      length.show(tokens, String(tokens));
      low.show(down, short(down));
      high.show(up, short(up));
      const digits = Math.min(Math.max(Math.ceil(1 - Math.log10(found.std)), 2), 5);
      numbers.show({
        outside: percent(found.outside),
        positive: percent(found.above),
        negative: percent(found.below),
        half: percent(found.outside / 2),
        mean: significant(found.mean, 2),
        std: significant(found.std, 2),
        s: middle90(found.mean, found.std)
          .map((v) => Math.exp(v).toFixed(digits))
          .join("…"),
        product: middle90(tokens * found.mean, tokens * found.std).map(product).join("…"),
      });
      const turn = significant(4 / (sd * sd), 2);
      say(
        `Of answers with ${tokens} tokens, ${percent(found.outside)} lie outside the range; ` +
          `clipped are ${percent(found.above)} of those with A > 0 and ` +
          `${percent(found.below)} of those with A < 0. ` +
          `Beyond L = 4/σ² = ${turn} the mean of log s outweighs its spread.`,
      );
    };
  });
}

// The next of 1, 1.5, 2, ... times a power of ten: the axis zooms in steps, not with every move.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].find((factor) => factor * power >= value) * power;
}

// Where the product is tiny, its first digit is enough, and beyond 10⁻¹⁰⁰ none.
const product = (log) => exponential(log, log < -4 * Math.LN10 ? 1 : 2, 100);
