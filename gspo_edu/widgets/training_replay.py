"""Training replay: two stored runs side by side, reward, clip fraction and drift in step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import traitlets

from gspo_edu.widgets.assets import module
from gspo_edu.widgets.base import LessonWidget, check
from gspo_edu.widgets.replay_record import METRICS, replay_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = {"study", "setting", "arms", "seeds", "values"}
# The picture's look of the two arms: GRPO's and GSPO's everywhere in the course.
LINES = ("--", "-")


class TrainingReplay(LessonWidget):
    """Scrub through two arms of a stored study: all panels show the same rollout.

    ``rollout`` and ``seed`` are traits: they follow the reader's hand, and setting one moves the
    widget.

    Args:
        study: name of a stored study, such as "calm" or "stormy".
        arms: two of its arms; the first is drawn dashed and orange, the second solid and blue.
        setting: one of its settings; None takes the first.
        record: from ``replay_record``, in place of the first three.
        rollout: which rollout is shown, from 1 on; beyond the last it means the last.
        seed: which seed; None: the mean over all seeds.

    Raises:
        TraitError: for a setting without meaning; the message says what was expected.
        ValueError: if there is no such study, arm or setting.
    """

    name = "training_replay"
    title = "Training replay"
    _esm = module("training_replay")

    record = traitlets.Dict().tag(sync=True)
    rollout = traitlets.Int(1).tag(sync=True)
    seed = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(
        self,
        study: str = "calm",
        *,
        arms: Sequence[str] = ("GRPO", "GSPO"),
        setting: str | None = None,
        record: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if record is None:
            record = replay_record(study, arms, setting)
        super().__init__(**{"record": record, "rollout": 10, **kwargs})

    @traitlets.validate("record")
    def _check_record(self, proposal: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = proposal["value"]
        given = f"a dict with {', '.join(sorted(map(str, record))) or 'nothing'}"
        fits = set(record) == KEYS and set(record["values"]) == set(METRICS)
        check(fits, self, "record", given, "what replay_record returns")
        shape = {(len(v), *{len(a) for a in v}) for v in record["values"].values()}
        wanted = {(2, len(record["seeds"]))}
        check(shape == wanted, self, "record", f"of arms and seeds {shape}", f"{wanted}")
        return record

    @traitlets.validate("rollout")
    def _check_rollout(self, proposal: dict[str, Any]) -> int:
        rollout: int = proposal["value"]
        check(rollout >= 1, self, "rollout", rollout, "1 or more")
        return rollout

    @traitlets.validate("seed")
    def _check_seed(self, proposal: dict[str, Any]) -> int | None:
        seed: int | None = proposal["value"]
        seeds = self.record["seeds"]
        check(seed is None or seed in seeds, self, "seed", seed, f"None or one of {seeds}")
        return seed

    @property
    def last(self) -> int:
        """Number of rollouts."""
        return len(self.record["values"]["reward"][0][0])

    def curve(self, metric: str, arm: str) -> list[float]:
        """One value per rollout of the chosen seed, or the mean of the seeds still running; NaN
        where no run was left.

        Raises:
            ValueError: if there is no such metric or arm.
        """
        if metric not in METRICS:
            raise ValueError(f"metric is {metric!r}; expected one of {', '.join(METRICS)}.")
        if arm not in self.record["arms"]:
            raise ValueError(f"arm is {arm!r}; expected one of {', '.join(self.record['arms'])}.")
        seeds = self.record["values"][metric][self.record["arms"].index(arm)]
        if self.seed is not None:
            seeds = [seeds[self.record["seeds"].index(self.seed)]]
        running = [[value for value in at if value is not None] for at in zip(*seeds, strict=True)]
        return [fmean(values) if values else math.nan for values in running]

    def values(self, arm: str) -> dict[str, float]:
        """{metric: value} of an arm at the chosen rollout.

        Raises:
            ValueError: if there is no such arm.
        """
        place = min(self.rollout, self.last) - 1
        return {metric: self.curve(metric, arm)[place] for metric in METRICS}

    def words(self) -> str:
        arms, seeds = self.record["arms"], self.record["seeds"]
        found = [self.values(arm) for arm in arms]
        whose = f"mean of {len(seeds)} seeds" if self.seed is None else f"seed {self.seed}"
        parts = [
            f"{label}: "
            + ", ".join(f"{arm} {of[metric]:.3f}" for arm, of in zip(arms, found, strict=True))
            for metric, label in METRICS.items()
        ]
        return (
            f"Study {self.record['study']}, {self.record['setting']}, rollout "
            f"{min(self.rollout, self.last)} of {self.last}, {whose}. {'; '.join(parts)}."
        )

    def picture(self) -> Figure:
        from gspo_edu.plots import BLUE, GREY, VERMILION
        from gspo_edu.widgets.pictures import headline, panels

        figure, axes = panels(230, columns=len(METRICS))
        places = range(1, self.last + 1)
        for ax, (metric, label) in zip(axes, METRICS.items(), strict=True):
            for arm, colour, line in zip(
                self.record["arms"], (VERMILION, BLUE), LINES, strict=True
            ):
                seeds = self.record["values"][metric][self.record["arms"].index(arm)]
                running = [[v for v in at if v is not None] for at in zip(*seeds, strict=True)]
                low = [min(values, default=math.nan) for values in running]
                high = [max(values, default=math.nan) for values in running]
                ax.fill_between(places, low, high, color=colour, alpha=0.15, lw=0)
                curve = self.curve(metric, arm)
                ax.plot(places, curve, color=colour, ls=line, lw=2, label=arm)
            ax.axvline(min(self.rollout, self.last), color=GREY, lw=1, ls=":")
            ax.set_ylim(bottom=0)
            ax.set_xlabel("rollout")
            headline(ax, label)
        axes[1].set_xlabel("rollout (band: from the lowest seed to the highest)")
        axes[0].legend(fontsize=8)
        return figure
