"""One study drawn twice: so that GSPO seems to win, and as it is. Every number in both is true.

Lesson 12 lets the reader find what is wrong with the first picture. All of it is drawn from the
stored study ``calm``, in which GRPO with the paper's ranges is ahead of GSPO on every seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gspo_edu.intervals import mean_interval
from gspo_edu.plots import BLACK, GREY, LineStyle, new_figure, objective_style
from gspo_edu.predictions import say
from gspo_edu.stored_studies import StoredStudy, stored_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STUDY, SETTING = "calm", "lr 0.001"
FLOOR = 0.56  # where the first picture lets its axis begin
STOPPED = 30  # rollouts after which GRPO's bar is read off
OTHER_RATE = 0.002  # GRPO's learning rate in the right half of the first picture
ARMS = ("GRPO", "GSPO", "GSPO, measured range")


@dataclass(frozen=True)
class Bar:
    """One bar of the first picture: a single run.

    Attributes:
        arm: of the study.
        value: held-out reward.
        seed, rollouts, lr: the small print.
    """

    arm: str
    value: float
    seed: int
    rollouts: int
    lr: float


@dataclass(frozen=True)
class Statement:
    """Something that one may say about the first picture.

    Attributes:
        text: a true statement.
        fault: whether it makes the picture misleading.
        answer: why, or why not.
    """

    text: str
    fault: bool
    answer: str


def calm() -> StoredStudy:
    """The study that both pictures show."""
    return stored_study(STUDY)


def held_out(arm: str, seed: int, rollout: int) -> float:
    """Held-out reward of one run after ``rollout`` rollouts.

    Raises:
        ValueError: if it was not measured then.
    """
    for row in calm().updates:
        run = (row["arm"], row["setting"], row["seed"], row["rollout"])
        if run == (arm, SETTING, seed, rollout) and row["held_out_reward"] is not None:
            return float(row["held_out_reward"])
    raise ValueError(f"rollout is {rollout}; the study has no held-out reward of {arm} there.")


def tuning_runs(arm: str, lr: float) -> dict[int, float]:
    """{seed: reward} of the runs that tried ``lr`` for ``arm``."""
    rows = [row for row in calm().tuning if (row["arm"], row["lr"]) == (arm, lr)]
    return {int(row["seed"]): float(row["reward"]) for row in rows}


def chosen_bars() -> list[list[Bar]]:
    """Two pairs of bars, chosen to please: the worst run of GRPO beside the best of GSPO."""
    study = calm()
    worst, best = study.group("GRPO", SETTING), study.group("GSPO", SETTING)
    low = min(worst.values, key=lambda seed: worst.values[seed])
    high = max(best.values, key=lambda seed: best.values[seed])
    rollouts = int(study.runs[0]["updates"]) // 4
    rate = best.means["lr"]
    tried, tuned = tuning_runs("GRPO", OTHER_RATE), tuning_runs("GSPO", rate)
    bad = min(tried, key=lambda seed: tried[seed])
    good = max(tuned, key=lambda seed: tuned[seed])
    return [
        [
            Bar("GRPO", held_out("GRPO", low, STOPPED), low, STOPPED, rate),
            Bar("GSPO", best.values[high], high, rollouts, rate),
        ],
        [
            Bar("GRPO", tried[bad], bad, rollouts, OTHER_RATE),
            Bar("GSPO", tuned[good], good, rollouts, rate),
        ],
    ]


def small_print() -> str:
    """What a careless reader does not read."""
    lines = []
    for name, bars in zip(("Left", "Right"), chosen_bars(), strict=True):
        runs = "; ".join(
            f"{b.arm} seed {b.seed}, {b.rollouts} rollouts, learning rate {b.lr:g}" for b in bars
        )
        lines.append(f"{name}: {runs}.")
    lines.append("Ranges 0.2/0.27 (GRPO) and 3e-4/4e-4 (GSPO). Prompts not trained on.")
    return "\n".join(lines)


def times_as_high(bars: list[Bar]) -> float:
    """How many times as high as the first bar the second one is drawn."""
    return (bars[1].value - FLOOR) / (bars[0].value - FLOOR)


def pleasing_figure() -> Figure:
    """The first picture: GSPO seems to win twice."""
    figure, axes = new_figure(columns=2, width=2.9, height=2.7)
    for ax, bars, title in zip(axes, chosen_bars(), ("Experiment 1", "Experiment 2"), strict=True):
        for place, bar in enumerate(bars):
            style = objective_style(bar.arm.lower())
            hatch = "//" if bar.arm == "GRPO" else ""
            ax.bar(place, bar.value - FLOOR, 0.6, FLOOR, color=style["color"], hatch=hatch)
        ax.set(ylim=(FLOOR, 0.66), ylabel="reward", title=title)
        ax.set_xticks([0, 1], ["GRPO", "GSPO (ours)"])
    return figure


def honest_figure() -> Figure:
    """The second picture: all seeds with intervals from 0 on, and the paired differences."""
    study = calm()
    figure, (left, right) = new_figure(columns=2, width=3.7, height=3.2)
    for place, arm in enumerate(ARMS):
        group = study.group(arm, SETTING)
        dots(left, place, list(group.values.values()), style_of(arm), marker="os^"[place])
    start = study.group("GRPO", SETTING).means["start"]
    left.axhline(start, color=GREY, ls=":", lw=1.5)
    left.annotate("before training", (2.45, start), (0, 4), ha="right", **BESIDE)
    left.set(ylim=(0, 1), xlim=(-0.5, 2.5), ylabel="held-out reward after 40 rollouts")
    left.set_xticks(range(3), ["GRPO", "GSPO,\npaper's range", "GSPO,\nmeasured range"])
    for place, arm in enumerate(ARMS[1:]):
        pair = study.pair(arm, "GRPO", SETTING)
        dots(right, place, list(pair.differences.values()), style_of(arm), marker="s^"[place])
    right.axhline(0, color=BLACK, lw=1)
    right.set(xlim=(-0.5, 1.5), ylabel="difference to GRPO, same seed")
    right.set_xticks(range(2), ["GSPO,\npaper's range", "GSPO,\nmeasured range"])
    return figure


BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": GREY}


def style_of(arm: str) -> LineStyle:
    """Colour of an arm's objective."""
    return objective_style(arm.partition(",")[0].lower())


def dots(ax: Axes, place: int, values: list[float], style: LineStyle, marker: str) -> None:
    """One dot per seed, and their mean with its 95 % t interval beside them."""
    spread = np.linspace(-0.18, 0.06, len(values))
    ax.plot(place + spread, values, marker, color=style["color"], ms=4.5, alpha=0.75)
    mean, (low, high) = float(np.mean(values)), mean_interval(values)
    ax.errorbar(
        place + 0.2, mean, [[mean - low], [high - mean]], fmt="_", color=BLACK, ms=9, capsize=3
    )


def statements() -> list[Statement]:
    """What one may say about the first picture, faults and good habits mixed."""
    left, right = chosen_bars()
    pair = calm().pair("GSPO", "GRPO", SETTING)
    all_of_grpo = calm().group("GRPO", SETTING).values
    mean_at = {lr: np.mean([*tuning_runs("GRPO", lr).values()]) for lr in (OTHER_RATE, right[1].lr)}
    return [
        Statement(
            f"The vertical axis begins at {FLOOR}.",
            True,
            f"The right bar is drawn {times_as_high(left):.1f} times as high as the left one; the "
            f"reward is {left[1].value / left[0].value:.2f} times as large.",
        ),
        Statement(
            "Both methods began with the same policy.",
            False,
            "That is how it should be: what differs at the end was not there at the start.",
        ),
        Statement(
            "Each bar is one run.",
            True,
            f"The eight runs of GRPO lie between {min(all_of_grpo.values()):.3f} and "
            f"{max(all_of_grpo.values()):.3f}; one bar hides that.",
        ),
        Statement(
            "The two methods have different clip ranges.",
            False,
            "Ratios of tokens and of answers are different things, so equal ranges would be the "
            "unfair choice. What must be equal is the care with which each was chosen, and that "
            "the picture does not tell.",
        ),
        Statement(
            "The seeds were chosen after the results were known.",
            True,
            f"GSPO's best run stands beside GRPO's worst. On equal seeds GSPO is ahead on "
            f"{pair.above} of {len(pair.differences)}.",
        ),
        Statement(
            f"In experiment 1 GRPO was read off after {left[0].rollouts} rollouts, GSPO after "
            f"{left[1].rollouts}.",
            True,
            f"Unequal compute. Ten rollouts later the same run of GRPO has "
            f"{all_of_grpo[left[0].seed]:.3f}.",
        ),
        Statement(
            "The reward is measured on prompts that were not trained on.",
            False,
            "That is good practice.",
        ),
        Statement(
            f"In experiment 2 GRPO has the learning rate {right[0].lr:g}, GSPO {right[1].lr:g}.",
            True,
            f"GSPO has the rate that suits it best, GRPO has not: on these seeds it has "
            f"{mean_at[right[1].lr]:.3f} on average at {right[1].lr:g}, {mean_at[OTHER_RATE]:.3f} "
            f"at {OTHER_RATE:g}.",
        ),
    ]


def print_statements() -> None:
    """The statements, numbered from 1."""
    for number, statement in enumerate(statements(), 1):
        say(f"  {number}. {statement.text}")


def check_faults(found: Iterable[int] | None) -> None:
    """Print which of the reader's numbers are faults, and which faults are missing.

    Args:
        found: numbers of statements; None if not answered yet.

    Raises:
        ValueError: if one of them is no statement's number.
    """
    if found is None:
        print("Not filled in yet. Put the numbers in a list, such as [2, 7], and run it again.")
        return
    all_of_them = dict(enumerate(statements(), 1))
    given = set(found)
    if not given <= all_of_them.keys():
        raise ValueError(
            f"found is {sorted(given)}; expected numbers from 1 to {len(all_of_them)}."
        )
    faults = {number for number, statement in all_of_them.items() if statement.fault}
    print(f"{len(given & faults)} of {len(faults)} faults found.")
    for number in sorted(given):
        word = "a fault" if number in faults else "no fault"
        say(f"  {number}: {word}. {all_of_them[number].answer}")
    if missing := len(faults - given):
        print(f"Still to be found: {missing}. Read the small print once more.")
