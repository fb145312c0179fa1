"""The hand computations of exercises 02 and 03."""

from __future__ import annotations

import math
import statistics

import torch

from gspo_edu.advantages import gae, group_advantages
from gspo_edu.checks.hand import HandNumber
from gspo_edu.objectives import ppo
from gspo_edu.one_batch import ONE_BATCH, REWARDS

FOUR_PLACES, TWO_PLACES, WHOLE = 5e-5, 5e-3, 0.05
OLD, NEW = 0.25, 0.3
VALUES, LAMBDA = (0.5, 0.7, 0.8), 0.95
CHANCE = 0.18


def first_advantage(lam: float) -> float:
    """GAE of the first of three tokens; reward 1 at the end, no discount."""
    values, mask = torch.tensor([VALUES], dtype=torch.float64), torch.ones(1, 3)
    return float(gae(torch.ones(1, dtype=torch.float64), values, mask, lam=lam)[0][0, 0])


def one_batch_metric(name: str) -> float:
    """A metric of PPO on the one batch, with group advantages."""
    batch = ONE_BATCH.tensors()
    advantages = group_advantages(batch.rewards, batch.group)
    return float(ppo(batch.logp, batch.logp_old, advantages, batch.mask).metrics[name])


LESSON_02 = {
    "02 ratio": HandNumber(
        f"A token had the probability {OLD} when it was sampled and has {NEW} now. What is its "
        "importance ratio?",
        lambda: NEW / OLD,
        (
            ("inverse", lambda: OLD / NEW, "upside down: new over old."),
            ("difference", lambda: NEW - OLD, "that is the difference. Divide."),
            ("log", lambda: math.log(NEW / OLD), "that is the log of the ratio."),
        ),
        FOUR_PLACES,
    ),
    "02 bad and likelier": HandNumber(
        "ε = 0.2, a token with ratio 1.5 and A = −1. What is its term min(r·A, clip(r)·A)?",
        lambda: min(1.5 * -1, 1.2 * -1),
        (
            ("max", lambda: max(1.5 * -1, 1.2 * -1), "that is the larger of the two terms."),
            ("sign", lambda: 1.5, "the sign: A is negative."),
            ("bound", lambda: 1.2, "the bound; both terms are multiplied by A = −1."),
        ),
        TWO_PLACES,
    ),
    "02 corners": HandNumber(
        "ε = 0.2. Ratios 0.5 and 1.5, each with A = +1 and A = −1: four corners. In how many is "
        "the gradient exactly zero?",
        lambda: 2.0,
        (
            ("outside_is_clipped", lambda: 4.0, "all four are outside; two keep their gradient."),
            ("one_side", lambda: 1.0, "one for each sign of A."),
            ("never", lambda: 0.0, "where min() takes the clipped term, a constant, it is zero."),
        ),
        WHOLE,
    ),
    "02 clipped share": HandNumber(
        "In the table above: for which share of the ten tokens is the gradient exactly zero?",
        lambda: one_batch_metric("clip_fraction_token_weighted"),
        (
            (
                "outside_is_clipped",
                lambda: one_batch_metric("outside_fraction_token_weighted"),
                "that counts every ratio outside the range. Look at the sign of A as well.",
            ),
            (
                "mean_of_answers",
                lambda: one_batch_metric("clip_fraction_seq"),
                "that is the mean of the answers' shares. Each token counts the same here.",
            ),
            (
                "count",
                lambda: 10 * one_batch_metric("clip_fraction_token_weighted"),
                "that is how many. Divide by the ten tokens.",
            ),
            (
                "kept",
                lambda: 1 - one_batch_metric("clip_fraction_token_weighted"),
                "that is the share with a gradient.",
            ),
        ),
        TWO_PLACES,
    ),
    "02 advantage": HandNumber(
        "An answer of three tokens earns the reward 1 with its last token. The critic guessed "
        "0.5, 0.7 and 0.8 before them. What is the advantage of the first token by GAE, with γ = 1 "
        "and λ = 0.95? (four decimals)",
        lambda: first_advantage(LAMBDA),
        (
            ("lambda_one", lambda: first_advantage(1.0), "that is λ = 1: return minus value."),
            ("lambda_zero", lambda: first_advantage(0.0), "that is λ = 0: only the first error."),
            ("reward", lambda: 1.0, "that is the reward. What did the critic expect?"),
            (
                "same_weight",
                lambda: 0.2 + LAMBDA * (0.1 + 0.2),
                "the last error is two steps away: its weight is λ².",
            ),
        ),
        FOUR_PLACES,
    ),
}


def advantage(reward: float, ddof: int = 0) -> float:
    """Group advantage among the rewards of the one batch."""
    found = group_advantages(torch.tensor(REWARDS, dtype=torch.float64), [0] * 4, ddof=ddof)
    return float(found[REWARDS.index(reward)])


def dead_share(chance: float, size: int) -> float:
    """Share of groups of right-or-wrong answers that are all right or all wrong."""
    return chance**size + (1 - chance) ** size


LESSON_03 = {
    "03 advantage": HandNumber(
        "Rewards 1, 0, 0.5 and 0. What is the advantage of the first answer, with the std that "
        "divides by n? (four decimals)",
        lambda: advantage(1.0),
        (
            ("sample_std", lambda: advantage(1.0, ddof=1), "that std divides by n − 1."),
            ("no_std", lambda: 1 - statistics.fmean(REWARDS), "centred; now divide by the std."),
            (
                "variance",
                lambda: (1 - statistics.fmean(REWARDS)) / statistics.pvariance(REWARDS),
                "divided by the variance. Take its square root.",
            ),
            (
                "not_centred",
                lambda: 1 / statistics.pstdev(REWARDS),
                "the group's mean is not subtracted.",
            ),
        ),
        FOUR_PLACES,
    ),
    "03 dead pairs": HandNumber(
        "An answer is right with probability 0.18, and there are two answers per prompt. Which "
        "share of the prompts gives no signal at all? (four decimals)",
        lambda: dead_share(CHANCE, 2),
        (
            ("all_wrong", lambda: (1 - CHANCE) ** 2, "both wrong; both right is dead as well."),
            ("all_right", lambda: CHANCE**2, "both right; both wrong is dead as well."),
            ("alive", lambda: 1 - dead_share(CHANCE, 2), "that is the share with a signal."),
            ("linear", lambda: 1 - CHANCE, "that is the chance that one answer is wrong."),
        ),
        FOUR_PLACES,
    ),
    "03 dead eights": HandNumber(
        "The same with eight answers per prompt? (four decimals)",
        lambda: dead_share(CHANCE, 8),
        (
            ("alive", lambda: 1 - dead_share(CHANCE, 8), "that is the share with a signal."),
            ("quarter", lambda: dead_share(CHANCE, 2) / 4, "a power, not a quarter."),
            ("all_right", lambda: CHANCE**8, "all right; all wrong is dead as well."),
        ),
        FOUR_PLACES,
    ),
    "03 token share": HandNumber(
        "A group of four answers, one of which has 10 tokens. All ratios are 1. With which weight "
        "does one of its tokens enter GRPO's objective, next to A? (four decimals)",
        lambda: 1 / 4 / 10,
        (
            ("no_mean_over_answers", lambda: 1 / 10, "1/length; there are four answers, too."),
            ("no_mean_over_tokens", lambda: 1 / 4, "1/G; the answer shares it among its tokens."),
            ("same_length", lambda: 1 / 40 / 10, "divided by the length twice."),
        ),
        FOUR_PLACES,
    ),
    "03 k3": HandNumber(
        "A token has the log-prob −1 under the policy and −2 under the reference. What is the "
        "estimate k3 of the KL? (four decimals)",
        lambda: math.expm1(-1) + 1,
        (
            ("wrong_direction", lambda: math.expm1(1) - 1, "the reference stands on top."),
            ("k1", lambda: 1.0, "that is k1, the plain difference of the log-probs."),
            ("k2", lambda: 0.5, "that is k2, half the square."),
            ("no_correction", lambda: math.expm1(-1), "the log quotient is −1: subtract it."),
        ),
        FOUR_PLACES,
    ),
}
