"""What learners believe, which question of the course reveals it, and the number that settles it.

Every number is computed here from ``gspo_edu`` or read from the shipped studies. The page that
shows them is written by ``teaching_tables.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gspo_edu.adamw import AdamW
from gspo_edu.advantages import group_advantages
from gspo_edu.checks import NUMBERS
from gspo_edu.clip_range import active_share
from gspo_edu.intervals import student_t_quantile
from gspo_edu.metrics import k3
from gspo_edu.moe.routes import replay_gates
from gspo_edu.objectives import OBJECTIVES, ppo
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.stored_studies import stored_study
from gspo_edu.verdict_rules import difference_of
from gspo_edu.widgets.base import CLIP_RANGES
from gspo_edu.widgets.length_spread import sequence_ratio_spread


@dataclass(frozen=True)
class Misconception:
    """One belief.

    Attributes:
        belief: as learners say it.
        question: where the course asks: a prediction as "prediction NAME", or a task of an
            exercise as "exercise NAME".
        settled: computes the sentence with the number.
    """

    belief: str
    question: str
    settled: Callable[[], str]


def wrong_and_right(name: str, mistake: str, digits: str = "g") -> str:
    """What an exercise's number is, beside what a known mistake makes of it."""
    number = NUMBERS[name]
    wrong = next(value() for key, value, _ in number.mistakes if key == mistake)
    return f"{number.right():{digits}}, not {wrong:{digits}}"


def ppo_slope(ratio: float, advantage: float) -> float:
    """Slope of PPO's objective in the log-prob of a single token, range 0.2."""
    logp = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    one = torch.ones(1, 1, dtype=torch.float64)
    ppo(logp, one * 0, one[0] * advantage, one).loss.backward()
    assert logp.grad is not None
    return -logp.grad.item()


def one_batch_gradient(objective: str, *, at_start: bool = False) -> tuple[float, Tensor]:
    """Loss on the one batch and its gradient at the ten tokens."""
    t = ONE_BATCH.tensors()
    logp = (t.logp_old if at_start else t.logp).clone().requires_grad_()
    advantages = group_advantages(t.rewards, t.group)
    loss = OBJECTIVES[objective](logp, t.logp_old, advantages, t.mask).loss
    loss.backward()
    assert logp.grad is not None
    return loss.item(), logp.grad[t.mask]


def cap() -> str:
    risen, unmoved = ppo_slope(2.0, -0.4), ppo_slope(1.0, -0.4)
    return f"r = 2, A = −0.4: the slope is {risen:.2f}, {risen / unmoved:g} times that at r = 1"


def wall() -> str:
    start = torch.full((10,), 0.8 / 9, dtype=torch.float64)
    start[9] = 0.2
    logits, one = start.log().requires_grad_(), torch.ones(1, 1, dtype=torch.float64)
    for _ in range(40):
        logp = logits.log_softmax(dim=0)[9].reshape(1, 1)
        ppo(logp, start.log()[9].reshape(1, 1), one[0], one).loss.backward()
        assert logits.grad is not None
        with torch.no_grad():
            logits -= 0.1 * logits.grad
            logits.grad.zero_()
    return f"the bound is 1.2; after forty steps r = {logits.softmax(dim=0)[9].item() / 0.2:.4f}"


def zero_loss() -> str:
    loss, gradient = one_batch_gradient("grpo", at_start=True)
    moved = int((gradient != 0).sum())
    return f"loss {abs(loss):.4f}, and {moved} of {len(gradient)} tokens have a gradient"


def smaller_gradient() -> str:
    steps = []
    for size in (1.0, 0.5):
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = AdamW([weight], lr=0.01)
        weight.grad = torch.tensor([size])
        optimizer.step()
        steps.append(-weight.item())
    return f"AdamW's first step at rate 0.01: {steps[0]:.4f}; with half the gradient {steps[1]:.4f}"


def divisor() -> str:
    name = "03 advantage"
    return f"{wrong_and_right(name, 'sample_std', '.4f')}: √(3/4) = {math.sqrt(3 / 4):.4f} of it"


def whole_batch() -> str:
    rewards = torch.tensor([1.0, 1, 1, 0, 0, 0, 0, 1], dtype=torch.float64)
    apart = group_advantages(rewards, [0] * 4 + [1] * 4)
    together = group_advantages(rewards, [0] * 8)
    return (
        "an easy prompt (1, 1, 1, 0) and a hard one (0, 0, 0, 1): the two kinds of right answer "
        f"get {apart[0]:+.4f} and {apart[7]:+.4f}; over the whole batch {together[0]:+.4f} both"
    )


def pairs() -> str:
    two, eight = NUMBERS["03 dead pairs"].right(), NUMBERS["03 dead eights"].right()
    return f"at a chance of 0.18, {two:.4f} of the pairs are dead; of groups of eight {eight:.4f}"


def sampled_kl() -> str:
    policy, reference = (torch.tensor(p, dtype=torch.float64) for p in ((0.5, 0.5), (0.8, 0.2)))
    plain = (policy / reference).log()
    kl = (policy * plain).sum()
    other = k3(policy.log(), reference.log())
    assert math.isclose((policy * other).sum(), kl)
    return (
        f"a fair coin against one of 0.8: the KL is {kl:.4f}; one toss says {plain[0]:+.4f} or "
        f"{plain[1]:+.4f} (k1), {other[0]:.4f} or {other[1]:.4f} (k3)"
    )


def one_range() -> str:
    low, high = CLIP_RANGES["gspo"]
    wide = sequence_ratio_spread(0.05, 1000, 0.2, 0.2).outside
    narrow = sequence_ratio_spread(0.05, 1000, low, high).outside
    return (
        f"σ = 0.05, 1000 tokens: {wide:.4f} of the answers are outside 0.2, {narrow:.4f} outside "
        "GSPO's range"
    )


def first_update() -> str:
    token, sequence = (one_batch_gradient(name, at_start=True)[1] for name in ("grpo", "gspo"))
    difference = (token - sequence).abs().max()
    return f"largest difference of the gradients on the one batch: {difference:.6f}"


def narrow_limit() -> str:
    at = sequence_ratio_spread(0.05, 1000, 1e-6, 1e-6)
    share = active_share(at.below, at.above)
    return f"ε = 10⁻⁶: {at.outside:.4f} of the answers are outside, {share:.4f} are clipped"


def product_swing() -> str:
    low, high = sequence_ratio_spread(0.05, 10_000, *CLIP_RANGES["gspo"]).product_90
    return (
        "10 000 tokens, σ = 0.05: the middle 90 % of the products reach from "
        f"{low:.1e} to {high:.3f}"
    )


def frozen_router() -> str:
    logits = torch.tensor([1.2, 0.9, 0.3], dtype=torch.float64, requires_grad=True)
    gate = replay_gates(logits, torch.tensor([0, 2]))[1]
    gate.backward()
    assert logits.grad is not None
    return f"replayed gate {gate.item():.4f}; its slopes in the live logits are " + ", ".join(
        f"{slope:+.4f}" for slope in logits.grad
    )


def copied_gates() -> str:
    recorded, live = (
        torch.tensor(x, dtype=torch.float64) for x in ((1.0, 0.2, 0.8), (1.2, 0.9, 0.3))
    )
    old, new = (replay_gates(x, torch.tensor([0, 2]))[1] for x in (recorded, live))
    return (
        f"logits 1.0, 0.2, 0.8 gave the third expert the gate {old:.4f}; with live logits 1.2, "
        f"0.9, 0.3 replay gives {new:.4f}"
    )


def forgives() -> str:
    s = NUMBERS["09 forgiven"].right()
    times = (s - 1) / CLIP_RANGES["gspo"][1]
    return f"5 of 200 tokens at r = 2: s = {s:.4f}, {times:.0f} times as far from 1 as the bound"


def first_updates() -> str:
    share = NUMBERS["08 later updates"].right()
    return (
        "a rollout's first update has ratios of 1 only and clips nothing; a mean of 0.36 over four "
        f"updates is {share:.2f} over the other three"
    )


def few_seeds() -> str:
    def half(seeds: int) -> float:
        return student_t_quantile(0.975, seeds - 1) / math.sqrt(seeds)

    return f"the interval from three seeds is {half(3) / half(8):.2f} times as wide as from eight"


def one_yes_one_no() -> str:
    study, rate = stored_study("replay"), "lr 0.001"
    gains = [study.pair(f"{arm} + R3", arm, rate) for arm in ("GRPO", "GSPO, measured range")]
    gap, (low, high) = difference_of(gains[0], gains[1])
    shown = (f"{pair.mean:+.3f} ({pair.verdict})" for pair in gains)
    return (
        f"study *replay*: R3 adds {' under GRPO, '.join(shown)} under GSPO; the gains differ by "
        f"{gap:+.3f} ({low:+.3f} to {high:+.3f})"
    )


def consistent_experts() -> str:
    study = stored_study("stormy")
    drifts = [
        np.mean(study.means(arm, "lr 0.004", "drift_per_rollout")) for arm in ("GRPO", "GSPO")
    ]
    return (
        f"drift per rollout, mean over the study *stormy* at one rate: {drifts[0]:.3f} under GRPO, "
        f"{drifts[1]:.3f} under GSPO"
    )


MISCONCEPTIONS = (
    Misconception("Clipping caps the gradient.", "prediction 02 size of the push", cap),
    Misconception(
        "Outside the range means no gradient.",
        "exercise 02 corners",
        lambda: "silent corners: " + wrong_and_right("02 corners", "outside_is_clipped"),
    ),
    Misconception(
        "For A < 0 one takes the maximum.",
        "exercise 02 bad and likelier",
        lambda: f"r = 1.5, A = −1: {wrong_and_right('02 bad and likelier', 'max')}",
    ),
    Misconception("The clip is a wall.", "prediction 02 after forty steps", wall),
    Misconception("A loss of 0 teaches nothing.", "prediction 03 loss of zero", zero_loss),
    Misconception("A smaller gradient is a smaller step.", "prediction 08 steps", smaller_gradient),
    Misconception("n or n − 1 makes no difference.", "exercise 03 advantage", divisor),
    Misconception("The group may be the whole batch.", "exercise exhibit 9", whole_batch),
    Misconception("Two answers per prompt will do.", "exercise 03 dead pairs", pairs),
    Misconception("The sampled KL is the KL.", "exercise 03 k3", sampled_kl),
    Misconception(
        "The sequence ratio is the product.",
        "prediction 05 four tokens",
        lambda: f"1.2, 0.9, 1.0, 1.1: {wrong_and_right('05 four tokens', 'no_root', '.4f')}",
    ),
    Misconception(
        "Without the root it would work as well.", "prediction 05 product", product_swing
    ),
    Misconception(
        "It is the mean of the ratios.",
        "exercise 05 four tokens",
        lambda: wrong_and_right("05 four tokens", "arithmetic_mean", ".4f"),
    ),
    Misconception(
        "s = 1.02 is practically 1.",
        "exercise 05 good answer",
        lambda: (
            "tokens of the good answer with a gradient: "
            + wrong_and_right("05 good answer", "close_to_one")
        ),
    ),
    Misconception(
        "An answer outside GSPO's range is silent.",
        "exercise 05 bad answer",
        lambda: (
            "tokens of the bad answer with a gradient: "
            + wrong_and_right("05 bad answer", "outside_is_clipped")
        ),
    ),
    Misconception("0.2 is a range for every ratio.", "exercise 05 equal range", one_range),
    Misconception(
        "GSPO differs from GRPO from the first update on.",
        "prediction 05 first update",
        first_update,
    ),
    Misconception("A range near 0 clips everything.", "prediction 05 active share", narrow_limit),
    Misconception("A clip fraction of 0 is a bug.", "exercise 08 later updates", first_updates),
    Misconception("Three seeds are enough.", "prediction 08 three seeds", few_seeds),
    Misconception(
        "An expert that changes its place has changed.",
        "exercise 07 drift",
        lambda: f"drift {wrong_and_right('07 drift', 'order_counts')}",
    ),
    Misconception("Replay freezes the router.", "prediction 09 router", frozen_router),
    Misconception("Replay copies the gates.", "exercise 09 gate", copied_gates),
    Misconception("A geometric mean forgives everything.", "exercise 09 forgiven", forgives),
    Misconception(
        "GSPO keeps the experts constant.", "prediction 09 consistent", consistent_experts
    ),
    Misconception(
        "A clear effect here and none there are two different effects.",
        "prediction 12 one yes, one no",
        one_yes_one_no,
    ),
)
