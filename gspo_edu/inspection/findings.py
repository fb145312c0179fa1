"""What to worry about, in plain words, from the numbers of a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from gspo_edu.clip_range import length_where_mean_outweighs_spread, variance_inflation
from gspo_edu.inspection.rules import bounds_text, default_rules
from gspo_edu.objectives.gspo import length_at_which_range_binds

Numbers = Mapping[str, Any]
# From where on each number is worth a warning.
DEAD_GROUPS = 0.25
CUT_ANSWERS = 0.05
NARROW = 0.9  # share of answers outside GSPO's own range
ENGINE_OUTSIDE = 0.1
WIDENED = 1.5  # std of log s over that of independent tokens
UNLIKE = 1.0  # std of token log-ratios
# Slope of the log-ratios on logp_old: -1 where logp has nothing to do with logp_old.
UNRELATED_SLOPE = -0.8
# How far rounding may move a number, as a share of it: half the distance to the next one.
UNIT_ROUNDOFF = {
    "bf16": torch.finfo(torch.bfloat16).eps / 2,
    "fp16": torch.finfo(torch.float16).eps / 2,
}
TEMPERATURE_SLOPE, TEMPERATURE_CORRELATION = 0.05, 0.7


class Finding(NamedTuple):
    """A warning: a name for programs, a text for people."""

    name: str
    text: str


def findings(numbers: Numbers) -> list[Finding]:
    """All warnings, the gravest first."""
    found = []
    for look in LOOKS:
        text = look(numbers)
        if text:
            found.append(Finding(look.__name__, text))
    return found


def different_tokens(numbers: Numbers) -> str | None:
    """Log-ratios so large that both policies cannot have scored the same tokens."""
    token = numbers["token_log_ratio"]
    std, unrelated = token["std"], token["slope_on_logp_old"] < UNRELATED_SLOPE
    if std <= UNLIKE and not unrelated:
        return None
    return (
        f"The token log-ratios have a standard deviation of {std:.2g}"
        f"{', and logp does not follow logp_old' * unrelated}. That is hardly a policy that has "
        "moved: are both of the same tokens (one of them shifted by one?), and does the mask leave "
        "padding out?"
    )


def another_temperature(numbers: Numbers) -> str | None:
    """Log-ratios proportional to the log-probs, as two temperatures make them."""
    token = numbers["token_log_ratio"]
    if different_tokens(numbers):
        return None
    slope, correlation = token["slope_on_logp_old"], token["correlation_with_logp_old"]
    if abs(slope) < TEMPERATURE_SLOPE or abs(correlation) < TEMPERATURE_CORRELATION:
        return None
    return (
        f"The log-ratios follow the log-probs (slope {slope:+.2f}, correlation "
        f"{correlation:+.2f}), as if logp and logp_old had been computed at "
        "different temperatures. Divide the logits by the sampling temperature in both."
    )


def all_ratios_are_one(numbers: Numbers) -> str | None:
    """Nothing off-policy in the file."""
    if numbers["sequence_log_ratio"]["on_policy_fraction"] < 1:
        return None
    return (
        "All ratios are 1 (but for rounding): nothing is off-policy here, nothing can clip, and "
        "token or sequence level makes no difference. This is so with one update per rollout, and "
        "when logp_old is taken from the same pass as logp. Record later mini-batches of a rollout."
    )


def rounded_log_probs(numbers: Numbers) -> str | None:
    """Log-probs in half precision."""
    short = {name: kind for name, kind in numbers["rounding"].items() if kind}
    if not short:
        return None
    kinds = sorted(set(short.values()))
    step = max(UNIT_ROUNDOFF[kind] for kind in kinds)
    own = bounds_text(default_rules({}, only="gspo")[0].settings)
    return (
        f"{', '.join(short)} look rounded to {' and '.join(kinds)}: each log-prob may be off by "
        f"{step:.2%} of itself, and GSPO's range is {own}. Compute and store log-probs in float32."
    )


def no_advantages(numbers: Numbers) -> str | None:
    """Nobody gets a gradient."""
    about = numbers["advantages"]
    if about is None or about["zero_fraction"] < 1:
        return None
    return (
        "All advantages are 0: no answer pulls at the policy. Do the rewards differ within any "
        "group, and are the group ids those of prompts?"
    )


def dead_groups(numbers: Numbers) -> str | None:
    """Many groups without signal."""
    rewards = numbers["rewards"]
    dead = rewards and rewards["signalless_group_fraction"]
    if dead is None or dead < DEAD_GROUPS:
        return None
    return (
        f"In {dead:.0%} of the groups all rewards are equal, so that their answers contribute "
        "nothing. Prompts that are too easy or too hard cost samples without teaching; filter "
        "them, or sample larger groups."
    )


def cut_answers(numbers: Numbers) -> str | None:
    """Many answers end at the length limit."""
    length = numbers["length"]
    # What the file says of each answer counts more than how long it is.
    share = length["unfinished_fraction"]
    share = length["limit_fraction"] if share is None else share
    if share is not None:
        if share < CUT_ANSWERS:
            return None
        return (
            f"The length limit cut {share:.0%} of the answers. Their rewards are those of "
            "unfinished answers; raise the limit, or mask them."
        )
    share = length["longest_fraction"]
    if share < CUT_ANSWERS or length["min"] == length["max"] or numbers["answers"] < 20:
        return None
    return (
        f"{share:.0%} of the answers have exactly the greatest length, {length['max']} tokens: a "
        "length limit has probably cut them. Add column finished to be sure."
    )


def range_cannot_bind(numbers: Numbers) -> str | None:
    """A range meant for token ratios, put on sequence ratios."""
    if all_ratios_are_one(numbers):
        return None
    idle = [
        rule["settings"]
        for rule in numbers["clip"]
        if rule["objective"] == "gspo" and rule["outside_fraction_seq"] == 0
    ]
    if not idle:
        return None
    narrowest = min(idle, key=lambda bounds: max(bounds.values()))
    sigma, length = numbers["token_log_ratio"]["std"], numbers["length"]["min"]
    binds = length_at_which_range_binds(sigma, **narrowest)
    needed = "no answer is short enough for it"
    if binds >= 1:
        needed = f"it would take answers of at most {binds:.0f} tokens"
    return (
        f"A range of {bounds_text(narrowest)} cannot bind for GSPO here: no answer's ratio leaves "
        f"it. With token log-ratios of standard deviation {sigma:.3g} {needed}; the "
        f"shortest here has {length}."
    )


def range_is_narrow(numbers: Numbers) -> str | None:
    """GSPO's own range, with answers too short or updates too large for it."""
    own = default_rules({}, only="gspo")[0].settings
    for rule in numbers["clip"]:
        if rule["objective"] == "gspo" and rule["settings"] == own:
            outside = rule["outside_fraction_seq"]
            if outside >= NARROW:
                return (
                    f"GSPO's range of {bounds_text(own)} leaves {outside:.0%} of these answers "
                    "outside; it was chosen for long answers. See below for ranges that fit."
                )
    return None


def tokens_move_together(numbers: Numbers) -> str | None:
    """log s spreads more than independent tokens would make it."""
    sequence, token = numbers["sequence_log_ratio"], numbers["token_log_ratio"]
    ratio, correlation = sequence["std_over_expected"], token["autocorrelation"].get("1")
    if ratio is None or ratio < WIDENED:
        return None
    length = round(numbers["length"]["harmonic_mean"])
    why = ""
    if correlation is not None and 0 < correlation < 1:
        factor = variance_inflation(correlation, length) ** 0.5
        why = (
            f" Neighbours' correlation of {correlation:.2f} alone would explain a factor of "
            f"{factor:.1f}."
        )
    return (
        f"log s spreads {ratio:.1f} times as much as sigma / sqrt(L) says: an answer's tokens move "
        f"together, or some answers (short ones?) more than others.{why} Take the "
        "range from the measured quantiles below, not from sigma and L."
    )


def mean_outweighs_spread(numbers: Numbers) -> str | None:
    """Answers so long that s lies below 1 more than it scatters."""
    sequence, sigma = numbers["sequence_log_ratio"], numbers["token_log_ratio"]["std"]
    if not (sigma > 0 and sequence["std"] > 0 and -sequence["mean"] > sequence["std"]):
        return None
    length = length_where_mean_outweighs_spread(sigma)
    return (
        "The mean of log s is further below 0 than log s spreads, so most answers lie below 1 "
        f"whatever their advantage (independent tokens: from {length:,.0f} tokens on). A range "
        "around 1 then clips answers with A < 0 and hardly any with A > 0."
    )


def engine_differs(numbers: Numbers) -> str | None:
    """The engine's own error is as large as the range."""
    engine = numbers["engine"]
    outside = engine and engine["outside_fraction_seq"]
    if outside is None or outside < ENGINE_OUTSIDE:
        return None
    return (
        f"Engine and trainer disagree so much about pi_old that GSPO's range would leave "
        f"{outside:.0%} of the answers outside before any update. If logp_old were the engine's, "
        "that would be clipped; recompute it, or correct with TIS or IcePop."
    )


def empty_answers(numbers: Numbers) -> str | None:
    """Answers without response tokens."""
    count = numbers["length"]["empty_answers"]
    if not count:
        return None
    return (
        f"{count} answer{'s' * (count > 1)} of {numbers['answers']} have no response tokens. They "
        "count in no ratio here, but a trainer may count them in its mean over answers."
    )


LOOKS: tuple[Callable[[Numbers], str | None], ...] = (
    different_tokens,
    another_temperature,
    all_ratios_are_one,
    rounded_log_probs,
    no_advantages,
    dead_groups,
    cut_answers,
    range_cannot_bind,
    range_is_narrow,
    tokens_move_together,
    mean_outweighs_spread,
    engine_differs,
    empty_answers,
)
