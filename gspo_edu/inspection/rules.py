"""Which objectives are asked what they would clip, and with which ranges."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gspo_edu.inspection.columns import WIDEST
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.plots import LABELS

BOUNDS = ("clip_low", "clip_high", "cap", "log_clip_low", "log_clip_high")
# dr_grpo clips as grpo does, gspo_token as gspo if an answer has one advantage; sapo has no clip.
ASKED = ("ppo", "grpo", "dapo", "cispo", "gmpo", "gspo", "seq_unnormalised")
AT_A_RANGE = ("grpo", "gspo", "seq_unnormalised")
OF_LEVEL = {"token": "grpo", "sequence": "gspo"}


@dataclass(frozen=True)
class Rule:
    """An objective with the bounds that it clips at.

    Attributes:
        settings: its keywords, such as ``clip_low``.
        whose: where the bounds come from.
    """

    objective: str
    settings: dict[str, float]
    whose: str

    def named(self) -> dict[str, Any]:
        """Objective, settings and origin, as the report shows them."""
        return {"objective": self.objective, "settings": self.settings, "whose": self.whose}


def own_bounds(objective: str) -> dict[str, float]:
    """The bounds that an objective has by default: its paper's."""
    parameters = inspect.signature(OBJECTIVES[objective]).parameters
    return {name: parameters[name].default for name in BOUNDS if name in parameters}


def default_rules(settings: Mapping[str, Any], only: str | None = None) -> list[Rule]:
    """Every objective at its own range, GSPO at GRPO's, and the run's own where it is known."""
    if only is not None:
        return [Rule(only, own_bounds(only), "default")]
    rules = [Rule(name, own_bounds(name), "default") for name in ASKED]
    rules.append(Rule("gspo", own_bounds("grpo"), f"{LABELS['grpo']}'s"))
    if settings.get("level") in OF_LEVEL and {"clip_low", "clip_high"} <= set(settings):
        own = {name: settings[name] for name in ("clip_low", "clip_high")}
        rules.append(Rule(OF_LEVEL[settings["level"]], own, "this run"))
    return rules


def rules_at(ranges: Sequence[tuple[float, float]]) -> list[Rule]:
    """The objectives that can have any range, at these.

    Raises:
        ValueError: if one is no range.
    """
    for low, high in ranges:
        if not (0 <= low < 1 and 0 <= high <= WIDEST):
            raise ValueError(
                f"range is {low:g} {high:g}; expected LOW from 0 to below 1 and HIGH from 0 to "
                f"{WIDEST:g}, for [1 - LOW, 1 + HIGH]."
            )
    return [
        Rule(name, {"clip_low": low, "clip_high": high}, "given")
        for low, high in ranges
        for name in AT_A_RANGE
    ]


def bounds_text(settings: Mapping[str, float]) -> str:
    """A rule's bounds, short: ``3e-04 / 4e-04`` for a range, ``5`` for a cap."""
    return " / ".join(f"{value:g}" for value in settings.values())
