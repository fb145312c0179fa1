// One answer: the ratios of its tokens, their product and geometric mean, and who is clipped.

import { grpo, gspo, productRatio, sequenceRatio, sum } from "./math.js";
import { brief, exponential, significant } from "./text.js";
import {
  button,
  facts,
  h,
  legend,
  mount,
  pool,
  set,
  slider,
  steps,
  svg,
  twoDigits,
  within,
  write,
} from "./frame.js";
import { boxes, plot, scale, width } from "./plot.js";
import { ratioBars } from "./ratio_bars.js";

const NAMES = ["ratios", "grpo_low", "grpo_high", "gspo_low", "gspo_high", "token"];
const EDGE = { left: 78, right: 4, top: 28 };
const CHART = 210; // height of the bars
const STRIP = 26;
const STRIPS = [
  ["GRPO", 1],
  ["GRPO", -1],
  ["GSPO", 1],
  ["GSPO", -1],
];
const HEIGHT = EDGE.top + CHART + 24 + STRIPS.length * STRIP + 8;
const LARGEST = 200; // tokens
const RATIOS = [
  ...twoDigits(0.01, 0.99),
  ...Array.from({ length: 100 }, (_, i) => 1 + i / 100),
  ...twoDigits(2, 100),
];

export function render(context) {
  return mount(context, "One answer", NAMES, [2, 4, 6], ({ root, get, change, say }) => {
    const chosen = () => Math.min(get("token"), get("ratios").length);
    const setRatio = (index, value) => {
      const ratios = [...get("ratios")];
      ratios[index] = Number(within(RATIOS, value).toPrecision(3));
      change({ ratios, token: index + 1 });
    };
    const start = (ratios, token) => change({ ratios, token });

    const chart = plot(HEIGHT, "Bars of the token ratios, and which tokens each objective clips");
    const bars = ratioBars(chart, { ...EDGE, height: CHART });
    const front = svg("g");
    const names = pool(front, () => svg("text", { class: "gspo-tick", "text-anchor": "middle" }));
    const namesLabel = svg("text", { class: "gspo-label", x: 0, y: EDGE.top + CHART + 17 });
    const mean = svg("line", { class: "gspo-mean" });
    const meanText = svg("text", { class: "gspo-title", "text-anchor": "end", y: 13 });
    const yLabel = svg("text", { class: "gspo-label", x: 0, y: 13 }, "token ratio (log)");
    const strips = STRIPS.map(([name, sign], i) => {
      const group = svg("g");
      const label = svg("text", { class: "gspo-label", x: 0 });
      write(label, `${name} A ${sign > 0 ? ">" : "<"} 0`);
      set(label, { y: stripTop(i) + 15 });
      group.append(label);
      return {
        name,
        sign,
        group,
        flows: group.appendChild(svg("path", { class: "gspo-cell" })),
        stops: group.appendChild(svg("path", { class: "gspo-cell", "data-tone": "red" })),
        texts: pool(group, () => svg("text", { "text-anchor": "middle" })),
      };
    });
    chart.append(mean, front, meanText, yLabel, namesLabel);
    chart.append(...strips.map((strip) => strip.group));

    let x = scale(0, 1, 0, 1);
    const pick = (px) => {
      const last = get("ratios").length - 1;
      return Math.min(Math.max(Math.floor(x.back(px)), 0), last);
    };
    const press = (index) => change({ token: index + 1 });
    bars.pull({ pick, press, setRatio, redraw: () => draw() });

    const token = slider("token", (at) => change({ token: at }));
    const ratio = steps("its ratio", RATIOS, (value) => setRatio(chosen() - 1, value));
    const add = () => {
      const ratios = [...get("ratios"), 1];
      change({ ratios, token: ratios.length });
    };
    const remove = () => {
      const ratios = get("ratios").slice(0, -1);
      change({ ratios, token: Math.min(chosen(), ratios.length) });
    };
    const more = button("Add a token", add, () => get("ratios").length < LARGEST);
    const fewer = button("Remove the last", remove, () => get("ratios").length > 1);
    const numbers = facts([
      ["tokens", "tokens L"],
      ["product", "product of the ratios"],
      ["mean", "geometric mean s"],
      ["range", "in GSPO's range?"],
    ]);
    const table = countTable();
    root.append(
      h(
        "div",
        { class: "gspo-bar" },
        h(
          "div",
          { class: "gspo-buttons", role: "group", "aria-label": "Examples" },
          button("1.2 · 0.9 · 1.0 · 1.1", () => start([1.2, 0.9, 1, 1.1], 1)),
          button("nine ones and a 3", () => start([...Array(9).fill(1), 3], 10)),
          button("99 ones and a 10", () => start([...Array(99).fill(1), 10], 100)),
        ),
        h("div", { class: "gspo-buttons" }, fewer, more),
      ),
      h(
        "div",
        { class: "gspo-columns" },
        h(
          "div",
          {},
          chart,
          legend([
            ["green", "GRPO's range"],
            ["blue", "gradient with weight"],
            ["red", "gradient zero"],
          ]),
        ),
        h("div", {}, numbers.node, token.node, ratio.node, table.node),
      ),
    );

    function draw() {
      const ratios = get("ratios");
      const count = ratios.length;
      const index = chosen() - 1;
      const ranges = {
        GRPO: { low: get("grpo_low"), high: get("grpo_high") },
        GSPO: { low: get("gspo_low"), high: get("gspo_high") },
      };
      const answer = [[ratios.map(Math.log)], [ratios.map(() => 0)], [ratios.map(() => 1)]];
      const [exact] = productRatio(...answer);
      const [s] = sequenceRatio(...answer);
      const representable = exact > 0 && exact < Infinity;
      const product = representable ? significant(exact, 6) : exponential(count * Math.log(s), 6);
      const result = (name, sign) => {
        const objective = name === "GRPO" ? grpo : gspo;
        return objective(answer[0], answer[1], [sign], answer[2], ranges[name]);
      };

      const wide = width(chart);
      const low = EDGE.top + CHART;
      x = scale(0, count, EDGE.left, wide - EDGE.right);
      const cell = x(1) - x(0);
      const gap = cell > 12 ? Math.min(cell * 0.06, 8) : cell > 5 ? 1 : 0.25;
      const spans = ratios.map((_, i) => [x(i) + gap, cell - 2 * gap]);
      bars.draw({ ratios, spans, chosen: index, ...ranges.GRPO, wide });
      set(mean, { x1: EDGE.left, x2: wide - EDGE.right, y1: bars.at(s), y2: bars.at(s) });
      set(meanText, { x: wide - EDGE.right });
      write(meanText, `dashed: s = ${s.toFixed(6)}`);

      const every = cell >= 34 ? 1 : Math.ceil(count / 5);
      const labelled = ratios
        .map((_, i) => i)
        .filter((i) => (i + 1) % every === 0 || (i === 0 && every > 2));
      const name = names(labelled.length);
      write(namesLabel, cell >= 34 ? "ratio" : "token");
      labelled.forEach((i, k) => {
        set(name[k], { x: x(i + 0.5), y: low + 17 });
        write(name[k], cell >= 34 ? significant(ratios[i], 3) : String(i + 1));
      });

      const counts = {};
      strips.forEach(({ name, sign, flows, stops, texts }, row) => {
        const { clipped, outside, gradient } = result(name, sign);
        counts[`${name}${sign}`] = sum(clipped[0]);
        counts[name] = sum(outside[0]);
        const cells = ratios.map((_, i) => [x(i) + gap, stripTop(row), cell - 2 * gap, STRIP - 5]);
        set(flows, { d: boxes(cells.filter((_, i) => !clipped[0][i])) });
        set(stops, { d: boxes(cells.filter((_, i) => clipped[0][i])) });
        texts(cell >= 50 ? count : 0).forEach((text, i) => {
          set(text, { x: x(i + 0.5), y: stripTop(row) + 15 });
          write(text, brief(0 - gradient[0][i]).replace("+", ""));
        });
      });

      const { low: under, high: over } = ranges.GSPO;
      const side = s > 1 + over ? "above" : s < 1 - under ? "below" : "inside";
      more.check();
      fewer.check();
      numbers.show({
        tokens: String(count),
        product,
        mean: s.toFixed(6),
        range: side === "inside" ? "yes" : `no, ${side}`,
      });
      token.show({
        min: 1,
        max: Math.max(count, 2),
        step: 1,
        at: index + 1,
        text: `${index + 1} of ${count}`,
      });
      ratio.show(ratios[index], significant(ratios[index], 3), `ratio of token ${index + 1}`);
      table.show(counts, count);
      say(sentence(count, product, s, side, counts));
    }
    return draw;
  });
}

const stripTop = (row) => EDGE.top + CHART + 28 + row * STRIP;

function sentence(count, product, s, side, counts) {
  const root = `${product} to the power 1/${count} is s = ${s.toFixed(6)}.`;
  const grpo =
    `GRPO clips ${counts.GRPO1} of ${count} token${count === 1 ? "" : "s"} if A > 0, ` +
    `${counts["GRPO-1"]} if A < 0.`;
  if (side === "inside")
    return `${root} Inside GSPO's range: every token keeps its gradient. ${grpo}`;
  const sign = side === "above" ? ["A > 0", "A < 0"] : ["A < 0", "A > 0"];
  return (
    `${root} ${side === "above" ? "Above" : "Below"} GSPO's range: the whole answer is clipped ` +
    `if ${sign[0]} and keeps its full gradient if ${sign[1]}. ${grpo}`
  );
}

function countTable() {
  const rows = ["GRPO", "GSPO"].map((name) => ({
    name,
    head: h("th", { scope: "row" }, name),
    cells: ["", "1", "-1"].map((key) => [key, h("td", { "data-count": `${name}${key}` })]),
  }));
  const node = h(
    "table",
    {},
    h("caption", {}, "Tokens outside the range, and tokens whose gradient is exactly zero."),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("td"),
        ...["outside", "clipped if A\u00a0>\u00a00", "clipped if A\u00a0<\u00a00"].map((text) =>
          h("th", { scope: "col" }, text),
        ),
      ),
    ),
    h(
      "tbody",
      {},
      ...rows.map(({ head, cells }) => h("tr", {}, head, ...cells.map(([, cell]) => cell))),
    ),
  );
  return {
    node,
    show(counts, total) {
      for (const { name, cells } of rows) {
        for (const [key, cell] of cells) {
          write(cell, `${counts[name + key]} of ${total}`);
          if (key) set(cell, { "data-tone": counts[name + key] > 0 ? "red" : "blue" });
        }
      }
    },
  };
}
