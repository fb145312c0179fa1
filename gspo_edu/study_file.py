"""Study files: one TOML file says which runs belong to a study.

The keys are those of ``gspo-edu train``. A list makes the grid, an ``[[arm]]`` has its own values:

    rollouts = 30                      # the same in every run
    lr = ["tuned", 4e-3]               # a list: every arm at both
    seed = [0, 1, 2, 3, 4, 5, 6, 7]
    pairs = [["GSPO", "GRPO"]]         # differences to print; default: each arm minus the first

    [[arm]]
    name = "GRPO"
    objective = "grpo"

    [[arm]]
    name = "GSPO"
    objective = "gspo"
    clip_from = "quantiles"            # measure the clip range, then train with plain numbers

    [tuning]
    seed = [1000, 1001]                # none of the seeds above
    lr = [1e-3, 2e-3, 4e-3]

``lr = "tuned"`` takes the rate from ``tuning.lr`` with the highest mean held-out reward on the
tuning seeds, for each arm and setting by itself. ``lr = "matched"`` takes the rate at which the arm
moves as far per rollout as ``tuning.match`` does. Without arms, a list of objectives makes them.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gspo_edu.config import COMMAND, TYPES, TrainConfig, check_type, read_toml
from gspo_edu.plots import LABELS

STUDIES = Path(__file__).parent / "studies"
TUNED, MATCHED, QUANTILES = "tuned", "matched", "quantiles"
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
    """

    arm: str
    setting: Setting
    seed: int
    values: Mapping[str, Any] = field(hash=False)
    clip_from: str = ""

    @property
    def lr_from(self) -> str:
        """The rule that finds the learning rate, or empty."""
        return self.values["lr"] if self.values.get("lr") in RULES["lr"] else ""

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


def study_names() -> list[str]:
    """Names of the study files that ship with the package."""
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def read_study(word: str | Path) -> Study:
    """The study in a TOML file, or the shipped one of that name.

    Raises:
        ValueError: naming the file, the field and what is expected.
    """
    shipped = STUDIES / f"{word}.toml"
    path = shipped if shipped.exists() else Path(word)
    content = read_toml(path)
    try:
        tuning = read_tuning(content.pop("tuning", {}))
        arms = read_arms(content)
        pairs = content.pop("pairs", None)
        shared = {name: value for name, value in content.items() if name != "objective" or not arms}
        cells = tuple(
            cell
            for name, own in (arms or arms_of_objectives(content)).items()
            for cell in cells_of_arm(name, {**shared, **own}, tuning)
        )
        names = list(dict.fromkeys(cell.arm for cell in cells))
        source = path.stem if path == shipped else path.name
        text = path.read_text(encoding="utf-8")
        study = Study(path.stem, source, text, cells, read_pairs(pairs, names), tuning)
        check_rules(study)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return study


def read_tuning(values: Any) -> Tuning:
    """The ``[tuning]`` table."""
    if not isinstance(values, dict):
        raise ValueError(f"tuning is {values!r}; expected a table: a line [tuning].")
    known = {f.name: f for f in dataclasses.fields(Tuning)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"tuning has no field {name!r}; it has {', '.join(known)}.")
        where = f"tuning.{name}"
        if name in ("seed", "lr"):
            for one in as_list(where, value):
                check_type(where, one, TYPES[name])
        else:
            check_type(where, value, typing.get_type_hints(Tuning)[name])
    lists: dict[str, Any] = {
        name: tuple(as_list(f"tuning.{name}", values[name]))
        for name in ("seed", "lr")
        if name in values
    }
    tuning = Tuning(**{**values, **lists})
    if not 0 < tuning.tolerance < 1:
        raise ValueError(f"tuning.tolerance is {tuning.tolerance}; expected between 0 and 1.")
    if not 0 < tuning.outside < 1:
        raise ValueError(f"tuning.outside is {tuning.outside}; expected between 0 and 1.")
    if tuning.rollouts < 1:
        raise ValueError(f"tuning.rollouts is {tuning.rollouts}; expected 1 or more.")
    return tuning


def read_arms(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Takes the ``[[arm]]`` tables out of the file's content: name to own values."""
    tables = content.pop("arm", [])
    if not (isinstance(tables, list) and all(isinstance(table, dict) for table in tables)):
        raise ValueError("arm is no list of tables; expected a line [[arm]] before each arm.")
    if tables and "objective" in content:
        raise ValueError(
            "objective stands beside [[arm]]; expected it in each arm, or no arms at all."
        )
    arms: dict[str, dict[str, Any]] = {}
    for number, table in enumerate(tables, 1):
        name = table.pop("name", None)
        if not (isinstance(name, str) and name.strip()):
            raise ValueError(f"the name of arm {number} is {name!r}; expected a text.")
        if name in arms:
            raise ValueError(f"two arms are called {name!r}; expected a name of its own for each.")
        if isinstance(table.get("objective"), list):
            raise ValueError(f"arm {name!r}: objective is a list; expected one objective per arm.")
        arms[name] = table
    return arms


def arms_of_objectives(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """An arm for each of the objectives of a file without arms."""
    objectives = as_list("objective", content.get("objective", TrainConfig.objective))
    for name in objectives:
        if name not in LABELS:
            raise ValueError(f"objective is {name!r}; expected one of {', '.join(LABELS)}.")
    return {LABELS[name]: {"objective": name} for name in objectives}


def read_pairs(pairs: Any, arms: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of arms whose difference is reported."""
    if pairs is None:
        return tuple((name, arms[0]) for name in arms[1:])
    if not isinstance(pairs, list):
        raise ValueError(f'pairs is {pairs!r}; expected a list such as [["GSPO", "GRPO"]].')
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and pair[0] != pair[1]):
            raise ValueError(f"pairs names {pair!r}; expected the names of two different arms.")
        for name in pair:
            if name not in arms:
                raise ValueError(f"pairs names {name!r}; expected one of {', '.join(arms)}.")
    return tuple((first, second) for first, second in pairs)


def cells_of_arm(name: str, values: dict[str, Any], tuning: Tuning) -> list[Cell]:
    """The runs of one arm: the product of all its lists."""
    clip_from = values.pop("clip_from", "")
    check_arm(name, values, clip_from)
    try:
        lists = {known: as_list(known, value) for known, value in values.items()}
        seeds = lists.pop("seed", [TrainConfig.seed])
        listed = [known for known in lists if isinstance(values[known], list)]
        cells = []
        for choice in itertools.product(*lists.values()):
            chosen = dict(zip(lists, choice, strict=True))
            setting = tuple((known, chosen[known]) for known in listed)
            for seed in seeds:
                cell = Cell(name, setting, seed, chosen, clip_from)
                # A rule's rate is not known yet; any other value must fit from the beginning.
                cell.config(**({"lr": (tuning.lr or (1e-3,))[0]} if cell.lr_from else {}))
                cells.append(cell)
    except ValueError as error:
        raise ValueError(f"arm {name!r}: {error}") from None
    return cells


def check_arm(name: str, values: dict[str, Any], clip_from: Any) -> None:
    """Raise ValueError for unknown fields and rules, and for what contradicts a rule."""
    for known in values:
        if known not in TYPES:
            raise ValueError(
                f"arm {name!r}: there is no field {known!r}; `{COMMAND} config` lists all of them."
            )
    for rate in as_list("lr", values.get("lr", 0.0)):
        if isinstance(rate, str) and rate not in RULES["lr"]:
            raise ValueError(
                f'arm {name!r}: lr is {rate!r}; expected a number, "tuned" or "matched".'
            )
    if clip_from not in ("", *RULES["clip_from"]):
        raise ValueError(f'arm {name!r}: clip_from is {clip_from!r}; expected "quantiles".')
    if clip_from:
        if values.get("objective") not in ("gspo", "gspo_token"):
            raise ValueError(
                f"arm {name!r}: clip_from is {clip_from!r}, which measures sequence ratios; "
                "expected the objective gspo or gspo_token."
            )
        if {"clip_low", "clip_high"} & values.keys():
            raise ValueError(f"arm {name!r}: clip_from stands beside clip_low or clip_high.")


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
    groups: dict[Any, list[Cell]] = {}
    for other in study.cells:
        if other.arm == match and agree(other.setting, cell.setting, but="lr"):
            groups.setdefault(other.group, []).append(other)
    if len(groups) != 1:
        raise ValueError(
            f"arm {cell.arm!r}: {len(groups)} settings of {match!r} fit to "
            f"{in_words(cell.setting)}; expected one to match."
        )
    (reference,) = groups.values()
    if reference[0].lr_from == MATCHED:
        raise ValueError(f"tuning.match is {match!r}, whose lr is matched itself.")
    return reference


def agree(first: Setting, second: Setting, *, but: str = "") -> bool:
    """Whether two settings give the same value to every field that both list."""
    one, other = dict(first), dict(second)
    return all(one[name] == other[name] for name in one.keys() & other.keys() - {but})


def in_words(setting: Setting) -> str:
    """``lr 0.004, task_size 20``."""
    return ", ".join(f"{name} {value}" for name, value in setting) or "the only setting"


def as_list(name: str, value: Any) -> list[Any]:
    """``value`` as the list of its grid.

    Raises:
        ValueError: if the list is empty or names something twice.
    """
    if not isinstance(value, list):
        return [value]
    if not value:
        raise ValueError(f"{name} is an empty list; expected one or more values.")
    twice = [one for one in value if value.count(one) > 1]
    if twice:
        raise ValueError(f"{name} names {twice[0]!r} twice.")
    return value
