"""Group advantages: rewards of one group, their mean and std, and who is pushed up or down."""

from __future__ import annotations

import math
from statistics import fmean, pstdev, stdev
from typing import TYPE_CHECKING, Any

import traitlets

from gspo_edu.widgets.assets import module
from gspo_edu.widgets.base import LessonWidget, Numbers, check

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ANSWERS = 16


class GroupAdvantage(LessonWidget):
    """Rewards to drag, and the advantages that GRPO makes of them.

    The arguments are traits: they follow the reader's hand, and setting one moves the widget.

    Args:
        rewards: of 2 to 16 answers to one prompt, within ``low`` and ``high``.
        ddof: 0 divides the squared deviations by n, 1 by n - 1.
        normalize: divide by the standard deviation at all.
        low, high: ends of the reward axis.

    Raises:
        TraitError: for a setting without meaning; the message says what was expected.
    """

    name = "group_advantage"
    title = "Group advantages"
    _esm = module("group_advantage")

    low = traitlets.Float(0.0).tag(sync=True)
    high = traitlets.Float(1.0).tag(sync=True)
    rewards = Numbers().tag(sync=True)
    ddof = traitlets.Int(0).tag(sync=True)
    normalize = traitlets.Bool(True).tag(sync=True)

    def __init__(self, rewards: Any = (1.0, 0.0, 0.5, 0.0), **kwargs: Any) -> None:
        super().__init__(rewards=rewards, **kwargs)

    @traitlets.validate("low", "high")
    def _check_axis(self, proposal: dict[str, Any]) -> float:
        value: float = proposal["value"]
        ends = {"low": self.low, "high": self.high, proposal["trait"].name: value}
        low, high = ends["low"], ends["high"]
        valid = math.isfinite(low) and math.isfinite(high) and low < high
        check(valid, self, "low, high", (low, high), "two numbers, low below high")
        fits = all(low <= reward <= high for reward in self.rewards)
        check(fits, self, "low, high", (low, high), f"an axis that holds {self.rewards}")
        return value

    @traitlets.validate("rewards")
    def _check_rewards(self, proposal: dict[str, Any]) -> list[float]:
        rewards: list[float] = proposal["value"]
        ends = (self.low, self.high)
        check(self.low < self.high, self, "low, high", ends, "two numbers, low below high")
        expected = f"2 to {MOST_ANSWERS} numbers from {self.low:g} to {self.high:g}"
        if len(rewards) == 1:
            expected += "; one answer alone has no group to compare with"
        check(2 <= len(rewards) <= MOST_ANSWERS, self, "rewards", rewards, expected)
        valid = all(self.low <= reward <= self.high for reward in rewards)
        expected += " (set low and high for other rewards)"
        check(valid, self, "rewards", rewards, expected)
        return rewards

    @traitlets.validate("ddof")
    def _check_ddof(self, proposal: dict[str, Any]) -> int:
        ddof: int = proposal["value"]
        check(ddof in (0, 1), self, "ddof", ddof, "0 (divide by n) or 1 (divide by n - 1)")
        return ddof

    @property
    def advantages(self) -> list[float]:
        """One per answer; all 0 in a dead group."""
        import torch

        from gspo_edu.advantages import group_advantages

        rewards = torch.tensor(self.rewards, dtype=torch.float64)
        group = torch.zeros(len(rewards), dtype=torch.int64)
        found = group_advantages(rewards, group, normalize=self.normalize, ddof=self.ddof)
        return [float(advantage) for advantage in found]

    @property
    def mean(self) -> float:
        """Mean reward, the baseline."""
        return fmean(self.rewards)

    @property
    def std(self) -> float:
        """Standard deviation of the rewards with ``ddof``."""
        return stdev(self.rewards) if self.ddof else pstdev(self.rewards)

    def _pushes(self) -> list[float]:
        # The mean of 0.1, 0.2 and 0.3 is 0.2 but for rounding, which is no push down.
        least = 1e-9 * max(map(abs, self.advantages))
        return [0.0 if abs(advantage) < least else advantage for advantage in self.advantages]

    def words(self) -> str:
        advantages = ", ".join(f"{advantage:+.2f}" for advantage in self._pushes())
        rewards = ", ".join(f"{reward:g}" for reward in self.rewards)
        dead = " A dead group: nobody is pushed." if len(set(self.rewards)) == 1 else ""
        return (
            f"Group of {len(self.rewards)} answers with rewards {rewards}: mean {self.mean:.3f}, "
            f"std {self.std:.3f} (n{' − 1' if self.ddof else ''}), advantages {advantages}.{dead}"
        )

    def picture(self) -> Figure:
        from gspo_edu.plots import BLUE, GREY, VERMILION
        from gspo_edu.widgets.pictures import INK, headline, panels

        count = len(self.rewards)
        figure, (left, right) = panels(110 + 36 * count)
        place = range(1, count + 1)
        left.barh(
            place, [r - self.low for r in self.rewards], left=self.low, height=0.5, color="#8AA4B5"
        )
        left.axvline(self.mean, color=INK, ls="--", lw=1.3)
        left.set_xlim(self.low, self.high)
        left.set_xlabel("reward (dashed: mean)")
        headline(left, f"mean {self.mean:.3f}, std {self.std:.3f}")
        advantages = self._pushes()
        colors = [BLUE if a > 0 else VERMILION if a < 0 else GREY for a in advantages]
        right.barh(place, advantages, height=0.5, color=colors)
        right.axvline(0, color=GREY, lw=0.8)
        reach = max(2.0, *(abs(a) * 1.1 for a in advantages))
        right.set_xlim(-reach, reach)
        for row, advantage in zip(place, advantages, strict=True):
            push = "likelier" if advantage > 0 else "less likely" if advantage < 0 else "no push"
            right.annotate(
                f"{advantage:+.2f} {push}".replace("-", "−"),
                (0, row),
                (-6 if advantage >= 0 else 6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
                ha="right" if advantage >= 0 else "left",
            )
        right.set_xlabel("advantage A")
        headline(right, "Blue: becomes likelier. Orange: less likely.")
        for ax in (left, right):
            ax.set_yticks(list(place))
            ax.set_ylim(count + 0.6, 0.4)
            ax.grid(visible=False, axis="y")
        left.set_ylabel("answer")
        return figure
