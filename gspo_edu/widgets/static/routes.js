// Routes of one answer: which experts each token takes, layer by layer, as updates go on, with
// Routing Replay switched on and off.

import { clippedSurrogate, drift, replayGates, sequenceRatio, sum, topExperts } from "./math.js";
import { percent, significant } from "./text.js";
import { choice, facts, h, legend, mount, pool, set, slider, svg, write } from "./frame.js";
import { plot, width } from "./plot.js";
import { ratioBars } from "./ratio_bars.js";
import { kinds, routeGrid } from "./route_grid.js";
import { routerSlopes } from "./router_slopes.js";

const NAMES = ["record", "update", "replay", "token", "layer", "grpo_low", "grpo_high"];
const EDGE = { left: 46, right: 4, top: 24 };
const CHART = 96; // height of the ratio bars
const MODES = [
  ["live", "the router's choice"],
  ["replay", "replayed"],
];

export function render(context) {
  return mount(context, "Routes", NAMES, [2, 3, 5], ({ root, get, change, say }) => {
    const choose = (token, layer) => change({ token: token + 1, layer });
    const grid = routeGrid(choose);
    const slopes = routerSlopes();
    const chart = plot(EDGE.top + CHART + 24, "Importance ratio of each token");
    const bars = ratioBars(chart, { ...EDGE, height: CHART, still: true });
    const others = svg("path", { class: "gspo-other" });
    const words = pool(chart, () => svg("text", { class: "gspo-tick", "text-anchor": "middle" }));
    const label = svg("text", { class: "gspo-label", x: 0, y: 13 });
    chart.append(others, label);
    chart.addEventListener("click", (event) => {
      const wide = width(chart) - EDGE.left - EDGE.right;
      const at = event.clientX - chart.getBoundingClientRect().left - EDGE.left;
      const tokens = get("record").tokens.length;
      const token = Math.floor((at / wide) * tokens);
      if (token >= 0 && token < tokens) change({ token: token + 1 });
    });

    const mode = choice("Experts that compute", MODES, (key) =>
      change({ replay: key === "replay" }),
    );
    const update = slider("update", (at) => change({ update: at }));
    const token = slider("token", (at) => change({ token: at }));
    const layer = slider("layer", (at) => change({ layer: at }));
    const numbers = facts([
      ["drift", "drift since sampling"],
      ["touched", "tokens with a new expert"],
      ["ratio", "token's ratio r"],
      ["outside", "outside GRPO's range"],
    ]);
    numbers.node.classList.add("gspo-four");
    root.append(
      h("div", { class: "gspo-bar" }, mode.node),
      h(
        "div",
        { class: "gspo-columns" },
        h(
          "div",
          {},
          grid.node,
          legend([
            ["blue", "as when sampled"],
            ["red", "new"],
            ["red", "gone", "dashed"],
            ["red", "wanted, not used", "dotted"],
          ]),
          chart,
          legend([
            ["green", "GRPO's range"],
            ["ink", "with the other choice of experts", "solid"],
          ]),
        ),
        h("div", {}, update.node, token.node, layer.node, slopes.node),
      ),
      numbers.node,
    );

    return function draw() {
      const record = get("record");
      const { tokens, layers, top_k: count } = record;
      const last = record.logp.length - 1;
      const u = Math.min(get("update"), last);
      const replay = get("replay");
      const t = Math.min(get("token"), tokens.length) - 1;
      const n = Math.min(get("layer"), layers.length - 1);
      const now = stateOf(record, u, replay);
      const other = stateOf(record, u, !replay);
      const before = stateOf(record, 0, false);
      const found = now.used.map((of, at) =>
        of.map((used, k) => kinds(before.used[at][k], used, now.wanted[at][k])),
      );

      grid.draw({
        found,
        tokens,
        layers,
        experts: record.logits[0][0][0].length,
        chosen: [t, n],
        wide: width(grid.node),
      });
      slopes.draw({
        logits: record.logp.map((_, k) => stateOf(record, k, replay).logits[t][n]),
        update: u,
        sets: found[t][n],
        count,
        name: `Router logits: token ${t + 1}, layer ${layers[n]}`,
        wide: width(slopes.node),
      });

      const wide = width(chart);
      const cell = (wide - EDGE.left - EDGE.right) / tokens.length;
      const spans = tokens.map((_, i) => [EDGE.left + i * cell + 2, cell - 4]);
      const range = { low: get("grpo_low"), high: get("grpo_high") };
      bars.draw({ ratios: now.ratios, spans, chosen: t, ...range, wide, also: other.ratios });
      const ticks = other.ratios.map((r, i) => `M${spans[i][0] - 1},${bars.at(r)}h${cell - 2}`);
      set(others, { d: ticks.join("") });
      words(tokens.length).forEach((node, i) => {
        set(node, { x: spans[i][0] + spans[i][1] / 2, y: EDGE.top + CHART + 15 });
        set(node, { "font-weight": i === t ? 700 : 400 });
        write(node, tokens[i]);
      });
      write(label, `ratio (log), ${replay ? "old experts replayed" : "own experts"}`);

      const outside = sum(
        now.ratios.map((r) => Number(clippedSurrogate(r, 1, range.low, range.high).outside)),
      );
      const touched = found.filter((of) => of.some(({ came }) => came.length)).length;
      const share = drift(now.used, before.used);
      mode.show(replay ? "replay" : "live");
      update.show({ min: 0, max: last, step: 1, at: u, text: `${u} of ${last}` });
      const spoken = `${t + 1} of ${tokens.length}: “${tokens[t]}”`;
      token.show({ min: 1, max: tokens.length, step: 1, at: t + 1, text: spoken });
      layer.show({
        min: 0,
        max: Math.max(layers.length - 1, 1),
        step: 1,
        at: n,
        text: String(layers[n]),
      });
      numbers.show({
        drift: percent(share),
        touched: `${touched} of ${tokens.length}`,
        ratio: significant(now.ratios[t], 4),
        outside: `${outside} of ${tokens.length}`,
      });
      const [s] = sequenceRatio([now.logp], [record.logp[0]], [tokens.map(() => 1)]);
      say(sentence({ u, replay, t, layer: layers[n], sets: found[t][n], found, now, n, s }));
    };
  });
}

// Experts and ratios after update `u`, with the router's own choice or the old experts replayed.
export function stateOf(record, u, replay) {
  const held = replay && u > 0;
  const logits = held ? record.replayed_logits[u - 1] : record.logits[u];
  const logp = held ? record.replayed_logp[u - 1] : record.logp[u];
  const best = (of) => of.map((layers) => layers.map((one) => topExperts(one, record.top_k)));
  const wanted = best(logits);
  return {
    logits,
    logp,
    wanted,
    used: held ? best(record.logits[0]) : wanted,
    ratios: logp.map((log, t) => Math.exp(log - record.logp[0][t])),
  };
}

function sentence({ u, replay, t, layer, sets, found, now, n, s }) {
  const ratio = significant(now.ratios[t], 4);
  const whole = `The answer's ratio s is ${s.toFixed(4)}.`;
  if (u === 0) {
    const same = "Before the first update every expert is as when sampled";
    return `${same}, and every ratio is 1. ${whole}`;
  }
  const where = `Token ${t + 1}, layer ${layer}`;
  const gate = (expert) => {
    const [used, logits] = [now.used[t][n], now.logits[t][n]];
    return replayGates(logits, used)[used.indexOf(expert)].toFixed(2);
  };
  const list = (experts) => experts.map((expert) => `expert ${expert}`).join(" and ");
  const elsewhere = found[t].some(({ came }) => came.length);
  let routes = `${where}: ${list(now.used[t][n])}, as when sampled`;
  if (sets.came.length) {
    const gates = sets.came.map((expert) => `expert ${expert} (gate ${gate(expert)})`);
    routes = `${where}: ${gates.join(" and ")} came in for ${list(sets.gone)}`;
  } else if (sets.wanted.length) {
    const wish = `${where}: the router would take ${list(sets.wanted)}`;
    routes = `${wish}, but ${list(now.used[t][n])} are replayed`;
  } else if (elsewhere) {
    routes += " (another layer changed)";
  }
  const reason = replay ? "from the weights alone" : "routes and weights together";
  return `${routes}. Ratio of the token: ${ratio}, ${reason}. ${whole}`;
}
