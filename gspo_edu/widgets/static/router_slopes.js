// Router logits of one token in one layer, before and now: a line per expert. Lines that cross at
// the border between chosen and not chosen are a flip.

import { pool, set, svg, write } from "./frame.js";
import { topExperts } from "./math.js";
import { path, plot, scale } from "./plot.js";

const HEIGHT = 190;
const EDGE = { left: 46, right: 46, top: 34, bottom: 10 };
const BEST = 6; // experts that are drawn even if they are never chosen
const APART = 13; // pixels between two labels

export function routerSlopes() {
  const chart = plot(HEIGHT, "Router logits of the chosen token, before and now");
  const posts = svg("path", { class: "gspo-post" });
  const lines = pool(chart, () => svg("path", { class: "gspo-slope" }));
  const labels = pool(chart, () => svg("text", {}));
  const heads = [svg("text", {}), svg("text", { "text-anchor": "end" })];
  const title = svg("text", { class: "gspo-title", x: 0, y: 13 });
  for (const head of heads) set(head, { class: "gspo-label", y: 28 });
  write(heads[0], "when sampled");
  chart.prepend(posts);
  chart.append(title, ...heads);

  return {
    node: chart,
    // logits: [update] of the experts, the first when sampled; sets: from kinds().
    draw({ logits, update, sets, count, name, wide }) {
      const drawn = new Set(topExperts(logits[0], BEST));
      for (const now of logits) topExperts(now, count).forEach((expert) => drawn.add(expert));
      const all = logits.flatMap((now) => [...drawn].map((expert) => now[expert]));
      const y = scale(Math.min(...all), Math.max(...all), HEIGHT - EDGE.bottom, EDGE.top + 6);
      const [left, right] = [EDGE.left, wide - EDGE.right];
      write(title, name);
      write(heads[1], update ? `after update ${update}` : "now");
      set(heads[1], { x: wide });
      set(heads[0], { x: 0 });
      set(posts, { d: `M${left},${EDGE.top}V${HEIGHT - 4}M${right},${EDGE.top}V${HEIGHT - 4}` });
      const kindOf = (expert) =>
        ["kept", "came", "gone", "wanted"].find((kind) => sets[kind].includes(expert)) ?? "other";
      const ends = [...drawn].map((e) => [e, y(logits[0][e]), y(logits[update][e])]);
      lines(ends.length).forEach((line, i) => {
        const [expert, from, to] = ends[i];
        const kind = kindOf(expert);
        const tone = kind === "kept" ? "blue" : kind === "other" ? "soft" : "red";
        set(line, { "data-tone": tone, "data-kind": kind });
        set(line, {
          d: path([
            [left, from],
            [right, to],
          ]),
        });
      });
      const texts = [1, 2].flatMap((side) => {
        const named = ends.filter(([expert]) => kindOf(expert) !== "other");
        return spread(named.map((end) => [end[0], end[side]])).map(([e, at]) => [e, at, side]);
      });
      labels(texts.length).forEach((label, i) => {
        const [expert, at, side] = texts[i];
        set(label, { x: side === 1 ? left - 7 : right + 7, y: at + 4 });
        set(label, { "text-anchor": side === 1 ? "end" : "start" });
        set(label, { "font-weight": kindOf(expert) === "kept" ? 400 : 600 });
        write(label, `e ${expert}`);
      });
    },
  };
}

// The same labels [name, place], moved as little as it takes to keep them APART.
function spread(labels) {
  const sorted = [...labels].sort((a, b) => a[1] - b[1]);
  let last = -Infinity;
  const down = sorted.map(([name, at]) => [name, (last = Math.max(at, last + APART))]);
  const over = Math.max(down.at(-1)[1] - (HEIGHT - EDGE.bottom), 0);
  let next = Infinity;
  return down.reverse().map(([name, at]) => {
    next = next === Infinity ? at - over : Math.min(at, next - APART);
    return [name, next];
  });
}
