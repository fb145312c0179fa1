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
moves as far per rollout as ``tuning.match`` does, ``lr = "as NAME"`` the rate that was found for
another arm. ``starts_from = "NAME"`` lets every seed go on where that arm's run ended. Without
arms, a list of objectives makes them.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gspo_edu.config import COMMAND, TYPES, TrainConfig, check_type, read_toml
from gspo_edu.plots import LABELS
from gspo_edu.study_cells import RULES, SAME_AS, Cell, Study, Tuning, check_rules

STUDIES = Path(__file__).parent / "studies"


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
    clip_from, starts_from = values.pop("clip_from", ""), values.pop("starts_from", "")
    check_arm(name, values, clip_from)
    if not isinstance(starts_from, str) or (starts_from and "init" in values):
        raise ValueError(
            f"arm {name!r}: starts_from is {starts_from!r}; expected an arm's name, and no init."
        )
    try:
        lists = {known: as_list(known, value) for known, value in values.items()}
        seeds = lists.pop("seed", [TrainConfig.seed])
        listed = [known for known in lists if isinstance(values[known], list)]
        cells = []
        for choice in itertools.product(*lists.values()):
            chosen = dict(zip(lists, choice, strict=True))
            setting = tuple((known, chosen[known]) for known in listed)
            for seed in seeds:
                cell = Cell(name, setting, seed, chosen, clip_from, starts_from)
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
        if isinstance(rate, str) and rate not in RULES["lr"] and not rate.startswith(SAME_AS):
            raise ValueError(
                f'arm {name!r}: lr is {rate!r}; expected a number, "tuned", "matched" or "as ARM".'
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
