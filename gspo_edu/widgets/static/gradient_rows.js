// The objectives as rows of a picture: their settings, their weights, and both in words.

import { OBJECTIVES, sequenceRatio } from "./math.js";
import { signed } from "./text.js";
import { h, set, twoDigits, write } from "./frame.js";

const LOW = twoDigits(0.0001, 0.9);
const HIGH = twoDigits(0.0001, 4);
const LOGS = twoDigits(0.01, 2);
const TAUS = twoDigits(0.1, 5);
const range = (name) => [
  [`${name}_low`, "low", "range: below 1 by", LOW],
  [`${name}_high`, "high", "range: above 1 by", HIGH],
];
// Name, label, and the settings with sliders: [trait, keyword in math.js, label, values].
// The last entry of Dr. GRPO is what it shares with another row, which has the sliders for it.
export const ROWS = [
  ["grpo", "GRPO", range("grpo")],
  ["dr_grpo", "Dr. GRPO", [["max_len", "maxLen", "constant length", count(1, 64)]], range("grpo")],
  ["dapo", "DAPO", range("dapo")],
  ["cispo", "CISPO", [["cispo_cap", "cap", "cap of the ratio", twoDigits(0.1, 20)]]],
  ["gspo", "GSPO", range("gspo")],
  [
    "gmpo",
    "GMPO",
    [
      ["gmpo_low", "low", "log-ratio: below 0 by", LOGS],
      ["gmpo_high", "high", "log-ratio: above 0 by", LOGS],
    ],
  ],
  [
    "sapo",
    "SAPO",
    [
      ["sapo_pos", "tauPos", "temperature, A > 0", TAUS],
      ["sapo_neg", "tauNeg", "temperature, A < 0", TAUS],
    ],
  ],
];
// How a weight comes about where the gradient flows.
const FORMULAS = {
  grpo: "r·A / (G·L)",
  dr_grpo: "r·A / (G · constant)",
  dapo: "r·A / (all tokens)",
  cispo: "min(r, cap)·A / (all tokens)",
  gspo: "s·A / (G·L)",
  gmpo: "A / (G·L) times the mean of the clipped ratios",
  sapo: "r·A / (G·L) times how far the gate is open",
};
export const TRAITS = ROWS.flatMap(([, , settings]) => settings.map(([trait]) => trait));

export function count(first, last) {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

// {objective: [[weight of each token] of each answer]}, and each answer's ratio s.
export function allWeights(ratios, advantages, get) {
  const most = Math.max(...ratios.map((row) => row.length));
  const mask = ratios.map((row) => count(1, most).map((k) => Number(k <= row.length)));
  const logp = mask.map((row, a) => row.map((on, k) => (on ? Math.log(ratios[a][k]) : 0)));
  const old = mask.map((row) => row.map(() => 0));
  const weights = {};
  for (const [key, , settings, more = []] of ROWS) {
    const values = [...settings, ...more].map(([trait, word]) => [word, get(trait)]);
    const given = [logp, old, advantages, mask, Object.fromEntries(values)];
    const { gradient } = OBJECTIVES[key](...given);
    weights[key] = ratios.map((row, a) => row.map((_, k) => 0 - gradient[a][k]));
  }
  return { weights, s: sequenceRatio(logp, old, mask) };
}

export function sentence(label, name, i, t, weight, A, silent, total) {
  const who = `token ${t + 1} of answer ${i + 1}`;
  const whole = `In all, the gradient of ${silent} of ${total} tokens is exactly zero.`;
  if (weight !== 0) {
    return `${label}: ${who} gets ${FORMULAS[name]} = ${signed(weight, 4)}. ${whole}`;
  }
  if (name === "sapo" && A !== 0) {
    return `${label}: ${who} gets no gradient, since its gate is closed to the last digit. ${whole}`;
  }
  const moved = A > 0 ? "likelier already" : "less likely already";
  const unit = name === "gspo" ? "its answer has become" : "it has become";
  const reason = A === 0 ? "A = 0" : `${unit} ${moved}, beyond the range`;
  return `${label}: ${who} gets no gradient, since ${reason}. ${whole}`;
}

export function weightTable() {
  const rows = ROWS.map(([key, label]) => ({
    key,
    head: h("th", { scope: "row" }, label),
    weight: h("td", { "data-weight": key }),
    silent: h("td", { "data-silent": key }),
  }));
  const heads = ["", "this token", "gradient 0"].map((text) => h("th", { scope: "col" }, text));
  const node = h(
    "table",
    { class: "gspo-weights" },
    h("caption", {}, "Weight of the chosen token, and tokens without gradient."),
    h("thead", {}, h("tr", {}, ...heads)),
    h("tbody", {}, ...rows.map(({ head, weight, silent }) => h("tr", {}, head, weight, silent))),
  );
  return {
    node,
    show(results, i, t, silent, total, name) {
      for (const { key, weight, silent: zeros } of rows) {
        const value = results[key][i][t];
        write(weight, signed(value, 4));
        write(zeros, `${silent(key)} of ${total}`);
        set(weight, { "data-tone": value > 0 ? "blue" : value < 0 ? "red" : "soft" });
        set(weight, { "data-mine": key === name });
      }
    },
  };
}
