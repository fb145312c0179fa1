"""The hand computations of exercise 05 (F1: one loud token, by hand and in code)."""

from __future__ import annotations

import math
import statistics

from gspo_edu.checks.hand import HandNumber
from gspo_edu.checks.terms import PAPER_HIGH, PAPER_LOW
from gspo_edu.clip_range import equal_spread_range

FOUR = (1.2, 0.9, 1.0, 1.1)
FOUR_PLACES, WHOLE = 5e-5, 0.05

LESSON_05 = {
    "05 four tokens": HandNumber(
        "An answer of four tokens has the ratios 1.2, 0.9, 1.0 and 1.1. What is its sequence "
        "ratio? (four decimals)",
        lambda: math.prod(FOUR) ** (1 / 4),
        (
            ("no_root", lambda: math.prod(FOUR), "that is the product. Take its fourth root."),
            (
                "arithmetic_mean",
                lambda: statistics.fmean(FOUR),
                "that is the mean of the ratios. Average their logs, then take exp.",
            ),
            ("square_root", lambda: math.prod(FOUR) ** 0.5, "a square root; four tokens, so ^1/4."),
            ("log", lambda: math.log(math.prod(FOUR)) / 4, "that is log s. Take exp."),
            (
                "precedence",
                lambda: math.prod(FOUR) / 4,
                "x ** 1 / 4 is (x ** 1) / 4 in Python. Put 1 / 4 in brackets.",
            ),
            (
                "last_factor",
                lambda: 1.2 * 0.9 * 1.0 * 1.1 ** (1 / 4),
                "the power takes the last factor alone. Put the product in brackets.",
            ),
            ("largest", lambda: max(FOUR), "that is the largest ratio. All four count."),
        ),
        FOUR_PLACES,
    ),
    "05 loud token": HandNumber(
        "An answer of 100 tokens has 99 ratios of 1 and one of 10. What is its sequence ratio? "
        "(four decimals)",
        lambda: 10 ** (1 / 100),
        (
            ("no_root", lambda: 10.0, "that is the product. Take the 100th root."),
            ("arithmetic_mean", lambda: (99 + 10) / 100, "that is the mean of the ratios."),
            ("length", lambda: 10 ** (1 / 99), "the loud token counts in the length as well."),
            ("square_root", lambda: 10 ** (1 / 10), "that is the root for ten tokens."),
            ("log", lambda: math.log(10) / 100, "that is log s. Take exp."),
            (
                "precedence",
                lambda: 10 / 100,
                "x ** 1 / 100 is (x ** 1) / 100 in Python. Put 1 / 100 in brackets.",
            ),
        ),
        FOUR_PLACES,
    ),
    "05 good answer": HandNumber(
        "That answer was good, A = +1, and the range is 0.9997 to 1.0004. How many of its 100 "
        "tokens have a gradient that is not 0?",
        lambda: 0.0,
        (
            ("clipped_tokens", lambda: 99.0, "that is GRPO, where the loud token is on its own."),
            (
                "close_to_one",
                lambda: 100.0,
                "1.0233 looks close to 1, but it lies above 1.0004, and A > 0.",
            ),
            ("clipped_tokens_count", lambda: 1.0, "GSPO clips the answer, not a token."),
        ),
        WHOLE,
    ),
    "05 bad answer": HandNumber(
        "The same answer, but bad: A = -1. How many of its 100 tokens have a gradient that is not "
        "0?",
        lambda: 100.0,
        (
            (
                "outside_is_clipped",
                lambda: 0.0,
                "outside the range is not yet clipped: for A < 0 and s above the range min() "
                "takes the plain term.",
            ),
            (
                "clipped_tokens",
                lambda: 99.0,
                "the loud token is not on its own: one decision for all.",
            ),
            ("clipped_tokens_count", lambda: 1.0, "GSPO keeps or silences whole answers."),
        ),
        WHOLE,
    ),
    "05 push": HandNumber(
        "The bad answer once more, alone in its batch. What is the slope of GSPO's objective J "
        "with respect to the log-prob of one of its tokens? (four decimals)",
        lambda: -(10 ** (1 / 100)) / 100,
        (
            ("ratio_left_out", lambda: -1 / 100, "A/L; the sequence ratio s is a factor, too."),
            ("no_length", lambda: -(10 ** (1 / 100)), "d log s / d logp is 1/L: divide by 100."),
            ("wrong_sign", lambda: 10 ** (1 / 100) / 100, "right size; A = -1 pushes down."),
            ("token_ratio", lambda: -10 / 100, "that is what GRPO does to the loud token."),
            ("outside_is_clipped", lambda: 0.0, "not clipped: A < 0 and s above the range."),
        ),
        FOUR_PLACES,
    ),
    "05 long enough": HandNumber(
        "One token has the ratio 10, all others 1. How many tokens must the answer have at least, "
        "so that s is not above 1.0004?",
        lambda: float(math.ceil(math.log(10) / math.log1p(PAPER_HIGH))),
        (
            (
                "no_log",
                lambda: 10 / PAPER_HIGH,
                "10/0.0004. The root turns 10 into log(10): L = log(10) / log(1.0004).",
            ),
            ("mean_of_ratios", lambda: 9 / PAPER_HIGH, "that is for the mean of the ratios."),
            (
                "lower_bound",
                lambda: float(math.ceil(math.log(10) / -math.log1p(-PAPER_LOW))),
                "that is the lower bound. A ratio above 1 meets the upper one, 1.0004.",
            ),
            (
                "not_rounded",
                lambda: math.log(10) / math.log1p(PAPER_HIGH),
                "tokens are whole, and s must not be above 1.0004. Round up.",
            ),
            (
                "rounded_down",
                lambda: float(math.floor(math.log(10) / math.log1p(PAPER_HIGH))),
                "with this many tokens s is still a little above 1.0004. Round up.",
            ),
        ),
        WHOLE,
    ),
    "05 loud enough": HandNumber(
        "100 tokens, 99 of them with ratio 1. How large may the last ratio be, so that s is not "
        "above 1.0004? (four decimals)",
        lambda: (1 + PAPER_HIGH) ** 100,
        (
            ("linear", lambda: 1 + 100 * PAPER_HIGH, "nearly: a power, 1.0004^100, no product."),
            ("no_length", lambda: 1 + PAPER_HIGH, "that is the bound of s. Undo the root."),
            ("other_tokens", lambda: (1 + PAPER_HIGH) ** 99, "the loud token counts in L as well."),
        ),
        FOUR_PLACES,
    ),
    "05 equal range": HandNumber(
        "Answers have 400 tokens. Which ε for s is as wide, in standard deviations, as ε = 0.2 is "
        "for a token ratio? (Tokens are independent; four decimals.)",
        lambda: equal_spread_range(0.2, 400),
        (
            ("length_not_root", lambda: 0.2 / 400, "the spread shrinks with the root of L."),
            ("token_range", lambda: 0.2, "s strays less than r. Divide by the root of L."),
            ("paper", lambda: PAPER_LOW, "that is the paper's range, which is tighter than equal."),
        ),
        FOUR_PLACES,
    ),
}
