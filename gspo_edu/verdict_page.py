"""docs/what-the-tiny-model-shows.md, written from the stored tables.

``python -m gspo_edu.verdict_page`` writes it anew after another study was stored.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from gspo_edu.made_page import write_page
from gspo_edu.stored_studies import stored_names, stored_study
from gspo_edu.verdict_rules import FAILS, HOLDS, LARGE_RATE, OPEN
from gspo_edu.verdicts import findings

PAGE = Path(__file__).resolve().parents[1] / "docs/what-the-tiny-model-shows.md"


def page() -> str:
    """The page's text."""
    found = findings()
    lines = [
        INTRODUCTION,
        "| statement | in miniature |",
        "|---|---|",
        *(f"| {one.statement} | {one.verdict} |" for one in found),
        "",
        "## The numbers",
    ]
    for one in found:
        made_by = f" *Studies:* {', '.join(one.studies)}." if one.studies else ""
        lines += [
            f"\n### {one.statement}\n",
            wrapped(f"**{one.verdict.capitalize()}.** {one.numbers}"),
            "",
            wrapped(f"*From* {one.said_by}. *Limits:* {one.limits}{made_by}"),
        ]
    lines += ["\n## How the studies were made\n", *made_with()]
    return "\n".join(lines) + "\n"


def wrapped(paragraph: str) -> str:
    """The paragraph in lines of at most 100 characters."""
    return textwrap.fill(paragraph, 100, break_on_hyphens=False)


def made_with() -> list[str]:
    """A table of the stored studies."""
    lines = [
        "| study | command | runs | seeds | CPU time of the runs |",
        "|---|---|---|---|---|",
    ]
    for name in stored_names():
        study = stored_study(name)
        distinct = {row["run"]: row["cpu_seconds"] for row in study.runs}
        seeds = len({row["seed"] for row in study.runs})
        minutes = sum(distinct.values()) / 60
        lines.append(
            f"| {name} | `{study.command}` | {len(distinct)} | {seeds} | {minutes:.0f} min |"
        )
    machine = stored_study(stored_names()[0]).description["machine"]
    about = (
        f"Machine: {machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, torch "
        f"{machine['torch']}. The runs that find rates and clip ranges come on top. Every run, "
        "every update and the complete configs are in `gspo_edu/studies/results/`; "
        "`gspo_edu.stored_studies` reads them."
    )
    return [*lines, "", wrapped(about)]


INTRODUCTION = f"""# What the tiny model shows

Statements about GSPO and GRPO, and what a mixture of experts of a tenth of a million to half a
million weights says about them. `python -m gspo_edu.verdict_page` writes this page from the stored
tables; a test compares.

A number such as *-0.056 (-0.091 to -0.021)* is a mean difference of held-out reward over paired
seeds, with a 95 % interval that is adjusted for all comparisons of its study (Bonferroni). From it
follow three verdicts:

- **{HOLDS}**: the interval lies on the statement's side of zero, in every study named;
- **{FAILS}**: it lies on the other side in one of them;
- **{OPEN}**: otherwise.

None of these is a verdict on models a hundred thousand times as large, with answers of thousands of
tokens. "Does not hold in miniature" means: here is a mixture of experts on which it is not so. The
calm setting has 8 experts, the stormy one 32; "lr tuned" is the rate that suits each arm, found on
other seeds; {LARGE_RATE} is large on purpose.

## Statements
"""


if __name__ == "__main__":
    write_page(PAGE, page)
