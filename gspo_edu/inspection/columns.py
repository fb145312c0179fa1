"""What a file of a run holds, column by column, and the checks that every format shares.

B answers, T positions, N layers, K experts per token. Only response tokens are kept: one flat array
per column, an answer's tokens next to each other, and the answers' lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# A rounded log-prob may come out just above 0; anything beyond this is no log-prob.
ABOVE_ZERO = 0.05
# Below, and further above logp_old, no policy samples: stand-ins for -inf such as -9999 are found.
LOWEST_LOG_PROB = -1e5
LARGEST_LOG_RATIO = 80.0  # float32 still holds its exponential
LARGEST_REWARD = 1e100  # its square is still finite
MOST_TOKENS = 2**28
LATER = "write every k-th update, or split the file"


class RunFileError(ValueError):
    """A file that cannot be inspected; the message says where, and how to mend it."""


@dataclass(frozen=True)
class Column:
    """One column: what it holds, in a file of rows and in a file of arrays.

    Attributes:
        in_rows: type of a row's value.
        in_arrays: shape of the array; padded (B, T) may as well be flat (tokens,) with ``lengths``.
        required: ``yes``, ``no``, or when.
        meaning: one sentence.
    """

    in_rows: str
    in_arrays: str
    required: str
    meaning: str

    @property
    def wanted(self) -> str:
        """``in_rows`` with its article, as errors say it."""
        if self.in_rows.startswith("true"):
            return self.in_rows
        return f"{'an' if self.in_rows.startswith('i') else 'a'} {self.in_rows}"


COLUMNS = {
    "logp": Column(
        "list of numbers",
        "(B, T)",
        "yes",
        "log-probs of the sampled tokens under the policy that is trained, before the update",
    ),
    "logp_old": Column(
        "list of numbers", "(B, T)", "yes", "the same under the policy that sampled: pi_old"
    ),
    "mask": Column(
        "list of 0 and 1",
        "(B, T)",
        "arrays that are padded, unless `lengths` is there",
        "1 on response tokens, 0 on padding and on tokens of an environment or tool",
    ),
    "lengths": Column(
        "-", "(B,)", "arrays that are flat", "tokens of each answer, before `mask` takes any out"
    ),
    "rewards": Column(
        "number", "(B,)", "for clip fractions, unless `advantages` is there", "reward of the answer"
    ),
    "group": Column(
        "integer or text",
        "(B,)",
        "with `rewards`",
        "equal for answers to one prompt that were sampled together",
    ),
    "advantages": Column(
        "number",
        "(B,)",
        "no",
        "advantage of the answer; taken from `rewards` and `group` if absent",
    ),
    "logp_rollout": Column(
        "list of numbers",
        "(B, T)",
        "no",
        "log-probs that the inference engine reported; null or NaN where it gave none",
    ),
    "finished": Column("true or false", "(B,)", "no", "false if the length limit cut the answer"),
    "update": Column("integer", "(B,)", "no", "number of the gradient update, from 1"),
    "routes": Column(
        "list of lists of lists",
        "(B, T, N, K)",
        "no",
        "experts of each token and layer as `logp` was computed; -1 where unknown",
    ),
    "routes_reference": Column(
        "list of lists of lists",
        "(B, T, N, K)",
        "with `routes`",
        "the same as `logp_old` was computed",
    ),
}
OF_TOKENS = ("logp", "logp_old", "mask", "logp_rollout")
OF_ANSWERS = ("rewards", "group", "advantages", "finished", "update")
OF_ROUTES = ("routes", "routes_reference")
WIDEST = 1e9  # of a range or limit: nothing comes near it, and float32 holds it
# What a file may say about the run beside its columns, with the type of each value.
SETTINGS: dict[str, type] = {
    "level": str,
    "clip_low": float,
    "clip_high": float,
    "max_length": int,
    "source": str,
}


@dataclass
class RouteCount:
    """How many expert slots differ from the reference's, counted part by part."""

    slots: int = 0
    changed: float = 0.0
    tokens: int = 0
    changed_tokens: float = 0.0

    def share(self) -> float:
        """Drift: changed slots over all slots."""
        return self.changed / max(self.slots, 1)


@dataclass
class RecordedRun:
    """The answers of a run, checked.

    Attributes:
        lengths: (B,) int64 response tokens of each answer.
        logp, logp_old: (tokens,) float32, or float64 where the file has it.
        logp_rollout: the same, NaN where the engine gave none; None if the file has none.
        rewards: (B,) float64, NaN where the file has none but has ``advantages``.
        advantages: (B,) float64.
        group: (B,) int64, numbered from 0.
        finished: (B,) bool.
        update: (B,) int64.
        routes: the count of changed experts, if the file has both kinds of routes.
        settings: what the file says about the run, see ``SETTINGS``.
    """

    lengths: Array
    logp: Array
    logp_old: Array
    logp_rollout: Array | None = None
    rewards: Array | None = None
    advantages: Array | None = None
    group: Array | None = None
    finished: Array | None = None
    update: Array | None = None
    routes: RouteCount | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Response tokens of all answers."""
        return len(self.logp)

    @property
    def starts(self) -> Array:
        """(B,) where each answer's tokens begin in the flat arrays."""
        return np.cumsum(self.lengths) - self.lengths


# How a format calls an answer: "row 3", or "line 4" of a file of lines.
Naming = Callable[[int], str]


def row_name(row: int) -> str:
    """The name of a row, counted from 0."""
    return f"row {row}"


def check_count(tokens: int) -> None:
    """Raise RunFileError if that many tokens would not fit into memory."""
    if tokens > MOST_TOKENS:
        raise RunFileError(
            f"the file holds {tokens:,} positions; inspect reads up to {MOST_TOKENS:,}: {LATER}."
        )


def check_present(names: set[str], known_rows: bool) -> None:
    """Raise RunFileError if a column is missing that nothing can be said without."""
    for name in ("logp", "logp_old"):
        if name not in names:
            given = ", ".join(sorted(names)) or "none"
            extra = "" if known_rows else " A run file holds one answer per row."
            raise RunFileError(
                f"column {name} is missing; the file has {given}. {name}: {COLUMNS[name].meaning}."
                f"{extra}"
            )
    for name, other in (("routes", "routes_reference"), ("routes_reference", "routes")):
        if name in names and other not in names:
            raise RunFileError(
                f"column {other} is missing, and {name} alone says nothing about drift; add the "
                "one or leave out the other."
            )


def checked(run: RecordedRun, name_of: Naming = row_name) -> RecordedRun:
    """``run`` itself, once its numbers have been looked at.

    Raises:
        RunFileError: naming the row and the column of the first value that cannot be.
    """
    if len(run) == 0 or run.tokens == 0:
        raise RunFileError(
            f"the file holds {len(run)} answers with {run.tokens} response tokens: nothing to "
            "inspect. Was it written before the first update ended, or is the mask all 0?"
        )
    for name in ("logp", "logp_old", "logp_rollout"):
        values = getattr(run, name)
        if values is not None:
            check_log_probs(name, values, run.lengths, name_of)
    check_log_ratios(run, name_of)
    check_rewards(run, name_of)
    return run


def check_log_probs(name: str, values: Array, lengths: Array, name_of: Naming) -> None:
    """Raise RunFileError at the first value that is no log-prob of a token."""
    missing = name == "logp_rollout"
    bad = (values > ABOVE_ZERO) | (values < LOWEST_LOG_PROB)
    if not missing:
        bad |= np.isnan(values)
    if not bad.any():
        return
    place = int(bad.argmax())
    where, value = token_name(place, lengths, name_of), values[place]
    if not np.isfinite(value) or value < 0:
        what = f"{value:g}; expected a finite log-prob, above {LOWEST_LOG_PROB:g}"
        mend = (
            "Mask the token out if it is padding, leave the row out, or find out what made it: a "
            "token that the policy cannot sample has log-prob -inf."
        )
    else:
        what = f"{value:g}; a log-prob is 0 or less"
        mend = "Are these probabilities? Take their logarithm. Losses? Change the sign."
    raise RunFileError(f"{name}, {where}: {what}. {mend}")


def check_log_ratios(run: RecordedRun, name_of: Naming) -> None:
    """Raise RunFileError at the first token that became likelier than any update can make it."""
    log_ratio = run.logp - run.logp_old
    bad = log_ratio > LARGEST_LOG_RATIO
    if bad.any():
        place = int(bad.argmax())
        raise RunFileError(
            f"logp, {token_name(place, run.lengths, name_of)}: {run.logp[place]:g}, where logp_old "
            f"has {run.logp_old[place]:g}. No policy samples a token of that logp_old: are both of "
            "the same tokens, or is it a stand-in for -inf, as -9999? Mask the token out, or leave "
            "the row out."
        )


def token_name(place: int, lengths: Array, name_of: Naming) -> str:
    """What the response token at ``place`` of the flat arrays is called."""
    ends = np.cumsum(lengths)
    row = int(np.searchsorted(ends, place, side="right"))
    return f"{name_of(row)}, response token {place - int(ends[row] - lengths[row])}"


def check_rewards(run: RecordedRun, name_of: Naming) -> None:
    """Raise RunFileError where a reward or advantage is missing or not finite."""
    for name, values in (("advantages", run.advantages), ("rewards", run.rewards)):
        if values is None:
            continue
        # With advantages at hand, a missing reward (an answer nobody could judge) does no harm.
        optional = name == "rewards" and run.advantages is not None
        bad = np.abs(values) > LARGEST_REWARD
        if not optional:
            bad |= np.isnan(values)
        if bad.any():
            row = int(bad.argmax())
            value = "missing (null or NaN)" if np.isnan(values[row]) else f"{values[row]}"
            raise RunFileError(
                f"{name}, {name_of(row)}: {value}; expected a finite number. Leave the answer out, "
                "give it a reward, or write the trainer's own advantages as column advantages."
            )
    if run.rewards is not None and run.group is None and run.advantages is None:
        raise RunFileError(
            "column group is missing, and rewards become advantages within groups. Add it (equal "
            "for answers to one prompt), or add advantages, or leave rewards out."
        )
    if run.group is not None and run.advantages is None and run.rewards is not None:
        sizes = np.bincount(run.group)
        if (sizes[run.group] < 2).any():
            row = int((sizes[run.group] < 2).argmax())
            raise RunFileError(
                f"group, {name_of(row)}: this group has one answer, so it has no baseline. Are the "
                "ids of prompts and not of answers? Otherwise add column advantages."
            )


def numbered(ids: Any) -> Array:
    """Group ids of any kind as int64, numbered from 0."""
    return np.unique(np.asarray(ids), return_inverse=True)[1].astype(np.int64).reshape(-1)


def run_settings(given: Any) -> dict[str, Any]:
    """The settings that a file carries, without what nobody here knows.

    Raises:
        RunFileError: if one has another type than it should.
    """
    if not isinstance(given, dict):
        raise RunFileError(f"the settings are {given!r}; expected one JSON object.")
    found: dict[str, Any] = {}
    for name, kind in SETTINGS.items():
        value = given.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = isinstance(value, str) if kind is str else number
        if not fits:
            raise RunFileError(f"setting {name} is {value!r}; expected {kind.__name__}.")
        if number and not -WIDEST <= value <= WIDEST:
            raise RunFileError(f"setting {name} is {value}; expected a number of up to {WIDEST:g}.")
        found[name] = kind(value)
    return found
