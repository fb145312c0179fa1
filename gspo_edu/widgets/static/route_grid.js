// A grid of routes: a row per expert, a column per token, the layers side by side.

import { pool, set, svg, write } from "./frame.js";
import { axis, boxes, drag, plot, scale } from "./plot.js";

const EDGE = { left: 30, right: 2, top: 30, bottom: 22 };
const TALL = 256; // height of the cells
const GAP = 0.7; // between two layers, in columns
// What a cell says: [name, tone, whether it is an outline].
export const KINDS = [
  ["kept", "blue"],
  ["came", "red"],
  ["gone", "red", "dashed"],
  ["wanted", "red", "dotted"],
];

// Experts of one token and layer by kind. `used` compute now, `wanted` is what the router would
// choose; without replay both are the same.
export function kinds(before, used, wanted) {
  return {
    kept: used.filter((e) => before.includes(e)),
    came: used.filter((e) => !before.includes(e)),
    gone: before.filter((e) => !used.includes(e)),
    wanted: wanted.filter((e) => !used.includes(e)),
  };
}

// pick(token, layer) hears which column the hand is on.
export function routeGrid(pick) {
  const chart = plot(EDGE.top + TALL + EDGE.bottom, "Experts of each token, layer by layer");
  chart.classList.add("gspo-sideways");
  const ground = svg("path", { class: "gspo-ground" });
  const rows = axis(chart, true);
  const cells = KINDS.map(([, tone, line = ""]) =>
    svg("path", { class: "gspo-route", "data-tone": tone, "data-line": line }),
  );
  const column = svg("rect", { class: "gspo-outline", rx: 3 });
  const words = pool(chart, () => svg("text", { class: "gspo-tick", "text-anchor": "middle" }));
  const titles = pool(chart, () => svg("text", { class: "gspo-title", "text-anchor": "middle" }));
  const marks = pool(chart, () => svg("text", { class: "gspo-title", "text-anchor": "middle" }));
  const label = svg("text", { class: "gspo-label", x: 0, y: 13 }, "expert");
  chart.prepend(ground);
  chart.append(...cells, column, label);

  let x = scale(0, 1, 0, 1);
  let shape = [1, 1]; // tokens, layers
  const start = (layer) => layer * (shape[0] + GAP);
  drag(chart, (px) => {
    const [tokens, layers] = shape;
    const at = x.back(px);
    const layer = Math.min(Math.max(Math.floor(at / (tokens + GAP)), 0), layers - 1);
    pick(Math.min(Math.max(Math.floor(at - start(layer)), 0), tokens - 1), layer);
  });

  return {
    node: chart,
    // found: [token][layer] -> kinds(); chosen: [token, layer].
    draw({ found, experts, tokens, layers, chosen, wide }) {
      shape = [tokens.length, layers.length];
      x = scale(0, start(layers.length) - GAP, EDGE.left, wide - EDGE.right);
      const cell = x(1) - x(0);
      const y = scale(0, experts, EDGE.top, EDGE.top + TALL);
      const row = TALL / experts;
      const every = Math.max(1, 2 ** Math.ceil(Math.log2(14 / row)));
      const numbers = Array.from({ length: Math.ceil(experts / every) }, (_, i) => i * every);
      rows(
        numbers.map((e) => [y(e) + row / 2, String(e)]),
        EDGE.left,
        wide - EDGE.right,
      );
      set(ground, {
        d: boxes(layers.map((_, n) => [x(start(n)), EDGE.top, cell * tokens.length, TALL])),
      });
      KINDS.forEach(([kind, , line], k) => {
        const inset = line ? 1 : 0.5;
        const all = found.flatMap((of, t) =>
          of.flatMap((sets, n) =>
            sets[kind].map((e) => [
              x(start(n) + t) + inset,
              y(e) + inset / 2,
              cell - 2 * inset,
              row - inset,
            ]),
          ),
        );
        set(cells[k], { d: boxes(all) });
      });
      const [t, layer] = chosen;
      set(column, { x: x(start(layer) + t), y: EDGE.top - 1, width: cell, height: TALL + 2 });
      const columns = layers.flatMap((_, n) => tokens.map((text, at) => [at, n, text]));
      words(columns.length).forEach((node, i) => {
        const [at, n, text] = columns[i];
        set(node, { x: x(start(n) + at + 0.5), y: EDGE.top + TALL + 15 });
        set(node, { "font-weight": at === t && n === layer ? 700 : 400 });
        write(node, cell >= 26 || text.length === 1 ? text : text[0]);
      });
      const moved = columns.filter(([at, n]) => {
        const { came, wanted } = found[at][n];
        return came.length + wanted.length > 0;
      });
      marks(moved.length).forEach((node, i) => {
        const [at, n] = moved[i];
        set(node, { x: x(start(n) + at + 0.5), y: EDGE.top - 5, "data-tone": "red" });
        write(node, found[at][n].came.length ? "▾" : "▿");
      });
      titles(layers.length).forEach((node, n) => {
        set(node, { x: x(start(n) + tokens.length / 2), y: 12 });
        write(node, `layer ${layers[n]}`);
      });
    },
  };
}
