// Runs math.js on the cases that the browser side implements; prints one JSON object {id: result}.
// node reference.mjs MATH_JS VECTORS_JSON MORE_JSON
import { readFileSync } from "node:fs";

const text = (path) => readFileSync(path, "utf8");
const [mathFile, vectorsFile, moreFile] = process.argv.slice(2);
const math = await import(`data:text/javascript,${encodeURIComponent(text(mathFile))}`);

const run = {
  loss({ logp, logp_old, advantages, mask, config }) {
    const result = math.OBJECTIVES[config.loss](logp, logp_old, advantages, mask, {
      low: config.clip_low ?? config.log_clip_low,
      high: config.clip_high ?? config.log_clip_high,
      maxLen: config.max_len,
      cap: config.cap,
      tauPos: config.tau_pos,
      tauNeg: config.tau_neg,
    });
    return {
      ...result,
      token_ratio: math.tokenRatio(logp, logp_old, mask),
      seq_ratio: math.sequenceRatio(logp, logp_old, mask),
      seq_ratio_product: math.productRatio(logp, logp_old, mask),
    };
  },
  advantages({ rewards, group_ids, config }) {
    try {
      return { advantages: math.groupAdvantages(rewards, group_ids, config) };
    } catch (error) {
      return { raises: error.message };
    }
  },
  router({ logits, experts }) {
    return { gates: math.replayGates(logits, experts) };
  },
  ratio({ log_ratio_const, length }) {
    const row = (value) => [Array(length).fill(value)];
    const answer = [row(log_ratio_const), row(0), row(1)];
    return {
      product: math.productRatio(...answer)[0],
      geometric_mean: math.sequenceRatio(...answer)[0],
    };
  },
};

const results = {};
for (const { id, inputs } of JSON.parse(text(vectorsFile))) {
  results[id] = run[inputs.config.kind](inputs);
}
const more = JSON.parse(text(moreFile));
const spreads = more.spreads.map(([sigma, length, low, high]) => {
  const found = math.sequenceRatioSpread(sigma, length, low, high);
  const product = math.middle90(length * found.mean, Math.sqrt(length) * sigma).map(Math.exp);
  return { ...found, product };
});
const chosen = more.logits.map((moment) =>
  moment.map((token) => token.map((layer) => math.topExperts(layer, 3))),
);
const flat = (moments) => moments.flat();
const routes = { chosen, drift: math.drift(flat(chosen.slice(1)), flat(chosen.slice(0, -1))) };
console.log(JSON.stringify({ results, spreads, routes }));
