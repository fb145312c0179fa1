"""The hand computations of exercise 11."""

from __future__ import annotations

import math
import statistics

from gspo_edu.checks.hand import HandNumber

TWO_PLACES, FIVE_PLACES, WHOLE = 5e-3, 5e-6, 0.05
STEPS, ACCUMULATION = 8, 2
WINDOW, PER_ROLLOUT, CLIPPED = 10, 4, 0.5
LENGTHS = (10, 10, 20, 60)
BF16_STEP, TOKENS = 1 / 64, 8


def window_mean(line: int) -> float:
    """The clip ratio that a log of every tenth update shows in its line 0, 1, …"""
    updates = range(line * WINDOW, (line + 1) * WINDOW)
    return statistics.fmean(CLIPPED if n % PER_ROLLOUT else 0.0 for n in updates)


LESSON_11 = {
    "11 updates": HandNumber(
        "`steps_per_generation=8`, `gradient_accumulation_steps=2`, `num_iterations=1`. How many "
        "updates does TRL make with each rollout?",
        lambda: STEPS / ACCUMULATION,
        (
            ("passes", lambda: STEPS, "that is the backward passes. Two make one update."),
            ("product", lambda: STEPS * ACCUMULATION, "a rollout has eight passes, not more."),
            ("accumulation", lambda: ACCUMULATION, "that is the passes of one update."),
            ("inverse", lambda: ACCUMULATION / STEPS, "the other way round."),
        ),
        WHOLE,
    ),
    "11 window": HandNumber(
        "TRL logs every tenth update and writes the mean of the ten. A rollout has four updates; "
        "the clip ratio is 0 in a rollout's first and 0.5 in its other three, from the beginning "
        "to the end. The log's first line says 0.35. What does the second say? (two decimals)",
        lambda: window_mean(1),
        (
            ("same", lambda: window_mean(0), "ten is no multiple of four: count the zeros."),
            (
                "whole_rollouts",
                lambda: CLIPPED * (PER_ROLLOUT - 1) / PER_ROLLOUT,
                "that is the mean over whole rollouts. Updates 11 to 20 are no whole rollouts.",
            ),
            ("no_zeros", lambda: CLIPPED, "some of the ten are a rollout's first."),
            ("one_zero", lambda: CLIPPED * 0.9, "more than one of the ten is a rollout's first."),
        ),
        TWO_PLACES,
    ),
    "11 longest": HandNumber(
        "Sequence level, four answers of 10, 10, 20 and 60 tokens, TRL's default `loss_type`. With "
        "how many times the weight of the paper's form does the longest answer pull? (two "
        "decimals)",
        lambda: max(LENGTHS) / statistics.fmean(LENGTHS),
        (
            ("equal", lambda: 1.0, 'that is loss_type="grpo".'),
            (
                "share",
                lambda: max(LENGTHS) / sum(LENGTHS),
                "that is its share. In the paper's form its share is a quarter.",
            ),
            ("shortest", lambda: max(LENGTHS) / min(LENGTHS), "against the shortest answer, yes."),
            (
                "inverse",
                lambda: statistics.fmean(LENGTHS) / max(LENGTHS),
                "the other way round.",
            ),
            ("paper_share", lambda: 1 / len(LENGTHS), "that is its share in the paper's form."),
        ),
        TWO_PLACES,
    ),
    "11 rounding": HandNumber(
        "Between 2 and 4 neighbouring bfloat16 numbers are 1/64 apart. An answer has 8 tokens. In "
        "a second forward pass one token's log-prob, near −3, comes out one step higher; nothing "
        "else changes. By how much does log s rise? (five decimals)",
        lambda: BF16_STEP / TOKENS,
        (
            ("no_root", lambda: BF16_STEP, "that is the token's. log s is a mean over 8."),
            ("nothing", lambda: 0.0, "one of the 8 log-ratios is not 0."),
            ("root_of_length", lambda: BF16_STEP / math.sqrt(TOKENS), "divide by L, not by √L."),
            ("ratio", lambda: math.exp(BF16_STEP / TOKENS), "that is s. Asked for is log s."),
        ),
        FIVE_PLACES,
    ),
}
