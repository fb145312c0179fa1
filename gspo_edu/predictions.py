"""Predict, run, reconcile: what the reader expected, kept beside what happened.

A lesson asks with ``predict`` before a surprising cell and answers with ``reconcile`` after it;
``summary_picture`` shows at the end of the lesson how the predictions fared. All of it is plain
text and works without JavaScript. The reader types into the cell; whoever types nothing reads on
and sees the outcomes all the same.

Predictions are kept in ``.predictions.json`` in the working directory, which is the notebook's
folder, or in the file that the environment variable ``GSPO_EDU_PREDICTIONS`` names; in memory if
that file cannot be written. Nothing is written before a prediction was typed.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_edu.files import write_atomically
from gspo_edu.plots import BLACK, GREY, ORANGE, new_figure, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Guess = str | float
FILE_NAME = ".predictions.json"
LINE = 92  # characters
WORD = re.compile(r"(a|[^\W\d_A-Z]{2,})[\s,.:;'’-]+(?!=)")
NOT_ASKED = "No prediction under that name"
DOT: dict[str, Any] = {"marker": "o", "ms": 8, "color": BLACK}
RING: dict[str, Any] = {"marker": "o", "ms": 15, "mfc": "none", "mec": ORANGE, "mew": 2}
BESIDE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9}


# The options of each question that this notebook has asked; None where a number is asked.
_asked: dict[str, Mapping[str, str] | None] = {}
_outcomes: dict[str, Guess] = {}
# Guesses that the file could not take.
_unsaved: dict[str, Guess] = {}


def predict(
    name: str, question: str, choices: Mapping[str, str] | None = None, guess: Any = None
) -> None:
    """Print a question and keep the reader's guess.

    Args:
        name: of the prediction, such as "02 outside"; its first word is the lesson.
        question: in one or two sentences.
        choices: {letter: text}; None asks for a number.
        guess: one of the letters, or a number; None while the reader has not decided. Anything
            else is answered in words and not kept: an error would stop the reader's notebook.
    """
    _asked[name] = choices
    say(question)
    for letter, text in (choices or {}).items():
        say(f"  {letter}) {text}")
    if guess is None:
        before = _guess(name)
        if before is not None:
            say(
                f"Your prediction from before: {_shown(before)}. To change it, put another after "
                "my_guess = and run the cell again."
            )
            return
        what = "a number" if choices is None else " or ".join(f'"{letter}"' for letter in choices)
        say(f"No prediction yet. Put {what} after my_guess = and run the cell again.")
        return
    try:
        checked = _letter(guess, choices) if choices else number(guess)
    except ValueError as error:
        say(f"Not kept: {error} Change it and run the cell again.")
        return
    problem = _keep(name, checked)
    where = " in this session only" if problem else ""
    print(f"Your prediction: {_shown(checked)}. Kept{where}.")
    if problem:
        say(f"  {problem}")


def reconcile(
    name: str,
    outcome: Guess,
    found: str,
    misses: Mapping[Any, str] | None = None,
) -> None:
    """Print how the prediction ``name`` fared, or that its question has not been asked.

    Args:
        name: as given to ``predict`` earlier in the notebook.
        outcome: the right letter, or the number.
        found: what happened, with its number, in one sentence.
        misses: what each wrong letter overlooks, or the mistake that leads to a number.

    Raises:
        ValueError: if a wrong option has no answer, or a right one has.
    """
    if name not in _asked:
        # A letter without quotation marks stops the asking cell with a NameError: the usual cause.
        print(f"{NOT_ASKED}: {name}. Run the cell with my_guess first, then this one again.")
        print('If that cell stopped with an error: a letter needs quotation marks, "c" and not c.')
        return
    choices, misses = _asked[name], misses or {}
    wrong = {*(choices or misses)} - {outcome}
    if {*misses} != wrong or any(is_hit(option, outcome) for option in misses):
        raise ValueError(
            f"misses answers {sorted(misses)}; expected an answer to every option of {name!r} "
            f"except {outcome!r}: {sorted(wrong)}, and none that is right."
        )
    _outcomes[name] = outcome
    guess = _guess(name)
    found = sentence(found)
    if guess is None:
        answer = f"The answer is {outcome}. " if choices else ""
        say(f"No prediction yet, and that is fine. {answer}{found}")
    elif is_hit(guess, outcome):
        say(f"You predicted {_shown(guess)}, and so it is. {found}")
    elif choices:
        say(f"You predicted {guess}; the answer is {outcome}. {found}")
    else:
        side = "too high" if float(guess) > float(outcome) else "too low"
        say(f"You predicted {_shown(guess)}, which is {side}. {found}")
    for option, text in misses.items():
        if guess is None:
            say(f"  Not {_shown(option)}: {text}")
        elif is_hit(guess, option):
            say(f"  What {_shown(guess)} misses: {text}")


def sentence(text: str) -> str:
    """With a capital if it begins with a word; "s = 1" and "min(1, r)" are formulas."""
    return text[:1].upper() + text[1:] if WORD.match(text) else text


def say(sentence: str) -> None:
    """Print a sentence in lines that fit into a notebook, which would break inside of words."""
    indent = " " * (len(sentence) - len(sentence.lstrip()))
    print(textwrap.fill(sentence, LINE, subsequent_indent=indent + "   " * bool(indent)))


def is_hit(guess: Guess, outcome: Guess) -> bool:
    """Whether a letter is the right one, or a number is right to 2 %."""
    if isinstance(guess, str) or isinstance(outcome, str):
        return guess == outcome
    return math.isclose(guess, outcome, rel_tol=0.02, abs_tol=1e-9)


def summary_picture(lesson: str) -> None:
    """Show the lesson's predictions (rings) against their outcomes (dots), one row each.

    Raises:
        ValueError: if nothing of the lesson has been reconciled in this notebook.
    """
    figure, alt = summary_figure(lesson)
    show(figure, alt)


def summary_figure(lesson: str) -> tuple[Figure, str]:
    """The picture of ``summary_picture`` and its alt text."""
    outcomes = {n: o for n, o in _outcomes.items() if n.split()[0] == lesson}
    if not outcomes:
        raise ValueError(f"lesson is {lesson!r}; expected one whose cells ran in this notebook.")
    guesses = {n: g for n in outcomes if (g := _guess(n)) is not None}
    hits = sum(is_hit(guess, outcomes[n]) for n, guess in guesses.items())
    figure, (ax,) = new_figure(width=7, height=0.7 + 0.35 * len(outcomes))
    for row, (name, outcome) in enumerate(outcomes.items()):
        guess, letters = guesses.get(name), list(_asked[name] or {})
        verdict = "no prediction yet"
        if guess is not None:
            hit = is_hit(guess, outcome)
            verdict = "as predicted" if hit else f"you predicted {_shown(guess)}"
        if letters:
            _draw_letters(ax, row, letters, outcome, guess)
        else:
            _draw_number(ax, row, float(outcome), guess)
        ax.annotate(verdict, (3.7, row), va="center", fontsize=9)
    ax.set_yticks(range(len(outcomes)), [n.partition(" ")[2] for n in outcomes], fontsize=9)
    ax.set(xlim=(-0.5, 5.5), ylim=(len(outcomes) - 0.4, -0.6), xticks=[])
    ax.spines[:].set_visible(False)
    ax.grid(visible=False)
    ax.tick_params(length=0)
    if any(not _asked[name] for name in outcomes):
        ax.set_xlabel("arrows: numbers, not to scale", loc="left", fontsize=8, color=GREY)
    score = f"{hits} of {len(guesses)} came out as predicted" if guesses else "No prediction yet"
    ax.set_title(f"Dot: outcome. Ring: your prediction. {score}.", loc="left", fontsize=10)
    return figure, f"Lesson {lesson}, {len(outcomes)} predictions against outcomes; {score}."


def _draw_letters(
    ax: Axes, row: int, letters: list[str], outcome: Guess, guess: Guess | None
) -> None:
    """One column per option."""
    ax.plot(letters.index(str(outcome)), row, **DOT)
    for at, letter in enumerate(letters):
        ax.annotate(letter, (at, row), (11, -4), textcoords="offset points", fontsize=9)
    if guess in letters:
        ax.plot(letters.index(str(guess)), row, **RING)


def _draw_number(ax: Axes, row: int, outcome: float, guess: Guess | None) -> None:
    """A number line, not to scale: a guess that is too low lies on the left."""
    ax.annotate(
        "", (3.2, row), (-0.2, row), arrowprops={"arrowstyle": "->", "color": GREY, "lw": 1}
    )
    if guess is not None:
        hit = is_hit(guess, outcome)
        place = 1.0 if hit else 0.0 if float(guess) < outcome else 2.0
        ax.plot(place, row, **RING)
        if not hit:
            ax.annotate(_shown(guess), (place, row), (11, 3), **BESIDE)
    ax.plot(1.0, row, **DOT)
    ax.annotate(_shown(outcome), (1.0, row), (11, 3), **BESIDE)


def predictions_file() -> Path:
    """Where this notebook's predictions are kept."""
    return Path(os.environ.get("GSPO_EDU_PREDICTIONS") or FILE_NAME)


def _guess(name: str) -> Guess | None:
    """The kept guess, unless it does not fit the question as it is asked now."""
    guess, choices = _kept().get(name), _asked[name]
    fits = guess in choices if choices else not isinstance(guess, str)
    return guess if fits else None


def _kept() -> dict[str, Guess]:
    try:
        stored = json.loads(predictions_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stored = {}
    found = stored.items() if isinstance(stored, dict) else ()
    return {name: guess for name, guess in found if _is_guess(guess)} | _unsaved


def _is_guess(stored: Any) -> bool:
    """Whether a hand-edited or spoilt file holds a guess there."""
    if isinstance(stored, int | float) and not isinstance(stored, bool):
        return abs(stored) <= sys.float_info.max
    return isinstance(stored, str)


def _keep(name: str, guess: Guess) -> str:
    """Write the guess to the file; if that fails keep it in memory and return what happened."""
    target = predictions_file()
    text = json.dumps({**_kept(), name: guess}, indent=1) + "\n"
    try:
        write_atomically(target, text.encode())
    except OSError as error:
        _unsaved[name] = guess
        return f"The file {target} cannot be written: {error.strerror}."
    _unsaved.clear()
    return ""


def _letter(guess: Any, choices: Mapping[str, str]) -> str:
    letter = str(guess).strip().lower().rstrip(".)")
    if letter not in choices:
        raise ValueError(f"my_guess is {guess!r}; expected one of {', '.join(choices)}.")
    return letter


def number(given: Any) -> float:
    """``given`` as a finite float, or ValueError."""
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    except OverflowError:
        raise ValueError("the answer is beyond 1e308; expected a number such as 0.25.") from None
    if not math.isfinite(value):
        raise ValueError(f"the answer is {given!r}; expected a number such as 0.25.")
    return value


def _shown(guess: Guess) -> str:
    return guess if isinstance(guess, str) else f"{guess:.6g}"
