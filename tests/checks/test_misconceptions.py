"""Every mistake that a check names is made here once, by other code, and must be named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from gspo_edu.checks import TASKS
from gspo_edu.checks.result import CheckResult

SEEDS = (0, 1, 2)
Function = Callable[..., Any]


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def arrays(function: Function) -> Function:
    """A function of NumPy arrays, whatever it is given."""

    def called(*given: Any) -> Any:
        return function(*(np.asarray(x.detach()) if torch.is_tensor(x) else x for x in given))

    return called


TOKEN_RATIO = {
    "log": lambda new, old, m: (new - old) * m,
    "inverse": lambda new, old, m: np.exp(old) / np.exp(new) * m,
    "ratio_of_logs": lambda new, old, m: new / old * m,
    "new_only": lambda new, old, m: np.exp(new) * m,
    "difference": lambda new, old, m: (np.exp(new) - np.exp(old)) * m,
    "padding_counted": lambda new, old, m: np.exp(new - old),
    "masked_before_exp": lambda new, old, m: np.exp((new - old) * m),
}


def rows(one: Callable[[Any, Any], float]) -> Function:
    """One number per answer, from its own token log-ratios and its padded row of them."""

    def called(new: Any, old: Any, m: Any) -> list[float]:
        out = []
        for row in range(len(new)):
            own = [float(new[row][t] - old[row][t]) for t in range(len(m[row])) if m[row][t]]
            out.append(one(own, np.asarray(new[row] - old[row])))
        return out

    return called


def up_to_the_last(new: Any, old: Any, m: Any) -> list[float]:
    """The geometric mean over everything up to an answer's last own token."""
    ends = [int(np.flatnonzero(row).max()) + 1 for row in m]
    return [float(np.exp((new[i] - old[i])[:end].mean())) for i, end in enumerate(ends)]


SEQUENCE_RATIO = {
    "reply_counted": up_to_the_last,
    "no_root": rows(lambda own, _: float(np.prod(np.exp(own)))),
    "arithmetic_mean": rows(lambda own, _: float(np.mean(np.exp(own)))),
    "padded_width": rows(lambda own, row: float(np.exp(np.sum(own) / len(row)))),
    "inverse": rows(lambda own, _: float(np.exp(-np.mean(own)))),
    "log": rows(lambda own, _: float(np.mean(own))),
    "square_root": rows(lambda own, _: float(np.sqrt(np.prod(np.exp(own))))),
    "answers_as_length": lambda new, old, m: np.exp(((new - old) * m).sum(axis=1) / len(m)),
    "root_of_length": rows(lambda own, _: float(np.exp(np.sum(own) / len(own) ** 0.5))),
    "probability": lambda new, old, m: np.exp((new * m).sum(axis=1) / m.sum(axis=1)),
    "padding_counted": rows(lambda own, row: float(np.exp(row.mean()))),
    "unmoved_left_out": lambda new, old, m: np.exp(
        ((new - old) * m).sum(axis=1) / ((new - old) * m != 0).sum(axis=1)
    ),
    "padding_in_sum": rows(lambda own, row: float(np.exp(row.sum() / len(own)))),
    "zero_in_product": lambda new, old, m: (
        np.prod(np.exp(new - old) * m, axis=1) ** (1 / m.sum(axis=1))
    ),
}


def std(x: Any, axis: Any = 1, ddof: int = 0) -> Any:
    """A std that does not mind a flat group."""
    found = x.std(axis=axis, ddof=ddof, keepdims=True)
    return np.where(found == 0, 1.0, found)


def mean(x: Any, axis: Any = 1) -> Any:
    return x.mean(axis=axis, keepdims=True)


GROUP_ADVANTAGE = {
    "sample_std": lambda r: (r - mean(r)) / std(r, ddof=1),
    "no_std": lambda r: r - mean(r),
    "variance": lambda r: (r - mean(r)) / std(r) ** 2,
    "library_eps": lambda r: (r - mean(r)) / (r.std(axis=1, keepdims=True) + 1e-4),
    "trl": lambda r: (r - mean(r)) / (r.std(axis=1, ddof=1, keepdims=True) + 1e-4),
    "range": lambda r: (r - mean(r)) / np.maximum(np.ptp(r, axis=1, keepdims=True), 1e-12),
    "not_centred": lambda r: np.where(r.std(axis=1, keepdims=True) == 0, 0, r / std(r)),
    "whole_batch": lambda r: (r - r.mean()) / r.std(),
    "over_prompts": lambda r: (r - mean(r, 0)) / std(r, 0),
    "others": lambda r: (r - (r.sum(1, keepdims=True) - r) / (r.shape[1] - 1)) / std(r),
    "best": lambda r: (r - r.max(axis=1, keepdims=True)) / std(r),
    "wrong_sign": lambda r: (mean(r) - r) / std(r),
    "nan_in_dead_group": lambda r: (r - mean(r)) / r.std(axis=1, keepdims=True),
}


def terms(make: Callable[[Any, Any, Any, Any], Any]) -> dict[str, Function]:
    """The mistakes of clipping; ``make`` builds a function from lower, upper, choose, sign."""

    def lo(a: float, b: float) -> float:
        return 1 - a

    def hi(a: float, b: float) -> float:
        return 1 + b

    def smaller(plain: Any, cut: Any, a: Any, r: Any, top: Any) -> Any:
        return np.minimum(plain, cut)

    return {
        "max": make(lo, hi, lambda p, c, a, r, top: np.maximum(p, c), 1),
        "max_for_negative": make(
            lo,
            hi,
            lambda p, c, a, r, top: np.where(a > 0, np.minimum(p, c), np.maximum(p, c)),
            1,
        ),
        "clip_only": make(lo, hi, lambda p, c, a, r, top: c, 1),
        "no_clip": make(lo, hi, lambda p, c, a, r, top: p, 1),
        "advantage_twice": make(lo, hi, lambda p, c, a, r, top: np.minimum(p, c) * a, 1),
        "clip_product": make(lo, hi, lambda p, c, a, r, top: np.minimum(p, top), 1),
        "bounds_without_one": make(lambda a, b: a, lambda a, b: b, smaller, 1),
        "log_bounds": make(lambda a, b: np.exp(-a), lambda a, b: np.exp(b), smaller, 1),
        "one_side": make(lo, hi, lambda p, c, a, r, top: np.minimum(p, np.minimum(r, top) * a), 1),
        "range_without_one": make(lambda a, b: a, hi, smaller, 1),
        "bounds_swapped": make(lambda a, b: 1 - b, lambda a, b: 1 + a, smaller, 1),
        "low_for_both": make(lo, lambda a, b: 1 + a, smaller, 1),
        "high_for_both": make(lambda a, b: 1 - b, hi, smaller, 1),
        "ppo_range": make(lambda a, b: 0.8, lambda a, b: 1.2, smaller, 1),
        "paper_range": make(lambda a, b: 0.9997, lambda a, b: 1.0004, smaller, 1),
        "wrong_sign": make(lo, hi, smaller, -1),
        "none": make(lo, hi, smaller, 1),
    }


def make_term(lower: Any, upper: Any, choose: Any, sign: int) -> Function:
    def term(r: Any, a: Any, low: float, high: float) -> Any:
        top = upper(low, high)
        cut = np.clip(r, lower(low, high), top) * a
        return sign * choose(r * a, cut, a, r, top)

    return term


def losses(ratio: Any = None, average: Any = None) -> Callable[..., Function]:
    """GRPO's (B, T) terms: ``ratio(new, old, m)`` and ``average(terms, m)`` may be replaced."""

    def make(lower: Any, upper: Any, choose: Any, sign: int) -> Function:
        def loss(new: Any, old: Any, A: Any, m: Any, low: float, high: float) -> Any:
            r = ratio(new, old, m) if ratio else np.exp(new - old)
            a = A[:, None] * np.ones_like(r)
            top = upper(low, high)
            x = choose(r * a, np.clip(r, lower(low, high), top) * a, a, r, top)
            if average:
                return -sign * average(x, m)
            return -sign * sum((x[i][m[i] > 0]).mean() for i in range(len(x))) / len(x)

        return loss

    return make


def answer_losses(s: Any, average: Any = None) -> Callable[..., Function]:
    """GSPO's (B,) terms, written with the package's shapes but not its code."""

    def make(lower: Any, upper: Any, choose: Any, sign: int) -> Function:
        def loss(new: Any, old: Any, A: Any, m: Any, low: float, high: float) -> Any:
            r, top = np.asarray(s(new, old, m)), upper(low, high)
            x = choose(r * A, np.clip(r, lower(low, high), top) * A, A, r, top)
            return -sign * (average(x, m) if average else x.mean())

        return loss

    return make


def right_s(new: Any, old: Any, m: Any) -> Any:
    return np.exp(np.where(m, new - old, 0).sum(axis=1) / m.sum(axis=1))


def plain(make: Callable[..., Function]) -> Function:
    return terms(make)["none"]


def without(table: dict[str, Function]) -> dict[str, Function]:
    return {key: function for key, function in table.items() if key != "none"}


GRPO_LOSS = {
    **without(terms(losses())),
    "mean_over_tokens": plain(losses(average=lambda x, m: x[m > 0].mean())),
    "no_mean_over_answers": plain(
        losses(average=lambda x, m: ((x * m).sum(1) / m.sum(1)).sum()),
    ),
    "no_mean_over_tokens": plain(losses(average=lambda x, m: (x * m).sum(1).mean())),
    "padded_width": plain(losses(average=lambda x, m: (x * m).mean())),
    "padding_counted": plain(losses(average=lambda x, m: x.mean())),
    "padding_in_sum": plain(losses(average=lambda x, m: (x.sum(1) / m.sum(1)).mean())),
    "sequence_ratio": plain(losses(lambda n, o, m: right_s(n, o, m)[:, None] + 0 * n)),
    "inverse": plain(losses(lambda n, o, m: np.exp(o - n))),
    "log": plain(losses(lambda n, o, m: n - o)),
    "ratio_of_logs": plain(losses(lambda n, o, m: n / o)),
}
GSPO_LOSS = {
    **without(terms(answer_losses(right_s))),
    **{key: plain(answer_losses(function)) for key, function in SEQUENCE_RATIO.items()},
    "clipped_tokens": plain(losses()),
    "no_mean_over_answers": plain(answer_losses(right_s, lambda x, m: x.sum())),
    "weighted_by_length": plain(
        answer_losses(right_s, lambda x, m: (x[:, None] * m).sum() / m.sum())
    ),
    "times_length": plain(answer_losses(right_s, lambda x, m: (x[:, None] * m).sum() / len(x))),
    "crossed": lambda new, old, A, m, low, high: (
        -np.mean(
            [
                min(s * a, float(np.clip(s, 1 - low, 1 + high)) * a)
                for s in right_s(new, old, m)
                for a in A
            ]
        )
    ),
}


def fractions(
    flag: Any = None,
    share: Any = None,
    low: Any = None,
    high: Any = None,
    over: Any = np.greater,
    under: Any = np.less,
) -> Function:
    def fraction(r: Any, A: Any, m: Any, clip_low: float, clip_high: float) -> Any:
        bottom = low(clip_low, clip_high) if low else 1 - clip_low
        top = high(clip_low, clip_high) if high else 1 + clip_high
        good = np.repeat(A[:, None] > 0, r.shape[1], axis=1)
        up, down = over(r, top), under(r, bottom)
        flags = flag(up, down, good) if flag else np.where(good, up, down)
        return share(flags, m) if share else flags[m > 0].mean()

    return fraction


CLIP_FRACTION = {
    "on_bound": fractions(over=np.greater_equal, under=np.less_equal),
    "outside": fractions(lambda up, down, good: up | down),
    "wrong_corners": fractions(lambda up, down, good: np.where(good, down, up)),
    "above_only": fractions(lambda up, down, good: up & good),
    "above_any_sign": fractions(lambda up, down, good: up),
    "below_only": fractions(lambda up, down, good: down & ~good),
    "inside": fractions(lambda up, down, good: ~up & ~down),
    "mean_of_answers": fractions(share=lambda f, m: ((f & m).sum(1) / m.sum(1)).mean()),
    "padding_counted": fractions(share=lambda f, m: f.mean()),
    "padded_width": fractions(share=lambda f, m: (f & m).mean()),
    "count": fractions(share=lambda f, m: (f & m).sum()),
    "percent": fractions(share=lambda f, m: 100 * f[m > 0].mean()),
    "range_without_one": fractions(low=lambda a, b: a),
    "bounds_without_one": fractions(low=lambda a, b: a, high=lambda a, b: b),
    "bounds_swapped": fractions(low=lambda a, b: 1 - b, high=lambda a, b: 1 + a),
    "low_for_both": fractions(high=lambda a, b: 1 + a),
    "high_for_both": fractions(low=lambda a, b: 1 - b),
    "ppo_range": fractions(low=lambda a, b: 0.8, high=lambda a, b: 1.2),
    "paper_range": fractions(low=lambda a, b: 0.9997, high=lambda a, b: 1.0004),
}


def routed(order: Any = None, gates: Any = None) -> Function:
    def route(logits: Any, k: int) -> tuple[Any, Any]:
        experts = order(logits, k) if order else np.argsort(-logits, axis=1)[:, :k]
        kept = np.take_along_axis(logits, experts, axis=1)
        return experts, gates(logits, experts, kept) if gates else softmax(kept)

    return route


ROUTER_TOP_K = {
    "lowest": routed(lambda x, k: np.argsort(x, axis=1)[:, :k]),
    "largest_absolute": routed(lambda x, k: np.argsort(-np.abs(x), axis=1)[:, :k]),
    "same_for_all": routed(lambda x, k: np.tile(np.argsort(-x.mean(axis=0))[:k], (len(x), 1))),
    "first": routed(lambda x, k: np.tile(np.arange(k), (len(x), 1))),
    "not_renormalised": routed(
        gates=lambda x, e, kept: np.take_along_axis(softmax(x), e, axis=1),
    ),
    "equal_gates": routed(gates=lambda x, e, kept: np.ones_like(kept) / kept.shape[1]),
    "raw_logits": routed(gates=lambda x, e, kept: kept),
    "over_tokens": routed(gates=lambda x, e, kept: softmax(kept, axis=0)),
    "divided_logits": routed(gates=lambda x, e, kept: kept / kept.sum(axis=1, keepdims=True)),
    "gates_reversed": routed(gates=lambda x, e, kept: softmax(kept)[:, ::-1]),
}


def kept(logits: Any, experts: Any) -> Any:
    return np.take_along_axis(logits, experts, axis=1)


REPLAY_GATES = {
    "copied_gates": lambda x, e, old: old,
    "live_experts": lambda x, e, old: softmax(-np.sort(-x, axis=1)[:, : e.shape[1]]),
    "not_renormalised": lambda x, e, old: kept(softmax(x), e),
    "equal_gates": lambda x, e, old: np.full(e.shape, 1 / e.shape[1]),
    "raw_logits": lambda x, e, old: kept(x, e),
    "sorted_gates": lambda x, e, old: -np.sort(-softmax(kept(x, e)), axis=1),
    "over_tokens": lambda x, e, old: softmax(kept(x, e), axis=0),
    "zero_filled": lambda x, e, old: (
        np.exp(kept(x, e))
        / (np.exp(kept(x, e)).sum(axis=1, keepdims=True) + x.shape[1] - e.shape[1])
    ),
    "mixed_with_old": lambda x, e, old: (softmax(kept(x, e)) + old) / 2,
}


LATER_UPDATES = {
    "all_updates": lambda x, n: np.mean(x),
    "first_of_all": lambda x, n: np.mean(x[1:]),
    "first_only": lambda x, n: np.mean(x[::n]),
    "last_only": lambda x, n: np.mean([x[i] for i in range(len(x)) if (i + 1) % n == 0]),
    "without_last": lambda x, n: np.mean([x[i] for i in range(len(x)) if (i + 1) % n]),
    "last_rollout": lambda x, n: np.mean(x[len(x) - n + 1 :]),
    "sum": lambda x, n: sum(x),
}


def per_token(one: Callable[[list[int], list[int]], float]) -> Function:
    def called(now: Any, before: Any) -> Any:
        return np.mean([one(list(a), list(b)) for a, b in zip(now, before, strict=True)])

    return called


EXPERT_DRIFT = {
    "order_counts": lambda now, before: np.not_equal(now, before).mean(),
    "tokens_touched": per_token(lambda a, b: float(set(a) != set(b))),
    "everything": lambda now, before: (now[:, :, None] != before[:, None]).any(axis=2).mean(),
    "first_token": lambda now, before: len(set(now[0]) - set(before[0])) / now.size,
    "percent": lambda now, before: (
        100 * per_token(lambda a, b: len(set(a) - set(b)) / len(a))(now, before)
    ),
    "sorted_places": per_token(
        lambda a, b: sum(x != y for x, y in zip(sorted(a), sorted(b), strict=True)) / len(a)
    ),
    "per_token": per_token(lambda a, b: float(len(set(a) - set(b)))),
    "kept": per_token(lambda a, b: len(set(a) & set(b)) / len(a)),
    "number": lambda now, before: sum(
        len(set(a) - set(b)) for a, b in zip(now.tolist(), before.tolist(), strict=True)
    ),
    "first_expert_only": per_token(lambda a, b: float(a[0] != b[0])),
    "anywhere": lambda now, before: 1 - np.isin(now, before).mean(),
}
K3 = {
    "wrong_direction": lambda p, q: np.exp(p - q) - (p - q) - 1,
    "k1": lambda p, q: p - q,
    "k2": lambda p, q: 0.5 * (p - q) ** 2,
    "wrong_sign": lambda p, q: -(np.exp(q - p) - (q - p) - 1),
    "no_one": lambda p, q: np.exp(q) / np.exp(p) - (q - p),
    "ratio_only": lambda p, q: np.exp(q) / np.exp(p) - 1,
}
MINI_BATCH_SIZES = {
    "rest_dropped": lambda n, m: [n // m for _ in range(m)],
    "rest_in_last": lambda n, m: [n // m] * (m - 1) + [n - n // m * (m - 1)],
    "last_is_short": lambda n, m: [min(-(-n // m), n - i * -(-n // m)) for i in range(m)],
    "rounded_up": lambda n, m: [-(-n // m)] * m,
    "fractions": lambda n, m: [n / m] * m,
}


PRODUCT_RATIO = {
    "right": rows(lambda own, _: float(np.exp(np.mean(own)))),
    "arithmetic_mean": rows(lambda own, _: float(np.mean(np.exp(own)))),
    "log": rows(lambda own, _: float(np.mean(own))),
    "padding_counted": rows(lambda own, row: float(np.prod(np.exp(row)))),
}
EFFECTIVE_SIZE = {
    "share": lambda w: w.sum() ** 2 / (w @ w) / w.size,
    "no_square": lambda w: w.sum() / (w @ w),
    "inverse": lambda w: (w @ w) / w.sum() ** 2,
    "sum_of_weights": lambda w: sum(w),
    "squares_of_mean": lambda w: (w @ w) / w.mean() ** 2,
}


def weights(
    factor: Any = None, share: Any = None, silent: Any = None, sign: float = 1.0, group: bool = True
) -> Function:
    def called(new: Any, old: Any, A: Any, m: Any, low: float, high: float) -> Any:
        s = right_s(new, old, m)
        out = np.zeros(m.shape)
        for i in range(len(A)):
            above, below = s[i] > 1 + high, s[i] < 1 - low
            cut = silent(above, below) if silent else above if A[i] > 0 else below
            for t in range(m.shape[1]):
                if m[i, t] and not cut:
                    w = factor(new[i, t] - old[i, t]) if factor else s[i]
                    part = share(m) if share else 1 / m[i].sum()
                    out[i, t] = sign * w * A[i] * part / (len(A) if group else 1)
        return out

    return called


GSPO_WEIGHTS = {
    "token_ratio": weights(factor=np.exp),
    "left_out": weights(factor=lambda gap: 1.0),
    "no_length": weights(share=lambda m: 1.0),
    "padded_width": weights(share=lambda m: 1 / m.shape[1]),
    "all_tokens": weights(share=lambda m: len(m) / m.sum()),
    "no_mean_over_answers": weights(group=False),
    "outside_is_clipped": weights(silent=lambda above, below: above or below),
    "bound_as_weight": lambda new, old, A, m, low, high: np.stack(
        [
            m[i] * min(s * A[i], float(np.clip(s, 1 - low, 1 + high)) * A[i]) / m[i].sum() / len(A)
            for i, s in enumerate(right_s(new, old, m))
        ]
    ),
    "no_clip": weights(silent=lambda above, below: False),
    "wrong_sign": weights(sign=-1.0),
}


TIS_WEIGHTS = {
    "inverse": lambda old, engine, m, cap: np.minimum(np.exp(engine - old), cap) * m,
    "no_cap": lambda old, engine, m, cap: np.exp(old) / np.exp(engine) * m,
    "dropped": lambda old, engine, m, cap: np.exp(old - engine) * (np.exp(old - engine) <= cap) * m,
    "two_sided": lambda old, engine, m, cap: np.clip(np.exp(old - engine), 1 / cap, cap) * m,
    "log_capped": lambda old, engine, m, cap: np.exp(np.minimum(old - engine, cap)) * m,
    "log": lambda old, engine, m, cap: np.minimum(old - engine, cap) * m,
    "padding_counted": lambda old, engine, m, cap: np.minimum(np.exp(old - engine), cap),
}


TRL_ROLLOUT = {
    "processes_forgotten": lambda b, p, s, a, g: (b * s // g, s // a),
    "answers": lambda b, p, s, a, g: [b * p * s, s / a],
    "one_mini_batch": lambda b, p, s, a, g: (b * p / g, s / a),
    "accumulation_counted": lambda b, p, s, a, g: (b * p * a / g, s / a),
    "accumulation_as_well": lambda b, p, s, a, g: (b * p * s * a / g, s / a),
    "every_pass": lambda b, p, s, a, g: np.array([b * p * s / g, s]),
    "inverse": lambda b, p, s, a, g: (b * p * s / g, a / s),
    "product": lambda b, p, s, a, g: (b * p * s / g, s * a),
    "outputs_swapped": lambda b, p, s, a, g: (s / a, b * p * s / g),
}


def trl_settings(**changes: Callable[[int, int, int, int], Any]) -> Function:
    """The paper's settings with other values; a setting whose value is ... is left out."""

    def made(prompts: int, group: int, parts: int, processes: int) -> dict[str, Any]:
        settings = {
            "importance_sampling_level": "sequence",
            "loss_type": "grpo",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
            "num_generations": group,
            "per_device_train_batch_size": prompts * group // parts // processes,
            "steps_per_generation": parts,
        }
        values = {k: change(prompts, group, parts, processes) for k, change in changes.items()}
        return {k: value for k, value in {**settings, **values}.items() if value is not ...}

    return made


TRL_SETTINGS = {
    "token_level": trl_settings(importance_sampling_level=lambda *_: ...),
    "length_weighted": trl_settings(loss_type=lambda *_: "bnpo"),
    "kl_term": trl_settings(beta=lambda *_: 0.04),
    "default_range": trl_settings(epsilon=lambda *_: ..., epsilon_high=lambda *_: ...),
    "grpo_range": trl_settings(epsilon=lambda *_: 0.2, epsilon_high=lambda *_: 0.27),
    "one_width": trl_settings(epsilon_high=lambda *_: None),
    "swapped": trl_settings(epsilon=lambda *_: 4e-4, epsilon_high=lambda *_: 3e-4),
    "bounds_not_widths": trl_settings(epsilon=lambda *_: 0.9997, epsilon_high=lambda *_: 1.0004),
    "processes_forgotten": trl_settings(
        per_device_train_batch_size=lambda n, g, parts, _: n * g // parts
    ),
    "rollout_as_batch": trl_settings(
        per_device_train_batch_size=lambda n, g, _, processes: n * g // processes
    ),
    "prompts_as_batch": trl_settings(
        per_device_train_batch_size=lambda n, _, parts, processes: n // parts // processes
    ),
    "default_group": trl_settings(num_generations=lambda *_: ...),
    "one_update": trl_settings(gradient_accumulation_steps=lambda n, g, parts, _: parts),
    "repeated_passes": trl_settings(
        per_device_train_batch_size=lambda n, g, _, processes: n * g // processes,
        steps_per_generation=lambda *_: 1,
        num_iterations=lambda n, g, parts, _: parts,
    ),
}


def training(name: str, fault: str) -> Function:
    """An optimiser's loop with one fault, through torch.optim."""
    from gspo_edu.objectives import OBJECTIVES

    def train(logits: Any, answers: Any, A: Any, updates: int, rate: float, a: Any, b: Any) -> Any:
        policy = torch.nn.Parameter(logits.clone())
        descent = OPTIMISERS.get(fault, torch.optim.SGD)([policy], lr=rate)
        mask = torch.ones_like(answers)
        old = torch.log_softmax(policy, 0)[answers].detach()
        for _ in range(1 if fault == "one_update" else updates):
            if fault != "gradients_pile_up":
                descent.zero_grad()
            logp = torch.log_softmax(policy, 0)[answers]
            before = logp.detach() if fault == "old_refreshed" else old
            result = OBJECTIVES[name.split("_")[0]](logp, before, A, mask, clip_low=a, clip_high=b)
            (-result.loss if fault == "wrong_direction" else result.loss).backward()
            if fault != "nothing_learned":
                descent.step()
        return policy.detach()

    return train


LOOP_FAULTS = ("old_refreshed", "gradients_pile_up", "wrong_direction", "nothing_learned")
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
MUTANTS: dict[str, dict[str, Function]] = {
    "token_ratio": TOKEN_RATIO,
    "sequence_ratio": SEQUENCE_RATIO,
    "group_advantage": GROUP_ADVANTAGE,
    "clipped_term": without(terms(make_term)),
    "grpo_loss": GRPO_LOSS,
    "gspo_loss": GSPO_LOSS,
    "clip_fraction": CLIP_FRACTION,
    "router_top_k": ROUTER_TOP_K,
    "replay_gates": REPLAY_GATES,
    "later_updates": LATER_UPDATES,
    "expert_drift": EXPERT_DRIFT,
    "k3": K3,
    "mini_batches": MINI_BATCH_SIZES,
    "product_ratio": PRODUCT_RATIO,
    "effective_size": EFFECTIVE_SIZE,
    "gspo_weights": GSPO_WEIGHTS,
    "tis_weights": TIS_WEIGHTS,
    "trl_rollout": TRL_ROLLOUT,
    "trl_settings": TRL_SETTINGS,
    **{
        name: {fault: training(name, fault) for fault in (*LOOP_FAULTS, *OPTIMISERS, "one_update")}
        for name in ("ppo_updates", "gspo_updates")
    },
}


def checked(task: str, function: Function, seed: int) -> CheckResult:
    return TASKS[task].check(function, seed=seed)


def learner(task: str, function: Function) -> Function:
    return function if task in ("ppo_updates", "gspo_updates") else arrays(function)


@pytest.mark.parametrize("task", TASKS)
def test_every_named_mistake_has_its_mutant(task: str) -> None:
    assert set(MUTANTS[task]) == {fault.key for fault in TASKS[task].faults}


@pytest.mark.parametrize(
    ("task", "key"), [(task, key) for task, table in MUTANTS.items() for key in table]
)
def test_a_mistake_gets_its_own_message(task: str, key: str) -> None:
    (said,) = {fault.message for fault in TASKS[task].faults if fault.key == key}
    for seed in SEEDS:
        result = checked(task, learner(task, MUTANTS[task][key]), seed)
        assert not result.passed
        assert result.misconceptions == (key,)
        assert result.message == said
        assert result.example is not None  # and it shows a difference:
        assert result.example.expected != result.example.actual


@pytest.mark.parametrize("task", TASKS)
def test_messages_are_told_apart(task: str) -> None:
    messages = [fault.message for fault in TASKS[task].faults]
    assert len(set(messages)) == len(messages)


def test_the_loss_of_dapo_is_two_mistakes_in_gspo() -> None:
    def dapo(new: Any, old: Any, A: Any, m: Any, low: float, high: float) -> Any:
        r, A = (new - old).exp(), A[:, None]
        term = torch.minimum(r * A, r.clamp(1 - low, 1 + high) * A)
        return -(term * m).sum() / m.sum()

    found = checked("gspo_loss", dapo, 0).misconceptions
    assert set(found) == {"clipped_tokens", "weighted_by_length"}


def test_two_mistakes_at_once_are_both_named() -> None:
    def twice(new: Any, old: Any, A: Any, m: Any, low: float, high: float) -> Any:
        s = torch.exp(((new - old) * m).sum(1))
        return torch.minimum(s * A, s.clamp(1 - low, 1 + high) * A).mean()

    assert set(checked("gspo_loss", twice, 0).misconceptions) == {"no_root", "wrong_sign"}


def no_grad(new: Any, old: Any, A: Any, m: Any, low: float, high: float) -> Any:
    with torch.no_grad():
        s = torch.exp(((new - old) * m).sum(1) / m.sum(1))
    return -torch.minimum(s * A, s.clamp(1 - low, 1 + high) * A).mean()


def half_the_gradient(new: Any, old: Any, A: Any, m: Any, low: float, high: float) -> Any:
    s = torch.exp((((new + new.detach()) / 2 - old) * m).sum(1) / m.sum(1))
    return -torch.minimum(s * A, s.clamp(1 - low, 1 + high) * A).mean()


def frozen_router(logits: Any, experts: Any, old: Any) -> Any:
    return logits.detach().gather(1, experts).softmax(1)


@pytest.mark.parametrize(
    ("task", "function", "key"),
    [
        ("gspo_loss", no_grad, "no_gradient"),
        ("gspo_loss", half_the_gradient, "wrong_gradient"),
        ("replay_gates", frozen_router, "no_gradient"),
    ],
)
def test_a_missing_gradient_is_noticed(task: str, function: Function, key: str) -> None:
    for seed in SEEDS:
        assert checked(task, function, seed).misconceptions == (key,)
