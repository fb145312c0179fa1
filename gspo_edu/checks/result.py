"""What a check says: passed or not, which misconception, and one example."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass

from torch import Tensor

LINE = 92  # characters, as in predictions
DIGITS = 6


@dataclass(frozen=True)
class Example:
    """One call: what the function was given, what was expected and what came back, as text."""

    inputs: tuple[tuple[str, str], ...]
    expected: str
    actual: str


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Attributes:
        task: name of the check, such as "sequence_ratio", or of the number asked for.
        passed: whether the answer is right.
        message: what to say to the learner, in whole sentences.
        misconceptions: keys of the misconceptions recognised, such as ("no_root",); empty if none.
        example: the simplest call that went wrong, if there is one to show.
        started: False while there is nothing to judge yet.
        printed: what the function printed in the call that is shown.
    """

    task: str
    passed: bool
    message: str
    misconceptions: tuple[str, ...] = ()
    example: Example | None = None
    started: bool = True
    printed: str = ""

    def show(self) -> None:
        """Show it in the notebook: a box, or text where there is no browser."""
        from IPython.display import display

        display(self)  # type: ignore[no-untyped-call]

    @property
    def verdict(self) -> str:
        """The first word of what is shown."""
        if self.passed:
            return "Right"
        return "Not it" if self.started else "Not started"

    def __str__(self) -> str:
        parts = [textwrap.fill(f"{self.task}: {self.verdict}. {self.message}", LINE)]
        rows = self._rows()
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            first, *more = value.splitlines() or [""]
            parts.append(f"    {name:<{width}}  {first}")
            parts += [f"    {'':<{width}}  {line}" for line in more]
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colour = {"Right": "#009E73", "Not it": "#D55E00"}.get(self.verdict, "#57606A")
        text = (
            f'<div style="border-left:4px solid {colour};padding:2px 10px;max-width:46em">'
            f"<b>{html.escape(self.task)}: {self.verdict}.</b> {html.escape(self.message)}"
        )
        rows = self._rows()
        if rows:
            cells = "".join(
                f'<tr><th scope="row" style="text-align:left">{html.escape(name)}</th>'
                f'<td style="text-align:left"><pre style="margin:0">{html.escape(value)}</pre></td>'
                "</tr>"
                for name, value in rows
            )
            text += f"<table>{cells}</table>"
        return text + "</div>"

    def _rows(self) -> list[tuple[str, str]]:
        """What is shown under the message: name and value."""
        rows: list[tuple[str, str]] = []
        if self.example:
            rows += [*self.example.inputs, ("expected", self.example.expected)]
            rows.append(("yours", self.example.actual))
        if self.printed:
            rows.append(("it printed", self.printed))
        return rows


def shown(value: object) -> str:
    """A number, a tensor or a setting in few digits."""
    if isinstance(value, Tensor):
        if value.dim() == 0:
            return shown(value.item())
        if value.dim() == 1:
            return "[" + ", ".join(shown(x) for x in value) + "]"
        return "\n".join(shown(row) for row in value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return str(value)
