// Every number that a widget shows comes from here, and every function here is tested against the
// same reference file as the Python package. Arrays are [answer][token]; mask is 1 on response
// tokens; what lies outside the mask reaches no result.

// min(r A, clip(r, 1 - low, 1 + high) A), its slope in r, and on which side of min() it lies.
// clipped: min() chose the clipped branch. outside: the ratio lies beyond the range.
export function clippedSurrogate(ratio, advantage, low, high) {
  const bounded = Math.min(Math.max(ratio, 1 - low), 1 + high);
  const above = ratio > 1 + high;
  const below = ratio < 1 - low;
  const clipped = (above && advantage > 0) || (below && advantage < 0);
  return {
    value: Math.min(ratio * advantage, bounded * advantage),
    slope: clipped ? 0 : advantage,
    clipped,
    outside: above || below,
  };
}

export function tokenLogRatio(logp, logpOld, mask) {
  return mask.map((row, i) => row.map((inside, t) => (inside ? logp[i][t] - logpOld[i][t] : 0)));
}

export function tokenRatio(logp, logpOld, mask) {
  const log = tokenLogRatio(logp, logpOld, mask);
  return mask.map((row, i) => row.map((inside, t) => (inside ? Math.exp(log[i][t]) : 0)));
}

// Product of an answer's ratios, one number per answer.
export function productRatio(logp, logpOld, mask) {
  return tokenLogRatio(logp, logpOld, mask).map((row) => Math.exp(sum(row)));
}

// Geometric mean of an answer's ratios, one number per answer; 1 for an answer without tokens.
export function sequenceRatio(logp, logpOld, mask) {
  return tokenLogRatio(logp, logpOld, mask).map((row, i) =>
    Math.exp(sum(row) / Math.max(sum(mask[i]), 1)),
  );
}

// One clipped ratio per token, mean over all tokens.
export function ppo(logp, logpOld, advantages, mask, { low = 0.2, high = 0.2 } = {}) {
  const tokens = Math.max(sum(mask.map(sum)), 1);
  const share = mask.map((row) => row.map((inside) => inside / tokens));
  const ratio = tokenRatio(logp, logpOld, mask);
  return clippedLoss(ratio, perToken(advantages, mask), share, mask, low, high);
}

// One clipped ratio per token, mean over each answer, then over answers.
export function grpo(logp, logpOld, advantages, mask, { low = 0.2, high = 0.27 } = {}) {
  const ratio = tokenRatio(logp, logpOld, mask);
  return clippedLoss(ratio, perToken(advantages, mask), answerShare(mask), mask, low, high);
}

// One clipped ratio per answer; each of its tokens carries it.
export function gspo(logp, logpOld, advantages, mask, { low = 3e-4, high = 4e-4 } = {}) {
  const ratio = spread(sequenceRatio(logp, logpOld, mask), mask);
  const advantage = perToken(advantages, mask).map(
    (row, i) => sum(row) / Math.max(sum(mask[i]), 1),
  );
  return clippedLoss(ratio, spread(advantage, mask), answerShare(mask), mask, low, high);
}

// One clipped ratio per token, sum over each answer divided by one constant, mean over answers.
export function drGrpo(logp, logpOld, advantages, mask, { low = 0.2, high = 0.27, maxLen }) {
  const ratio = tokenRatio(logp, logpOld, mask);
  const share = mask.map((row) => row.map((inside) => inside / maxLen / Math.max(mask.length, 1)));
  return clippedLoss(ratio, perToken(advantages, mask), share, mask, low, high);
}

// PPO's token mean with a higher upper bound.
export function dapo(logp, logpOld, advantages, mask, { low = 0.2, high = 0.28 } = {}) {
  return ppo(logp, logpOld, advantages, mask, { low, high });
}

// The ratio, capped, is a constant weight on log pi: no token loses its gradient. Token mean.
// outside: capped. Where A is 0, so is the gradient.
export function cispo(logp, logpOld, advantages, mask, { cap = 5 } = {}) {
  const ratio = tokenRatio(logp, logpOld, mask);
  const tokens = Math.max(sum(mask.map(sum)), 1);
  const advantage = perToken(advantages, mask);
  const weight = mask.map((row, i) =>
    row.map((inside, t) => (inside ? (Math.min(ratio[i][t], cap) * advantage[i][t]) / tokens : 0)),
  );
  const values = weight.map((row, i) => row.map((w, t) => (mask[i][t] ? w * logp[i][t] : 0)));
  return smoothLoss(values, weight, mask, (i, t) => ratio[i][t] > cap);
}

// Each token's log-ratio is clipped on the side that the sign of A says, then the geometric mean is
// taken. `ratio` is that mean, one per answer.
export function gmpo(logp, logpOld, advantages, mask, { low = 0.4, high = 0.4 } = {}) {
  const log = tokenLogRatio(logp, logpOld, mask);
  const share = answerShare(mask);
  const advantage = perToken(advantages, mask).map(
    (row, i) => sum(row) / Math.max(sum(mask[i]), 1),
  );
  const clips = (i, t) =>
    (log[i][t] > high && advantage[i] > 0) || (log[i][t] < -low && advantage[i] < 0);
  const bounded = log.map((row, i) =>
    row.map((x, t) => (clips(i, t) ? Math.min(Math.max(x, -low), high) : x)),
  );
  const ratio = bounded.map((row, i) => Math.exp(sum(row) / Math.max(sum(mask[i]), 1)));
  const values = share.map((row, i) => row.map((part) => part * ratio[i] * advantage[i]));
  const weight = values.map((row, i) => row.map((value, t) => (clips(i, t) ? 0 : value)));
  const outside = (i, t) => log[i][t] > high || log[i][t] < -low;
  return { ...smoothLoss(values, weight, mask, outside, clips), ratio };
}

// A sigmoid gate in place of a clip: the pull fades as the ratio leaves 1.
export function sapo(logp, logpOld, advantages, mask, { tauPos = 1, tauNeg = 1.05 } = {}) {
  const ratio = tokenRatio(logp, logpOld, mask);
  const share = answerShare(mask);
  const advantage = perToken(advantages, mask);
  const tau = (i, t) => (advantage[i][t] > 0 ? tauPos : tauNeg);
  const gate = (i, t) => 1 / (1 + Math.exp(-tau(i, t) * (ratio[i][t] - 1)));
  const values = share.map((row, i) =>
    row.map((part, t) => (part * 4 * gate(i, t) * advantage[i][t]) / tau(i, t)),
  );
  const weight = share.map((row, i) =>
    row.map((part, t) => {
      const open = gate(i, t);
      return part * 4 * open * (1 - open) * ratio[i][t] * advantage[i][t];
    }),
  );
  return smoothLoss(values, weight, mask, () => false);
}

// The objectives by the names of gspo_edu.objectives.
export const OBJECTIVES = { ppo, grpo, dr_grpo: drGrpo, dapo, cispo, gspo, gmpo, sapo };

// As clippedLoss, from each token's part of the objective and of its slope in log pi.
function smoothLoss(values, weight, mask, outside, clips = () => false) {
  const flags = (says) =>
    mask.map((row, i) => row.map((inside, t) => Number(Boolean(inside) && says(i, t))));
  return {
    loss: -sum(values.map(sum)),
    gradient: weight.map((row) => row.map((w) => -w)),
    clipped: flags(clips),
    outside: flags(outside),
  };
}

// loss is minimised; gradient is d loss / d logp; clipped and outside are booleans per token.
function clippedLoss(ratio, advantage, share, mask, low, high) {
  const points = mask.map((row, i) =>
    row.map((_, t) => clippedSurrogate(ratio[i][t], advantage[i][t], low, high)),
  );
  const each = (value) =>
    mask.map((row, i) => row.map((inside, t) => (inside ? value(points[i][t], i, t) : 0)));
  return {
    loss: -sum(each((point, i, t) => share[i][t] * point.value).map(sum)),
    gradient: each((point, i, t) => -share[i][t] * point.slope * ratio[i][t]),
    clipped: each((point) => Number(point.clipped)),
    outside: each((point) => Number(point.outside)),
  };
}

// Weight of each token in "mean over each answer, then over answers".
function answerShare(mask) {
  return mask.map((row) =>
    row.map((inside) => inside / Math.max(sum(row), 1) / Math.max(mask.length, 1)),
  );
}

// Advantages (B), (B, 1) or (B, T) as (B, T).
function perToken(advantages, mask) {
  return mask.map((row, i) => {
    const given = [advantages[i]].flat();
    return row.map((inside, t) => (inside ? given[given.length === 1 ? 0 : t] : 0));
  });
}

function spread(perAnswer, mask) {
  return mask.map((row, i) => row.map(() => perAnswer[i]));
}

// Ids of the `count` largest logits, the largest first: what a router chooses.
export function topExperts(logits, count) {
  const ids = logits.map((_, expert) => expert);
  return ids.sort((a, b) => logits[b] - logits[a] || a - b).slice(0, count);
}

// Gate weights of the given experts, softmax over their logits. Routing Replay fixes which experts
// compute, not how much each counts.
export function replayGates(logits, experts) {
  const largest = Math.max(...experts.map((expert) => logits[expert]));
  const sizes = experts.map((expert) => Math.exp(logits[expert] - largest));
  return sizes.map((size) => size / sum(sizes));
}

// Share of the expert slots [token][layer][slot] whose expert the reference has not for that token
// and layer.
export function drift(routes, reference) {
  const isNew = routes.flatMap((layers, t) =>
    layers.flatMap((experts, n) => experts.map((e) => Number(!reference[t][n].includes(e)))),
  );
  return sum(isNew) / Math.max(isNew.length, 1);
}

// (reward - group mean) / group std; exactly 0 for a group whose rewards are all equal.
export function groupAdvantages(rewards, groupIds, { normalize = true, ddof = 0, eps = 0 } = {}) {
  const advantages = rewards.map(() => 0);
  for (const id of new Set(groupIds)) {
    const rows = rewards.map((_, i) => i).filter((i) => groupIds[i] === id);
    if (rows.length < 2) throw new Error(`group ${id} has one answer, so it has no baseline`);
    const { mean, std, equal } = meanAndStd(
      rows.map((i) => rewards[i]),
      ddof,
    );
    if (equal) continue;
    for (const i of rows) advantages[i] = (rewards[i] - mean) / (normalize ? std + eps : 1);
  }
  return advantages;
}

// ddof 0 divides the squared deviations by n, 1 by n - 1.
// equal says whether all values are the same, which rounding would hide in std.
export function meanAndStd(values, ddof = 0) {
  const mean = sum(values) / values.length;
  const equal = values.every((value) => value === values[0]);
  const squares = sum(values.map((value) => (value - mean) ** 2));
  return { mean, std: equal ? 0 : Math.sqrt(squares / (values.length - ddof)), equal };
}

// The sequence ratio s of answers with `length` independent tokens whose log-ratios are normal with
// standard deviation sigma and mean -sigma^2 / 2 (so that the mean token ratio is 1):
// log s is normal too, and its mean does not shrink with length.
export function sequenceRatioSpread(sigma, length, low, high) {
  const mean = (-sigma * sigma) / 2;
  const std = sigma / Math.sqrt(length);
  const below = normalCdf((Math.log1p(-low) - mean) / std);
  const above = normalCdf((mean - Math.log1p(high)) / std);
  return { mean, std, below, above, outside: below + above };
}

// The interval that holds the middle 90 % of a normal variable.
export function middle90(mean, std) {
  const z = 1.6448536269514722;
  return [mean - z * std, mean + z * std];
}

// Probability that a standard normal variable is below z (series of Marsaglia 2004).
export function normalCdf(z) {
  if (z < -8) return 0;
  if (z > 8) return 1;
  let term = z;
  let total = z;
  for (let k = 3; Math.abs(term) > 1e-17 * Math.abs(total); k += 2) {
    term *= (z * z) / k;
    total += term;
  }
  return 0.5 + (total * Math.exp((-z * z) / 2)) / Math.sqrt(2 * Math.PI);
}

export function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
