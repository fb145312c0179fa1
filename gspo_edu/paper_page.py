"""A page to fill in while reading a paper about a training method.

    page({"claim": "..."}, paper="Group Sequence Policy Optimization").save("gspo.html")

``page()`` alone is the empty page, to print. ``GSPO_ANSWERS`` fills it for arXiv 2507.18071.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from gspo_edu.files import write_atomically

LINES = 2  # empty lines per question on the printed page
STYLE = """
body { font-family: sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.05rem; margin: 1.2rem 0 .2rem; }
.ask { margin: .5rem 0 .1rem; }
.hint { color: #57606A; font-size: .85rem; }
.line { border-bottom: 1px solid #57606A; height: 1.5rem; }
.answer { margin: .1rem 0 .4rem 1rem; }
@page { size: A4; margin: 12mm 15mm; }
@media print {
  body { margin: 0; padding: 0; max-width: none; font-size: 9.5pt; }
  h1 { font-size: 13pt; margin: 0; }
  h2 { font-size: 10.5pt; margin: .5rem 0 0; }
  .ask { margin: .25rem 0 0; }
  .line { height: 1.35rem; }
  .answer { margin: 0 0 .1rem .8rem; }
  section { break-inside: avoid; }
}
"""


@dataclass(frozen=True)
class Question:
    """One question of the page.

    Attributes:
        key: its name, for answers.
        part: heading under which it stands.
        text: the question.
        hint: where to look.
    """

    key: str
    part: str
    text: str
    hint: str


QUESTIONS = (
    Question("claim", "The claim", "What is claimed, in one sentence of my own?", "abstract"),
    Question(
        "kind",
        "The claim",
        "Which of it is measured, which argued, which hoped?",
        "look for words such as intuitively, we envision, fundamentally",
    ),
    Question("who", "The evidence", "Who ran it, and who gains if it is true?", "authors, funding"),
    Question(
        "what",
        "The evidence",
        "Which models, tasks, answer lengths? How far is that from my case?",
        "section on experiments, appendix",
    ),
    Question(
        "metric",
        "The evidence",
        "What is on the axes? From where do they start? Held-out or training reward?",
        "figures and captions",
    ),
    Question(
        "seeds",
        "Chance",
        "How many runs per curve? What does the band mean? How were runs chosen?",
        "if it is not said, write: not said",
    ),
    Question(
        "tuning",
        "A fair comparison",
        "Were the settings of both methods chosen with the same care?",
        "learning rate, clip range, and how many values were tried for each",
    ),
    Question(
        "compute",
        "A fair comparison",
        "Same number of answers, updates, hours? Equal step size?",
        "horizontal axis; more clipping can mean smaller steps",
    ),
    Question(
        "ablation",
        "A fair comparison",
        "What else differs? Is each part taken out once?",
        "an ablation: the same recipe without one part",
    ),
    Question(
        "mechanism",
        "The reason",
        "Which reason is given, and which measurement would tell it from another reason?",
        "a better curve does not prove its explanation",
    ),
    Question(
        "others",
        "Since then",
        "Who repeated it, for and against? What do the authors use today?",
        "later papers, trackers of libraries; note where and when you read it",
    ),
    Question(
        "mine",
        "For me",
        "What would I have to see in my own run to keep it, or to drop it?",
        "write it down before the run",
    ),
)

GSPO_ANSWERS = {
    "claim": "Clipping one length-normalised ratio per answer trains more stably and better for "
    "the same compute than GRPO's ratio per token, above all on mixtures of experts.",
    "kind": "Measured: reward and benchmark curves, clipped shares, the effect of replay on GRPO. "
    "Argued: noise of token ratios, tolerance of engine mismatch (“intuitively”). Hoped: the "
    "last sentence of the conclusion.",
    "who": "Qwen's own team, whose models are trained with it.",
    "what": "One model fine-tuned from Qwen3-30B-A3B-Base (48 layers, experts), mathematics and "
    "code, long answers. A small dense model with short answers is far from that.",
    "metric": "Training reward and three benchmarks over training compute. Curves only, no table.",
    "seeds": "Not said.",
    "tuning": "GRPO's ranges are said to be carefully tuned; how many values were tried for either "
    "is not said. Learning rate: not said.",
    "compute": "Same compute and same prompts, as said. Step sizes are not matched, although GSPO "
    "clips a hundred times as much.",
    "ablation": "GRPO runs with replay, GSPO without. Range and kind of ratio are changed "
    "together; GSPO with a wide range, or with replay, is not shown.",
    "mechanism": "Noise of token ratios, and experts that change. To tell it from smaller steps: "
    "GRPO at GSPO's step size. To tell it from routes: the same on a dense model.",
    "others": "For: the table of the R3 paper (arXiv 2510.11370). Against: diverged runs in "
    "ScaleRL (arXiv 2510.13786, appendix A.18.4). The team's later recipe (arXiv 2512.01374) has "
    "token ratios, clipping and replay.",
    "mine": "Keep it if, with a range that I measured, several seeds end at least as high as GRPO "
    "at its own best rate. Drop it if the difference lies inside the interval and it costs "
    "anything.",
}


@dataclass(frozen=True)
class Page:
    """The page with the answers so far; shows itself in a notebook.

    Attributes:
        answers: {key of a question: text}.
        paper: title of the paper, may be empty.
    """

    answers: Mapping[str, str]
    paper: str = ""

    @property
    def parts(self) -> dict[str, list[Question]]:
        """{heading: its questions}, in order."""
        parts: dict[str, list[Question]] = {}
        for question in QUESTIONS:
            parts.setdefault(question.part, []).append(question)
        return parts

    @property
    def open_questions(self) -> list[str]:
        """Keys that have no answer yet."""
        return [question.key for question in QUESTIONS if not self.answers.get(question.key)]

    def markdown(self) -> str:
        """The page as Markdown."""
        lines = [f"# Reading page: {self.paper or '____________________'}", ""]
        for part, questions in self.parts.items():
            lines += [f"## {part}", ""]
            for question in questions:
                answer = self.answers.get(question.key) or "\n\n".join(["_" * 60] * LINES)
                lines += [f"**{question.text}** ({question.hint})", "", answer, ""]
        return "\n".join(lines)

    def html(self) -> str:
        """The page as a file of its own, to print."""
        title = escape(f"Reading page: {self.paper}" if self.paper else "Reading page")
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f"<style>{STYLE}</style></head><body>{self._repr_html_()}</body></html>\n"
        )

    def _repr_html_(self) -> str:
        title = escape(self.paper) or "____________________"
        found = [f"<h1>Reading page: {title}</h1>"]
        for part, questions in self.parts.items():
            found.append(f"<section><h2>{escape(part)}</h2>")
            for question in questions:
                found.append(
                    f'<p class="ask"><b>{escape(question.text)}</b> '
                    f'<span class="hint">({escape(question.hint)})</span></p>'
                )
                answer = self.answers.get(question.key)
                empty = '<div class="line" style="border-bottom:1px solid">&nbsp;</div>'
                found.append(f'<p class="answer">{escape(answer)}</p>' if answer else empty * LINES)
            found.append("</section>")
        return "".join(found)

    def __repr__(self) -> str:
        return self.markdown()

    def save(self, path: str | Path) -> Path:
        """Write the page, as HTML or Markdown by the name's ending, and return its path.

        Raises:
            ValueError: if the name ends with neither .html nor .md.
        """
        target = Path(path)
        kinds = {".html": self.html, ".md": self.markdown}
        if target.suffix not in kinds:
            raise ValueError(f"path is {str(path)!r}; expected a name that ends with .html or .md.")
        write_atomically(target, kinds[target.suffix]().encode())
        return target


def page(answers: Mapping[str, str | None] | None = None, paper: str = "") -> Page:
    """The page with some answers, or the empty one.

    Args:
        answers: {key of a question: text}; None and empty texts count as unanswered.
        paper: its title.

    Raises:
        ValueError: if a key is no question's.
    """
    given = {key: text.strip() for key, text in (answers or {}).items() if text and text.strip()}
    known = [question.key for question in QUESTIONS]
    if unknown := [key for key in answers or {} if key not in known]:
        raise ValueError(f"answers has {unknown[0]!r}; expected some of {', '.join(known)}.")
    return Page(given, paper)
