"""docs/conventions.md, written from the rows of ``conventions_table``.

``python -m gspo_edu.conventions_page`` writes it anew.
"""

from __future__ import annotations

from pathlib import Path

from gspo_edu.conventions_table import QUESTIONS, table
from gspo_edu.made_page import write_page

PAGE = Path(__file__).resolve().parents[1] / "docs/conventions.md"
INTRODUCTION = """# Conventions of public libraries, on one batch

Two libraries that both run "GRPO" can print different numbers for the same answers. Every row below
is one function of `gspo_edu.conventions`, evaluated on the one batch of the lessons (four answers
of 3, 2, 1 and 4 tokens). Rows under one heading answer the same question. `python -m
gspo_edu.conventions_page` writes this page; a test compares. Lesson 06 explains the rows.
"""


def page() -> str:
    """The page's text."""
    lines = [INTRODUCTION]
    for question, words in QUESTIONS.items():
        lines += [f"## {words}\n", "| topic | convention | number | who |", "|---|---|---|---|"]
        topic = ""
        for row in table(question):
            named = f"{row.topic}: {row.what}" if row.topic != topic else ""
            topic = row.topic
            cells = (named, row.choice, f"{row.number:.6f}", row.who)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    lines += ["## Sources\n", *(f"- {line}" for line in table().sources())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_page(PAGE, page)
