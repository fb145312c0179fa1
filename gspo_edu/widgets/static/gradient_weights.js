// Gradient weights: for a few answers, what each objective gives to every token.

import { groupAdvantages, sum } from "./math.js";
import { brief, signed, significant } from "./text.js";
import {
  button,
  choice,
  facts,
  h,
  legend,
  mount,
  nearestIndex,
  pool,
  set,
  slider,
  steps,
  svg,
  twoDigits,
  within,
  write,
} from "./frame.js";
import { plot, scale, width } from "./plot.js";
import { ratioBars } from "./ratio_bars.js";
import { allWeights, count, ROWS, sentence, TRAITS, weightTable } from "./gradient_rows.js";

const NAMES = ["ratios", "advantages", "objective", "answer", "token", ...TRAITS];
const EDGE = { left: 66, right: 4, top: 30 };
const CHART = 110; // height of the bars
const ROW = 30;
const CELLS = EDGE.top + CHART + 46; // top of the cells
const HEIGHT = CELLS + ROWS.length * ROW + 4;
const GAP = 0.4; // between two answers, in columns
const MOST = { answers: 6, tokens: 12, all: 40 };
const RATIOS = [...twoDigits(0.1, 0.99), ...count(100, 199).map((n) => n / 100), ...twoDigits(2, 10)];
const ONE_BATCH = [[1.5, 0.5, 1], [0.5, 2], [1.25], [1.2, 0.9, 1, 1.1]];
const AT_FIRST = ONE_BATCH.map((row) => row.map(() => 1));
const ADVANTAGES = groupAdvantages([1, 0, 0.5, 0], [0, 0, 0, 0]);

export function render(context) {
  return mount(context, "Gradient weights", NAMES, [2, 3, 5], ({ root, get, change, say }) => {
    let places = []; // [answer, token, left edge in columns] of every token

    const chosen = () => {
      const answer = Math.min(get("answer"), get("ratios").length) - 1;
      return [answer, Math.min(get("token"), get("ratios")[answer].length) - 1];
    };
    const setRatio = (i, t, value) => {
      const ratios = get("ratios").map((row) => [...row]);
      ratios[i][t] = Number(within(RATIOS, value).toPrecision(3));
      change({ ratios, answer: i + 1, token: t + 1 });
    };
    const setAdvantage = (value) => {
      const advantages = [...get("advantages")];
      advantages[chosen()[0]] = value;
      change({ advantages });
    };
    const start = (ratios, advantages) => change({ ratios, advantages, answer: 1, token: 1 });

    const chart = plot(HEIGHT, "Bars of the token ratios, and each token's weight per objective");
    const bars = ratioBars(chart, { ...EDGE, height: CHART });
    const barTexts = pool(chart, () => svg("text", { class: "gspo-tick", "text-anchor": "middle" }));
    const titles = pool(chart, () => svg("text", { class: "gspo-title", "text-anchor": "middle" }));
    const yLabel = svg("text", { class: "gspo-label", x: 0, y: 13 }, "ratio (log)");
    const column = svg("rect", { class: "gspo-outline" });
    const lines = ROWS.map(([name, label], i) => {
      const group = svg("g");
      group.append(svg("text", { class: "gspo-label", x: 0, y: CELLS + i * ROW + 19 }, label));
      const cells = pool(group, () => svg("rect", { class: "gspo-weight", rx: 3 }));
      const texts = pool(group, () => svg("text", { "text-anchor": "middle" }));
      return { name, group, label: group.firstChild, cells, texts };
    });
    chart.append(yLabel, ...lines.map((line) => line.group), column);

    let x = scale(0, 1, 0, 1);
    bars.pull({
      pick(px) {
        const away = (place) => Math.abs(place[2] + 0.5 - x.back(px));
        return places.reduce((a, b) => (away(b) < away(a) ? b : a));
      },
      press([i, t], py) {
        const row = ROWS[Math.floor((py - CELLS) / ROW)];
        change({ answer: i + 1, token: t + 1, ...(row && { objective: row[0] }) });
      },
      setRatio: ([i, t], value) => setRatio(i, t, value),
      redraw: () => draw(),
    });

    const answer = slider("answer", (at) => change({ answer: at, token: 1 }));
    const token = slider("token", (at) => change({ token: at }));
    const ratio = steps("its ratio", RATIOS, (value) => setRatio(...chosen(), value));
    const advantage = slider("its advantage", setAdvantage);
    const objective = choice(
      "Objective",
      ROWS.map(([name, label]) => [name, label]),
      (name) => change({ objective: name }),
    );
    let shown = []; // the settings that the two sliders move
    const knobs = [0, 1].map((k) =>
      slider("setting", (index) => change({ [shown[k][0]]: shown[k][3][index] })),
    );
    const own = () => get("ratios")[chosen()[0]];
    const isFull = () => sum(get("ratios").map((row) => row.length)) >= MOST.all;
    const addToken = () => {
      const ratios = get("ratios").map((row, i) => (i === chosen()[0] ? [...row, 1] : row));
      change({ ratios, token: ratios[chosen()[0]].length });
    };
    const removeToken = () => {
      const i = chosen()[0];
      change({ ratios: get("ratios").map((row, k) => (k === i ? row.slice(0, -1) : row)) });
    };
    const addAnswer = () => {
      const ratios = [...get("ratios"), [1]];
      change({ ratios, advantages: [...get("advantages"), 1], answer: ratios.length, token: 1 });
    };
    const removeAnswer = () =>
      change({ ratios: get("ratios").slice(0, -1), advantages: get("advantages").slice(0, -1) });
    const hasRoom = () => get("ratios").length < MOST.answers && !isFull();
    const edits = [
      button("Remove its last token", removeToken, () => own().length > 1),
      button("Add a token", addToken, () => own().length < MOST.tokens && !isFull()),
      button("Remove the last answer", removeAnswer, () => get("ratios").length > 1),
      button("Add an answer", addAnswer, hasRoom),
    ];
    const numbers = facts([
      ["ratio", "token's ratio r"],
      ["sequence", "answer's ratio s"],
      ["weight", "weight of the token"],
      ["silent", "tokens with gradient 0"],
    ]);
    const table = weightTable();
    root.append(
      h(
        "div",
        { class: "gspo-bar" },
        h(
          "div",
          { class: "gspo-buttons", role: "group", "aria-label": "Examples" },
          button("the one batch", () => start(ONE_BATCH, ADVANTAGES)),
          button("first update", () => start(AT_FIRST, ADVANTAGES)),
          button("one loud token", () => start([[10, ...Array(9).fill(1)], Array(10).fill(1)], [-1, 1])),
        ),
        h("div", { class: "gspo-buttons" }, ...edits.slice(0, 2)),
        h("div", { class: "gspo-buttons" }, ...edits.slice(2)),
      ),
      h("div", { class: "gspo-bar" }, objective.node),
      h(
        "div",
        { class: "gspo-columns" },
        h(
          "div",
          {},
          chart,
          legend([
            ["blue", "pushed up"],
            ["red", "pushed down"],
            ["soft", "exactly zero", "dashed"],
            ["green", "GRPO's range"],
          ]),
        ),
        h(
          "div",
          {},
          answer.node,
          advantage.node,
          token.node,
          ratio.node,
          ...knobs.map((knob) => knob.node),
          table.node,
        ),
      ),
      numbers.node,
    );
    numbers.node.classList.add("gspo-four");

    function draw() {
      const ratios = get("ratios");
      const [i, t] = chosen();
      const name = get("objective");
      const { weights: results, s } = allWeights(ratios, get("advantages"), get);

      let left = 0;
      places = [];
      const starts = ratios.map((row, a) => {
        const begin = left;
        row.forEach((_, k) => places.push([a, k, left + k]));
        left += row.length + GAP;
        return begin;
      });
      const wide = width(chart);
      const low = EDGE.top + CHART;
      x = scale(0, left - GAP, EDGE.left, wide - EDGE.right);
      const cell = x(1) - x(0);
      const gap = Math.min(cell * 0.06, 4);
      const place = places.findIndex(([a, k]) => a === i && k === t);
      bars.draw({
        ratios: ratios.flat(),
        spans: places.map((one) => [x(one[2]) + gap, cell - 2 * gap]),
        chosen: place,
        low: get("grpo_low"),
        high: get("grpo_high"),
        wide,
      });
      const roomy = cell >= 30;
      barTexts(roomy ? places.length : 0).forEach((text, n) => {
        const [a, k, column] = places[n];
        set(text, { x: x(column + 0.5), y: low + 15 });
        write(text, significant(ratios[a][k], 3));
      });
      titles(ratios.length).forEach((text, a) => {
        const A = get("advantages")[a];
        const space = cell * ratios[a].length;
        set(text, { x: x(starts[a] + ratios[a].length / 2), y: low + 36 });
        set(text, { "data-tone": A > 0 ? "blue" : A < 0 ? "red" : "soft" });
        const sign = A > 0 ? "▲" : A < 0 ? "▼" : "·";
        write(text, space >= 76 ? `${sign} A = ${signed(A)}` : space >= 44 ? signed(A) : sign);
      });

      const largest = Math.max(...Object.values(results).flat(2).map(Math.abs)) || 1;
      const written = cell >= 46;
      for (const [row, { name: key, label, cells, texts }] of lines.entries()) {
        const box = cells(places.length);
        const text = texts(written ? places.length : 0);
        set(label, { "font-weight": key === name ? 700 : 400 });
        places.forEach(([a, k, column], n) => {
          const weight = results[key][a][k];
          set(box[n], {
            x: x(column) + 1.5,
            y: CELLS + row * ROW + 1.5,
            width: Math.max(cell - 3, 1),
            height: ROW - 3,
            "data-tone": weight > 0 ? "blue" : "red",
            "data-zero": weight === 0,
            style: `--part: ${(68 * (Math.abs(weight) / largest) ** 0.7).toFixed(1)}%`,
          });
          if (!written) return;
          set(text[n], { x: x(column + 0.5), y: CELLS + row * ROW + 19 });
          write(text[n], brief(weight));
        });
      }
      const line = ROWS.findIndex(([key]) => key === name);
      set(column, { x: x(places[place][2]), y: CELLS + line * ROW, width: cell, height: ROW, rx: 4 });

      const [, label, settings] = ROWS[line];
      shown = settings;
      knobs.forEach((knob, k) => {
        knob.node.dataset.hidden = String(!settings[k]);
        if (!settings[k]) return;
        const [trait, , text, values] = settings[k];
        const value = get(trait);
        knob.show({
          min: 0,
          max: values.length - 1,
          step: 1,
          at: nearestIndex(values, value),
          text: significant(value, 3),
          label: `${label}, ${text}`,
        });
      });
      const A = get("advantages")[i];
      const total = places.length;
      answer.show({
        min: 1,
        max: Math.max(ratios.length, 2),
        step: 1,
        at: i + 1,
        text: `${i + 1} of ${ratios.length}`,
      });
      token.show({
        min: 1,
        max: Math.max(ratios[i].length, 2),
        step: 1,
        at: t + 1,
        text: `${t + 1} of ${ratios[i].length}`,
        label: `token of answer ${i + 1}`,
      });
      advantage.show({
        min: -3,
        max: 3,
        step: 0.01,
        at: A,
        text: signed(A),
        label: `advantage of answer ${i + 1}`,
      });
      ratio.show(ratios[i][t], significant(ratios[i][t], 3), `ratio of token ${t + 1}`);
      objective.show(name);
      for (const edit of edits) edit.check();
      const silent = (key) => sum(results[key].flat().map((weight) => Number(weight === 0)));
      const weight = results[name][i][t];
      numbers.show({
        ratio: significant(ratios[i][t], 4),
        sequence: s[i].toFixed(6),
        weight: signed(weight, 4),
        silent: `${silent(name)} of ${total}`,
      });
      table.show(results, i, t, silent, total, name);
      say(sentence(label, name, i, t, weight, A, silent(name), total));
    }
    return draw;
  });
}

