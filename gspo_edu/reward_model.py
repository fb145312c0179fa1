"""Human feedback in miniature: a Bradley-Terry reward model of clock walks, and its use as reward.

Raters compare two answers to one prompt; the model learns one score per answer such that the
preferred answer of a pair tends to have the higher one. Raters are simulated: they see what the
verifier sees and err at a given rate.

Left out: a real reward model is a language model with a number as output, and finds its own
features. This one is linear in features that are made by hand, so that a few hundred comparisons
are enough and its weights can be read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from gspo_edu.batch import Rollout
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import END
from gspo_edu.tasks.clock_walk import HOURS

FEATURES = [
    *(f"step = smaller + {k}" for k in range(HOURS)),
    *(f"step = larger + {k}" for k in range(HOURS)),
    *(f"stop = goal + {k}" for k in range(HOURS)),
    "moves",
]


def walk_features(prompts: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
    """What the reward model sees of an answer to the clock walk, (B, 31) float64.

    Shares of the moves whose step exceeds the smaller allowed one by 0, 1, ... 9 hours; the same
    for the larger one; where the walk stops, counted from the goal (one of ten is 1); the number
    of moves in tens. ``FEATURES`` has their names. Both "+ 0" features say that a step is allowed,
    "stop = goal + 0" that the walk stops at the goal.

    Args:
        prompts: (B, 5), one row per answer.
        tokens, mask: (B, T).
    """
    body = mask & (tokens != END)
    before = torch.cat([prompts[:, :1], tokens[:, :-1]], dim=1)
    is_move = body & (tokens < HOURS) & (before < HOURS)
    step = tokens - before
    moves = body.sum(dim=1, keepdim=True)
    # Adding up where a move belongs needs a tenth of the memory that one-hot rows would.
    nothing = torch.zeros(len(tokens), HOURS, dtype=torch.float64)
    shares = [
        nothing.scatter_add(1, (step - prompts[:, column, None]) % HOURS, is_move.double())
        / moves.clamp(min=1)
        for column in (2, 3)
    ]
    hours = torch.cat([prompts[:, :1], tokens], dim=1)
    last = hours.gather(1, moves)
    stop = one_hot((last - prompts[:, 1:2]) % HOURS, HOURS)[:, 0] * (last < HOURS)
    return torch.cat([*shares, stop, moves / HOURS], dim=1).double()


def error_rate_behind(agreement: float) -> float:
    """How often one rater errs, if two independent raters agree on this share of the pairs.

    Both are right or both are wrong: agreement = (1 - e)^2 + e^2, for pairs that have a better
    answer. The smaller solution.

    Raises:
        ValueError: if the agreement is not between 0.5 and 1.
    """
    if not 0.5 <= agreement <= 1:
        raise ValueError(f"agreement is {agreement}; expected 0.5 (coin tosses) to 1.")
    return (1 - math.sqrt(2 * agreement - 1)) / 2


def preferences(rewards: Tensor, error_rate: float, generator: torch.Generator) -> Tensor:
    """Which answer of each pair a rater prefers, (N,) bool: true for the first.

    Args:
        rewards: (N, 2) what the answers are worth; of two equal ones a coin decides.
        error_rate: share of the pairs on which the rater says the opposite of what is true.
        generator: source of coins and errors.

    Raises:
        ValueError: if the rewards are not pairs or the rate is not between 0 and 0.5.
    """
    if rewards.dim() != 2 or rewards.shape[1] != 2:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; expected (N, 2).")
    if not 0 <= error_rate <= 0.5:
        raise ValueError(f"error_rate is {error_rate}; expected 0 to 0.5.")
    coin, error = torch.rand(2, len(rewards), generator=generator)
    first = torch.where(rewards[:, 0] == rewards[:, 1], coin < 0.5, rewards[:, 0] > rewards[:, 1])
    preferred: Tensor = first ^ (error < error_rate)
    return preferred


def probability_first_wins(difference: Tensor) -> Tensor:
    """P(first preferred) = 1 / (1 + exp(-(score of first - score of second))), any shape.

    Source: Bradley and Terry 1952; InstructGPT (arXiv 2203.02155), eq. 1.
    """
    return torch.sigmoid(difference)


@dataclass(frozen=True)
class RewardModel:
    """A score for every answer, linear in ``walk_features``.

    Only differences of scores between answers to one prompt mean anything: a constant added to all
    of them changes no preference.

    Attributes:
        weights: (31,) float64, in the order of ``FEATURES``.
    """

    weights: Tensor

    def score(self, prompts: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """(B,) float32; ``prompts`` has one row per answer."""
        return (walk_features(prompts, tokens, mask) @ self.weights).float()

    def of_rollout(self, rollout: Rollout) -> Tensor:
        """(B,) scores of a rollout's answers."""
        return self.score(rollout.prompts[rollout.group], rollout.tokens, rollout.mask)


Comparisons = tuple[Rollout, Tensor]


def fitted_reward_model(*comparisons: Comparisons, ridge: float = 1e-3) -> RewardModel:
    """The Bradley-Terry model under which the raters' choices are likeliest.

    Minimises the mean of -log P(preferred answer wins) + ridge * |weights|^2. The problem is
    convex, so there is one solution and no seed.

    Args:
        comparisons: one or more sets of (pairs, first). ``pairs`` has two answers per prompt, side
            by side, as a rollout of group size 2 has them; ``first`` (N,) bool says whether the
            first answer of each pair was preferred.
        ridge: keeps weights finite when the comparisons can be told apart without a mistake.

    Raises:
        ValueError: if there are no such pairs, or ``ridge`` is not positive.
    """
    if not comparisons or not ridge > 0:
        raise ValueError(
            f"comparisons has {len(comparisons)} sets and ridge is {ridge}; expected one or more "
            "sets, and a positive ridge such as 1e-3."
        )
    difference = torch.cat([feature_differences(pairs, first) for pairs, first in comparisons])
    wins = torch.cat([first for _, first in comparisons]).double()
    weights = torch.zeros(difference.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        unlikeliness = binary_cross_entropy_with_logits(difference @ weights, wins)
        total = unlikeliness + ridge * (weights**2).sum()
        total.backward()
        return total

    optimizer.step(loss)
    return RewardModel(weights.detach())


def feature_differences(pairs: Rollout, first: Tensor) -> Tensor:
    """(N, 31) features of each pair's first answer minus those of its second.

    Raises:
        ValueError: if the answers are not two per prompt and preference, side by side.
    """
    two = pairs.group.view(-1, 2) if len(pairs) % 2 == 0 else pairs.group[None]
    if two.shape != (len(first), 2) or (two[:, 0] != two[:, 1]).any():
        raise ValueError(
            f"pairs has {len(pairs)} answers for {len(first)} preferences; expected two answers "
            "to one prompt, side by side, for each."
        )
    seen = walk_features(pairs.prompts[pairs.group], pairs.tokens, pairs.mask)
    return seen[0::2] - seen[1::2]


def pair_accuracy(model: RewardModel, pairs: Rollout) -> float:
    """Share of pairs whose truly better answer gets the higher score; equal pairs are left out."""
    truth, score = pairs.rewards.view(-1, 2), model.of_rollout(pairs).view(-1, 2)
    better = truth[:, 0] > truth[:, 1]
    differ = truth[:, 0] != truth[:, 1]
    return float(((score[:, 0] > score[:, 1]) == better)[differ].double().mean())


def best_of(scores: Tensor, values: Tensor, count: int) -> float:
    """Expected value of the answer with the highest score among ``count`` random ones.

    The mean over all ways to choose ``count`` of a prompt's N answers, then over prompts: the
    answer of rank k from below (1 to N) wins in C(k - 1, count - 1) of the C(N, count) choices.

    Args:
        scores: (P, N) by which the winner is chosen; of equal ones the later wins.
        values: (P, N) what is averaged.
        count: 1 to N.

    Raises:
        ValueError: if the shapes differ or ``count`` is out of range.
    """
    if scores.shape != values.shape or scores.dim() != 2:
        raise ValueError(
            f"scores and values have shapes {tuple(scores.shape)} and {tuple(values.shape)}; "
            "expected one shape (P, N)."
        )
    answers = scores.shape[1]
    if not 1 <= count <= answers:
        raise ValueError(f"count is {count}; expected 1 to {answers}, the answers per prompt.")
    all_choices = math.comb(answers, count)
    wins = [math.comb(rank, count - 1) / all_choices for rank in range(answers)]
    order = scores.argsort(dim=1, stable=True)
    by_rank = values.double().gather(1, order).mean(dim=0)
    return float(by_rank @ torch.tensor(wins, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class ModelledWalk(ClockWalk):
    """The clock walk with a reward model in the verifier's place; ``exact`` still tells the truth.

    Its rewards are scores: any number, not 0 to 1.
    """

    model: RewardModel = field(kw_only=True)

    def exact(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """(B,) bool, by the verifier."""
        return super().rewards(prompts, tokens, mask, finished) == 1

    def rewards(self, prompts: Tensor, tokens: Tensor, mask: Tensor, finished: Tensor) -> Tensor:
        """(B,) float32 scores; the model does not look at ``finished``."""
        return self.model.score(prompts, tokens, mask)
