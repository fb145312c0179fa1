"""The hand computations of exercise 10."""

from __future__ import annotations

import math

from gspo_edu.checks.hand import HandNumber

FOUR_PLACES = 5e-5

LESSON_10 = {
    "10 icepop": HandNumber(
        "The trainer gives a token the log-prob −1.5, the engine gave it −2.3. Which weight has it "
        "under IcePop with the range 0.5 to 5? (four decimals)",
        lambda: math.exp(0.8),
        (
            ("tis", lambda: 2.0, "that is TIS with a cap of 2. IcePop keeps what is inside."),
            ("inverse", lambda: math.exp(-0.8), "that is the engine over the trainer."),
            ("dropped", lambda: 0.0, "it would be dropped above 5 or below 0.5."),
            ("log", lambda: 0.8, "that is log rho."),
        ),
        FOUR_PLACES,
    ),
    "10 dialogue": HandNumber(
        "A dialogue: the first turn has 8 tokens whose log-ratios sum to 0.4, the environment's "
        "reply 6 tokens that sum to 1.2, the second turn 4 tokens that sum to 0.2. What is its "
        "sequence ratio? (four decimals)",
        lambda: math.exp(0.6 / 12),
        (
            ("reply_counted", lambda: math.exp(1.8 / 18), "that counts the reply, twice over."),
            ("reply_in_length", lambda: math.exp(0.6 / 18), "the reply is still in the length."),
            ("reply_in_sum", lambda: math.exp(1.8 / 12), "the reply is still in the sum."),
            ("no_root", lambda: math.exp(0.6), "the root is missing."),
        ),
        FOUR_PLACES,
    ),
    "10 shift": HandNumber(
        "An engine's errors have a standard deviation of 0.04 per token. Near which value does "
        "log s of trainer over engine settle for very long answers, before any update? (four "
        "decimals)",
        lambda: -(0.04**2) / 2,
        (
            ("none", lambda: 0.0, "the engine chose the tokens, so a shift remains."),
            ("wrong_side", lambda: 0.04**2 / 2, "right size, wrong side."),
            ("whole_square", lambda: -(0.04**2), "half of that."),
            ("one_token", lambda: -0.04, "that is the spread of one token."),
        ),
        FOUR_PLACES,
    ),
}
