"""What is claimed about GSPO, who showed it, and what speaks for and against it.

``claim("clip_paradox")`` shows one row of the ledger, ``overview()`` all claims with their
verdicts, ``ledger()`` everything. The rows are ``claims.json``.

No result of this course is typed there. A row names the study, the arms and the setting; the number
is read from the stored study when the row is shown. A study that is not stored says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from html import escape
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from gspo_edu.bibliography import source
from gspo_edu.stored_studies import stored_names, stored_study

FILE = Path(__file__).with_name("claims.json")
KINDS = {"P": "the method's own authors", "I": "others", "T": "tried in this course"}
STATUS = {
    "arithmetic": "true by calculation",
    "mixed": "evidence on both sides",
    "reported": "said by those who did it, once, without a control",
    "argued": "a reason is given, no measurement",
    "open": "nobody has shown it so far",
    "opinion": "praise or forecast",
    "wrong as written": "contradicted by its own source",
}
METRICS = {
    "clip_fraction_seq": "clipped share",
    "drift_per_update": "drift per update",
    "drift_per_rollout": "drift per rollout",
}


@dataclass(frozen=True)
class Evidence:
    """What one source says about a claim.

    Attributes:
        side: "for" or "against"; limits of a claim count as against.
        kind: one of ``KINDS``.
        source: key in the bibliography; None for what a lesson computes.
        where: section, table, figure or comment.
        says: in one or two sentences of our own.
        read: date of reading, as YYYY-MM-DD; empty for a lesson.
        through: empty if the place itself was read, else what it is known through.
    """

    side: str
    kind: str
    source: str | None
    where: str
    says: str
    read: str = ""
    through: str = ""

    def __str__(self) -> str:
        name = "this course" if self.source is None else short_name(self.source)
        known = f"known only through {self.through}; " if self.through else ""
        read = f" ({known}read {self.read})" if self.read else ""
        return f"[{self.kind}] {name}, {self.where}: {self.says}{read}"


@dataclass(frozen=True)
class Measurement:
    """A comparison of two arms in one of the course's own studies.

    Attributes:
        study: its name.
        first, second: the arms.
        setting: at which both were run.
        metric: a column of runs.csv; None for the paired difference of the final reward.
    """

    study: str
    first: str
    second: str
    setting: str
    metric: str | None = None

    @property
    def stored(self) -> bool:
        """Whether the study's results ship with the package."""
        return self.study in stored_names()

    def means(self) -> tuple[float, float]:
        """Mean over the seeds of ``metric`` in both arms.

        Raises:
            ValueError: if this is a paired difference, or the study is not stored.
        """
        if self.metric is None:
            raise ValueError("metric is None; expected a column of runs.csv.")
        study = stored_study(self.study)
        arms = (self.first, self.second)
        first, second = (np.mean(study.means(arm, self.setting, self.metric)) for arm in arms)
        return float(first), float(second)

    def __str__(self) -> str:
        where = f"[T] study {self.study}, {self.setting}"
        if self.metric is None:
            pair = stored_study(self.study).pair(self.first, self.second, self.setting)
            low, high = pair.adjusted
            return (
                f"{where}: {self.first} minus {self.second}, reward {pair.mean:+.3f} "
                f"({low:+.3f} to {high:+.3f}), above 0 on {pair.above} of "
                f"{len(pair.differences)} seeds: {pair.verdict}"
            )
        first, second = self.means()
        ratio = first / second if second else nan
        return (
            f"{where}: {METRICS[self.metric]} {first:.2%} under {self.first}, {second:.2%} under "
            f"{self.second}; {ratio:.2f} times as much"
        )


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        key: its name, such as ``clip_paradox``.
        claim: what is claimed, in one sentence of our own; others' words in “ ”.
        by: who claims it.
        evidence: what sources say.
        measured: what the course's studies are asked.
        status: one of ``STATUS``.
        verdict: what an honest reader may say.
        open: what nobody has shown, and which measurement would tell.
    """

    key: str
    claim: str
    by: str
    evidence: tuple[Evidence, ...]
    measured: tuple[Measurement, ...]
    status: str
    verdict: str
    open: str

    @property
    def kinds(self) -> str:
        """Letters of ``KINDS`` that speak to the claim, in that order."""
        found = {entry.kind for entry in self.evidence} | ({"T"} if self.here else set())
        return " ".join(kind for kind in KINDS if kind in found)

    @property
    def here(self) -> list[str]:
        """What the stored studies say, one sentence each."""
        return [str(one) for one in self.measured if one.stored]

    def side(self, name: str) -> list[str]:
        """The evidence on one side, "for" or "against", one sentence each."""
        return [str(entry) for entry in self.evidence if entry.side == name]

    @property
    def parts(self) -> dict[str, list[str]]:
        """{heading: entries}, without the empty ones."""
        parts = {
            "For": self.side("for"),
            "Against, or limits": self.side("against"),
            "Measured here": self.here,
            f"Verdict: {self.status}": [self.verdict],
            "Open": [self.open],
        }
        return {heading: entries for heading, entries in parts.items() if entries}

    def __str__(self) -> str:
        lines = [f"{self.claim} ({self.by})"]
        for heading, entries in self.parts.items():
            lines += [f"  {heading}", *(f"    - {entry}" for entry in entries)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = "".join(
            f'<dt style="font-weight:bold">{escape(heading)}</dt>'
            + "".join(f"<dd>{escape(entry)}</dd>" for entry in entries)
            for heading, entries in self.parts.items()
        )
        return f"<p><b>{escape(self.claim)}</b> ({escape(self.by)})</p><dl>{body}</dl>"


class Overview(Sequence[Claim]):
    """Claims as a short table: claim, who, kinds of evidence, verdict."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self.claims = tuple(claims)

    def __getitem__(self, index: Any) -> Any:
        return self.claims[index]

    def __len__(self) -> int:
        return len(self.claims)

    def __repr__(self) -> str:
        return "\n".join(f"{c.status:17}{c.kinds:6} {c.claim} ({c.by})" for c in self.claims)

    def _repr_html_(self) -> str:
        cell = 'style="text-align:left;vertical-align:top"'
        heads = ["Claim", "Claimed by", "Evidence", "Status", "Verdict"]
        rows = [
            f'<tr><th scope="row" {cell}>{escape(c.claim)}</th>'
            + "".join(f"<td {cell}>{escape(x)}</td>" for x in (c.by, c.kinds, c.status, c.verdict))
            + "</tr>"
            for c in self.claims
        ]
        head = "".join(f'<th scope="col" style="text-align:left">{text}</th>' for text in heads)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


class Ledger(Overview):
    """The same claims with all their evidence."""

    def __repr__(self) -> str:
        return "\n\n".join(str(claim) for claim in self.claims)

    def _repr_html_(self) -> str:
        return "".join(claim._repr_html_() for claim in self.claims)


def short_name(key: str) -> str:
    """``Zheng et al. 2025 (gspo)`` for a key of the bibliography."""
    entry = source(key)
    return f"{entry.authors} {entry.year} ({key})"


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the file's order."""
    return tuple(
        Claim(
            **{
                **entry,
                "evidence": tuple(Evidence(**one) for one in entry["evidence"]),
                "measured": tuple(Measurement(**one) for one in entry["measured"]),
            }
        )
        for entry in json.loads(FILE.read_text(encoding="utf-8"))
    )


def claim(key: str) -> Claim:
    """One claim.

    Raises:
        KeyError: if there is no such key; the message names the closest ones.
    """
    known = {entry.key: entry for entry in claims()}
    if key not in known:
        close = get_close_matches(key, known, n=3, cutoff=0.5) or list(known)
        raise KeyError(f"there is no claim {key!r}; expected for example {', '.join(close)}.")
    return known[key]


def overview() -> Overview:
    """All claims with their verdicts."""
    return Overview(claims())


def ledger() -> Ledger:
    """All claims with all their evidence."""
    return Ledger(claims())
