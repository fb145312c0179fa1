"""What a study consists of: its cells, and the rules that find what they leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gspo_edu.config import TrainConfig

TUNED, MATCHED, QUANTILES = "tuned", "matched", "quantiles"
SAME_AS = "as "  # and then the name of an arm
RULES = {"lr": (TUNED, MATCHED), "clip_from": (QUANTILES,)}

Setting = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Tuning:
    """How what the study file leaves open is found, on seeds that no result is read from.

    Attributes:
        seed: the tuning seeds.
        lr: learning rates to choose from.
        match: name of the arm whose step size a matched arm takes over.
        tolerance: relative difference in step size that counts as matched.
        outside: share of answers that a measured clip range leaves outside. About half of them
            are clipped; the GSPO paper shows 0.15 clipped (arXiv 2507.18071, section 5).
        rollouts: rollouts per tuning seed from which a clip range is measured.
    """

    seed: tuple[int, ...] = ()
    lr: tuple[float, ...] = ()
    match: str | None = None
    tolerance: float = 0.1
    outside: float = 0.3
    rollouts: int = 8


@dataclass(frozen=True)
class Cell:
    """One run of the grid, as the file describes it.

    Attributes:
        arm: name of its arm.
        setting: name and value of each listed field but the seed, in the file's order.
        seed: its seed.
        values: all its values; ``lr`` may be a rule.
        clip_from: ``quantiles`` or empty.
        starts_from: name of the arm whose final policy, of the same seed, it starts from; or empty.
    """

    arm: str
    setting: Setting
    seed: int
    values: Mapping[str, Any] = field(hash=False)
    clip_from: str = ""
    starts_from: str = ""

    @property
    def lr_from(self) -> str:
        """The rule that finds the learning rate, or empty."""
        lr = self.values.get("lr")
        return lr if isinstance(lr, str) else ""

    @property
    def group(self) -> tuple[str, Setting]:
        """What runs that differ in the seed alone have in common."""
        return self.arm, self.setting

    def config(self, **changes: Any) -> TrainConfig:
        """Its complete settings, with those that a rule found.

        Raises:
            ValueError: if a value does not fit.
        """
        return TrainConfig(**{**self.values, "seed": self.seed, **changes})


@dataclass(frozen=True)
class Study:
    """A parsed study file.

    Attributes:
        name: the file's name without ``.toml``.
        source: how the command line names it: a shipped study's name, or the file's.
        text: the file itself.
        cells: its runs, seeds running fastest.
        pairs: (arm, arm) names; the differences "first minus second" are reported.
        tuning: how rules find their values.
    """

    name: str
    source: str
    text: str
    cells: tuple[Cell, ...]
    pairs: tuple[tuple[str, str], ...]
    tuning: Tuning

    @property
    def arms(self) -> list[str]:
        """Names of the arms in the file's order."""
        return list(dict.fromkeys(cell.arm for cell in self.cells))


def check_rules(study: Study) -> None:
    """Raise ValueError unless the tuning table holds what the cells' rules need."""
    tuning, cells = study.tuning, study.cells
    ruled = [cell for cell in cells if cell.lr_from or cell.clip_from]
    if ruled and not tuning.seed:
        raise ValueError("tuning.seed is missing; expected seeds on which the rules find values.")
    both = {cell.seed for cell in cells} & {*tuning.seed}
    if both:
        raise ValueError(
            f"tuning.seed names {min(both)}, which is a seed of the results too; expected others."
        )
    if any(cell.lr_from == TUNED for cell in cells) and not tuning.lr:
        raise ValueError('tuning.lr is missing; expected the rates that lr = "tuned" tries.')
    for cell in cells:
        if cell.lr_from == MATCHED:
            reference_group(study, cell)
        if cell.lr_from.startswith(SAME_AS):
            same_rate_group(study, cell)
        if cell.starts_from:
            earlier_cell(study, cell)
        config = cell.config(lr=TrainConfig.lr)
        measures = cell.clip_from or cell.lr_from == MATCHED
        if measures and config.mini_batches * config.epochs < 2:
            raise ValueError(
                f"arm {cell.arm!r}: with one update per rollout all ratios are 1, so there is "
                "nothing to measure for its rule; expected more mini_batches or epochs."
            )


def reference_group(study: Study, cell: Cell) -> list[Cell]:
    """The cells, one per seed, whose step size ``cell`` has to match.

    Raises:
        ValueError: if there is not exactly one such group.
    """
    match = study.tuning.match
    if match is None or match not in study.arms or match == cell.arm:
        raise ValueError(f"tuning.match is {match!r}; expected the name of another arm.")
    reference = only_group(study, cell, match)
    if reference[0].lr_from == MATCHED or reference[0].lr_from.startswith(SAME_AS):
        raise ValueError(f"tuning.match is {match!r}, whose lr depends on another arm's itself.")
    return reference


def only_group(study: Study, cell: Cell, arm: str) -> list[Cell]:
    """The cells of ``arm``, one per seed, that agree with ``cell`` in all but the rate.

    Raises:
        ValueError: if there is not exactly one such group.
    """
    groups: dict[Any, list[Cell]] = {}
    for other in study.cells:
        if other.arm == arm and agree(other.setting, cell.setting, but="lr"):
            groups.setdefault(other.group, []).append(other)
    if len(groups) != 1:
        raise ValueError(
            f"arm {cell.arm!r}: {len(groups)} settings of {arm!r} fit to "
            f"{in_words(cell.setting)}; expected one."
        )
    (group,) = groups.values()
    return group


def same_rate_group(study: Study, cell: Cell) -> tuple[str, Setting]:
    """The group whose learning rate, found by a rule, ``cell`` takes over.

    Raises:
        ValueError: if there is no such group, or its rate is written down.
    """
    arm = cell.lr_from.removeprefix(SAME_AS)
    if arm not in study.arms or arm == cell.arm:
        raise ValueError(
            f"arm {cell.arm!r}: lr is {cell.lr_from!r}; expected the name of another arm."
        )
    other = only_group(study, cell, arm)[0]
    if other.lr_from not in (TUNED, MATCHED):
        raise ValueError(
            f"arm {cell.arm!r}: lr is {cell.lr_from!r}, but no rule finds that arm's rate; "
            "expected the number itself."
        )
    return other.group


def earlier_cell(study: Study, cell: Cell) -> Cell:
    """The cell whose final policy ``cell`` starts from: of the arm it names and of its own seed.

    Raises:
        ValueError: if there is none, or what it does is not written down.
    """
    arm = cell.starts_from
    if arm not in study.arms or arm == cell.arm:
        raise ValueError(
            f"arm {cell.arm!r}: starts_from is {arm!r}; expected the name of another arm."
        )
    found = [other for other in only_group(study, cell, arm) if other.seed == cell.seed]
    if not found:
        raise ValueError(f"arm {cell.arm!r}: arm {arm!r} has no run with seed {cell.seed}.")
    if found[0].lr_from or found[0].clip_from or found[0].starts_from:
        raise ValueError(
            f"arm {cell.arm!r}: starts_from is {arm!r}, which follows a rule itself; expected an "
            "arm with all its values written down."
        )
    return found[0]


def agree(first: Setting, second: Setting, *, but: str = "") -> bool:
    """Whether two settings give the same value to every field that both list."""
    one, other = dict(first), dict(second)
    return all(one[name] == other[name] for name in one.keys() & other.keys() - {but})


def in_words(setting: Setting) -> str:
    """``lr 0.004, task_size 20``."""
    return ", ".join(f"{name} {value}" for name, value in setting) or "the only setting"
