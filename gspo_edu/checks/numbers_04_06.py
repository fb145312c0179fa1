"""The hand computations of exercises 04 and 06."""

from __future__ import annotations

from gspo_edu.checks.hand import HandNumber

FOUR_PLACES, WHOLE = 5e-5, 0.05

LESSON_04 = {
    "04 book weight": HandNumber(
        "An answer of three tokens has the ratios 1.3, 0.7 and 1.2, and A = 1. Which weight does "
        "importance sampling by the book put on the score of the second token? (four decimals)",
        lambda: 1.3 * 0.7 * 1.2,
        (
            ("token_ratio", lambda: 0.7, "that is the token's own ratio; the others count, too."),
            ("sequence_ratio", lambda: (1.3 * 0.7 * 1.2) ** (1 / 3), "that is s; no root here."),
            ("arithmetic_mean", lambda: 3.2 / 3, "that is the mean. Probabilities multiply."),
            ("up_to_here", lambda: 1.3 * 0.7, "up to this token; what follows counts as well."),
        ),
        FOUR_PLACES,
    ),
    "04 product variance": HandNumber(
        "Each token ratio has E[r²] = 1.01 under the old policy, whatever came before. What is the "
        "variance of the product over 200 tokens? (four decimals)",
        lambda: 1.01**200 - 1,
        (
            ("second_moment", lambda: 1.01**200, "that is E[W²]; subtract the squared mean, 1."),
            ("linear", lambda: 200 * 0.01, "variances add in a sum; this is a product."),
            ("one_token", lambda: 0.01, "that is one token's."),
        ),
        FOUR_PLACES,
    ),
    "04 break-even": HandNumber(
        "In lengths of the true gradient: token ratios have a bias of 0.2 and a variance of 6 per "
        "answer, the product has no bias and a variance of 14. From how many answers per batch on "
        "is the product the better one?",
        lambda: (14 - 6) / 0.2**2,
        (
            ("bias_not_squared", lambda: (14 - 6) / 0.2, "the bias enters squared."),
            ("one_variance", lambda: 14 / 0.2**2, "the token ratios have a variance as well."),
            ("own_noise", lambda: 6 / 0.2**2, "that is where their own bias and noise are equal."),
        ),
        WHOLE,
    ),
    "04 effective size": HandNumber(
        "Four answers have the importance weights 4, 1, 1 and 0. What is the effective sample "
        "size?",
        lambda: 6**2 / (16 + 1 + 1),
        (
            ("count", lambda: 4.0, "four answers; but one of them carries most of the weight."),
            ("non_zero", lambda: 3.0, "three have weight. Unequal weights count for less."),
            ("share", lambda: 0.5, "that is the share. Times four answers."),
            ("no_square", lambda: 6 / 18, "the sum on top is squared."),
        ),
        WHOLE / 10,
    ),
}

LESSON_06 = {
    "06 grpo weight": HandNumber(
        "GRPO, range 0.8 to 1.27, four answers. One of them has 5 tokens and A = 0.8. Which "
        "gradient weight has its token with r = 1.1? (four decimals)",
        lambda: 1.1 * 0.8 / (4 * 5),
        (
            ("ratio_left_out", lambda: 0.8 / (4 * 5), "the slope of r contains r: times 1.1."),
            ("no_length", lambda: 1.1 * 0.8 / 4, "divide by its five tokens as well."),
            ("no_mean_over_answers", lambda: 1.1 * 0.8 / 5, "divide by the four answers as well."),
            ("clipped", lambda: 0.0, "1.1 lies inside the range."),
        ),
        FOUR_PLACES,
    ),
    "06 gspo weight": HandNumber(
        "GSPO, range 0.9997 to 1.0004, four answers. One of 5 tokens has A = −0.8 and s = 1.05. "
        "Which weight has each of its tokens? (four decimals)",
        lambda: -1.05 * 0.8 / (4 * 5),
        (
            ("outside_is_clipped", lambda: 0.0, "above the range, but A < 0: the full weight."),
            ("wrong_sign", lambda: 1.05 * 0.8 / (4 * 5), "right size; A = −0.8 pushes down."),
            ("ratio_left_out", lambda: -0.8 / (4 * 5), "the slope of s contains s: times 1.05."),
            ("no_length", lambda: -1.05 * 0.8 / 4, "the root brings in 1/L: divide by five."),
            ("no_mean_over_answers", lambda: -1.05 * 0.8 / 5, "divide by the four answers, too."),
            ("no_means", lambda: -1.05 * 0.8, "divide by five tokens and by four answers."),
        ),
        FOUR_PLACES,
    ),
    "06 dapo": HandNumber(
        "A group of two answers, of 3 and 12 tokens, all ratios 1. DAPO averages over all tokens, "
        "GRPO per answer first. DAPO's weight of a token of the long answer over GRPO's?",
        lambda: (1 / 15) / (1 / (2 * 12)),
        (
            ("wrong_way", lambda: (1 / (2 * 12)) / (1 / 15), "that is GRPO's over DAPO's."),
            ("short_answer", lambda: (1 / 15) / (1 / (2 * 3)), "that is the short answer's token."),
            ("no_mean_over_answers", lambda: 12 / 15, "GRPO divides by two answers as well."),
        ),
        FOUR_PLACES,
    ),
    "06 cispo": HandNumber(
        "CISPO with the (absolute) cap 5: a token has r = 8 and A = 1. Next to the mean, which "
        "factor multiplies its score?",
        lambda: 5.0,
        (
            ("no_cap", lambda: 8.0, "the cap limits the weight to 5."),
            ("clipped", lambda: 0.0, "a cap limits, it does not silence."),
            ("relative_cap", lambda: 6.0, "the cap is absolute here, not 1 + 5."),
            ("ratio_left_out", lambda: 1.0, "A alone; the capped ratio is a factor."),
        ),
        FOUR_PLACES,
    ),
}
