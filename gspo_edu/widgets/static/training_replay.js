// Two stored runs side by side: reward, clip fraction and drift at the same rollout.

import { button, choice, h, legend, mount, set, slider, svg, write } from "./frame.js";
import { meanAndStd } from "./math.js";
import { axis, drag, path, plot, scale, ticks, width } from "./plot.js";
import { fixed, signedSum } from "./text.js";

const NAMES = ["record", "rollout", "seed"];
const EDGE = { left: 46, right: 10, top: 24, bottom: 14 };
const PANEL = 128;
const BELOW = 34; // room for the axis under the last panel
const STEP = 150; // milliseconds from rollout to rollout while it plays
const METRICS = [
  ["reward", "reward"],
  ["clip_fraction_seq", "clip fraction"],
  ["drift_per_update", "drift per update"],
];
const TONES = ["red", "blue"];
const LINES = ["dashed", "solid"];

export function render(context) {
  return mount(context, "Training replay", NAMES, [2, 3, 5], ({ root, get, change, say }) => {
    const { arms, seeds } = get("record");
    const last = get("record").values.reward[0][0].length;
    const chosen = () => Math.min(get("rollout"), last);
    const panels = METRICS.map(([metric, name], i) =>
      panel(metric, name, i === METRICS.length - 1, (rollout) => go(rollout)),
    );
    let timer = 0;
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      write(play, "Play");
    };
    const go = (rollout) => {
      stop();
      change({ rollout: Math.min(Math.max(rollout, 1), last) });
    };
    const play = button("Play", () => {
      if (timer) return stop();
      if (chosen() === last) change({ rollout: 1 });
      write(play, "Pause");
      timer = setInterval(() => {
        if (!root.isConnected || chosen() === last) return stop();
        change({ rollout: chosen() + 1 });
      }, STEP);
    });
    const rollout = slider("rollout", go);
    const seed = choice(
      "Seed",
      [["mean", `mean of ${seeds.length}`], ...seeds.map((one) => [String(one), String(one)])],
      (key) => change({ seed: key === "mean" ? null : Number(key) }),
    );
    const table = sideBySide(arms);
    root.append(
      h("div", { class: "gspo-bar" }, seed.node, h("div", { class: "gspo-buttons" }, play)),
      h(
        "div",
        { class: "gspo-columns" },
        h(
          "div",
          {},
          ...panels.map(({ node }) => node),
          legend([
            ...arms.map((arm, a) => [TONES[a], arm, LINES[a]]),
            ["soft", "thin: each seed", "solid"],
          ]),
        ),
        h("div", {}, rollout.node, table.node),
      ),
    );

    return function draw() {
      const record = get("record");
      const at = chosen();
      const now = {};
      METRICS.forEach(([metric], i) => {
        const curves = record.values[metric].map((of) => curve(record, of, get("seed")));
        now[metric] = curves.map((values) => values[at - 1]);
        panels[i].draw(record.values[metric], curves, at, last);
      });
      seed.show(get("seed") === null ? "mean" : String(get("seed")));
      rollout.show({ min: 1, max: Math.max(last, 2), step: 1, at, text: `${at} of ${last}` });
      table.show(now);
      const whose = get("seed") === null ? `mean of ${seeds.length} seeds` : `seed ${get("seed")}`;
      const parts = METRICS.map(
        ([metric, name]) =>
          `${name} ${arms.map((arm, a) => `${arm} ${number(now[metric][a])}`).join(", ")}`,
      );
      say(`Rollout ${at} of ${last}, ${whose}: ${parts.join("; ")}.`);
    };
  });
}

const number = (value) => (value === null ? "ended" : fixed(value, 3));

// Values per rollout of one seed, or the mean over the seeds still running; null after the end.
function curve(record, of, seed) {
  if (seed !== null) return of[record.seeds.indexOf(seed)];
  return of[0].map((_, i) => {
    const running = of.map((values) => values[i]).filter((value) => value !== null);
    return running.length ? meanAndStd(running).mean : null;
  });
}

// One metric over the rollouts; the last panel has the axis for all.
function panel(metric, name, isLast, go) {
  const tall = PANEL + (isLast ? BELOW : 0);
  const chart = plot(tall, `${name} over the rollouts`);
  chart.classList.add("gspo-sideways");
  const yAxis = axis(chart, true);
  const xAxis = axis(chart, false);
  const pale = TONES.map((tone) => svg("path", { class: "gspo-seeds", "data-tone": tone }));
  const rest = TONES.map((tone) => svg("path", { class: "gspo-rest", "data-tone": tone }));
  const lines = TONES.map((tone, a) =>
    svg("path", { class: "gspo-curve", "data-tone": tone, "stroke-dasharray": a ? "none" : "7 4" }),
  );
  const dots = TONES.map((tone) => svg("circle", { class: "gspo-dot", "data-tone": tone, r: 6 }));
  const here = svg("line", { class: "gspo-here" });
  const title = svg("text", { class: "gspo-title", x: 0, y: 13 }, name);
  const label = svg("text", { class: "gspo-label", "text-anchor": "middle", y: tall - 3 });
  chart.append(...pale, ...rest, here, ...lines, ...dots, title, label);
  let x = scale(1, 2, 0, 1);
  drag(chart, (px) => go(Math.round(x.back(px))));

  return {
    node: chart,
    draw(values, curves, at, last) {
      const wide = width(chart);
      const bottom = PANEL - EDGE.bottom;
      const most = Math.max(...values.flat(2).filter((value) => value !== null)) || 1;
      x = scale(1, Math.max(last, 2), EDGE.left, wide - EDGE.right);
      const y = scale(0, most * 1.05, bottom, EDGE.top);
      yAxis(
        ticks(0, most * 1.05, 4).map(([value, text]) => [y(value), text]),
        EDGE.left,
        wide - EDGE.right,
      );
      if (isLast) {
        const marks = [[1, "1"], ...ticks(1, last, wide > 500 ? 8 : 4)];
        xAxis(
          marks.map(([value, text]) => [x(value), text]),
          bottom,
          bottom + 5,
        );
        set(label, { x: (EDGE.left + wide - EDGE.right) / 2 });
        write(label, "rollout");
      }
      const points = (of, from, to) =>
        of.map((value, i) => [i + 1, value]).filter(([r, v]) => v !== null && r >= from && r <= to);
      const line = (of, from, to) => path(points(of, from, to).map(([r, v]) => [x(r), y(v)]));
      curves.forEach((of, a) => {
        set(pale[a], { d: values[a].map((seed) => line(seed, 1, last)).join("") });
        set(rest[a], { d: line(of, at, last) });
        set(lines[a], { d: line(of, 1, at) });
        const value = of[at - 1];
        set(dots[a], { cx: x(at), cy: y(value ?? 0), opacity: value === null ? 0 : 1 });
      });
      set(here, { x1: x(at), x2: x(at), y1: EDGE.top, y2: bottom });
    },
  };
}

// The numbers of both arms at the chosen rollout, and their difference.
function sideBySide(arms) {
  const rows = METRICS.map(([metric, name]) => ({
    metric,
    head: h("th", { scope: "row" }, name),
    cells: [0, 1, 2].map((a) => h("td", { "data-value": `${metric} ${a}` })),
  }));
  const heads = ["", ...arms, "difference"].map((text) => h("th", { scope: "col" }, text));
  const node = h(
    "table",
    { class: "gspo-weights" },
    h("caption", {}, `Mean over the rollout's updates; difference: ${arms[1]}\u00a0−\u00a0${arms[0]}.`),
    h("thead", {}, h("tr", {}, ...heads)),
    h("tbody", {}, ...rows.map(({ head, cells }) => h("tr", {}, head, ...cells))),
  );
  return {
    node,
    show(now) {
      for (const { metric, cells } of rows) {
        const [first, second] = now[metric];
        write(cells[0], number(first));
        write(cells[1], number(second));
        write(cells[2], first === null || second === null ? "–" : signedSum(second - first, 3));
        set(cells[0], { "data-tone": "red" });
        set(cells[1], { "data-tone": "blue" });
      }
    },
  };
}
