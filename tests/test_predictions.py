"""What a reader sees who predicts rightly, wrongly, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gspo_edu import predictions
from gspo_edu.predictions import predict, reconcile, summary_figure

CHOICES = {"a": "all four", "b": "two"}
MISSES = {"a": "Two of the four keep their gradient."}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSPO_EDU_PREDICTIONS", raising=False)
    monkeypatch.setattr(predictions, "_asked", {})
    monkeypatch.setattr(predictions, "_outcomes", {})
    monkeypatch.setattr(predictions, "_unsaved", {})
    return tmp_path / predictions.FILE_NAME


def asked(guess: object) -> None:
    predict("02 corners", "How many are clipped?", CHOICES, guess)
    reconcile("02 corners", "b", "two corners are clipped.", MISSES)


def test_no_prediction_shows_everything_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    asked(None)
    said = capsys.readouterr().out
    assert "  a) all four\n  b) two\n" in said
    assert "No prediction yet, and that is fine. The answer is b. Two corners are clipped." in said
    assert "Not a: Two of the four" in said
    assert not list(file.parent.iterdir())


def test_wrong_guess_gets_its_own_answer(capsys: pytest.CaptureFixture[str]) -> None:
    asked("a")
    assert "You predicted a; the answer is b. Two corners" in (said := capsys.readouterr().out)
    assert "What a misses: Two of the four keep" in said


def test_right_guess_is_taken_whatever_its_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    asked(" B) ")
    assert "You predicted b, and so it is. Two corners" in (said := capsys.readouterr().out)
    assert "misses" not in said


def test_a_guess_from_before_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    predict("02 corners", "?", CHOICES, "b")
    capsys.readouterr()
    predict("02 corners", "?", CHOICES)
    said = capsys.readouterr().out
    assert "Your prediction from before: b." in said
    assert "No prediction yet" not in said


def test_an_unknown_letter_is_answered_and_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    predict("02 corners", "?", CHOICES, "c")
    assert "Not kept: my_guess is 'c'; expected one of a, b." in capsys.readouterr().out
    assert not predictions.predictions_file().exists()


@pytest.mark.parametrize("bad", ["many", float("nan"), [1]])
def test_a_number_must_be_a_number(bad: object, capsys: pytest.CaptureFixture[str]) -> None:
    predict("02 loss", "?", None, bad)
    assert "expected a number" in capsys.readouterr().out
    assert not predictions.predictions_file().exists()


def test_a_number_beyond_the_number_format_is_named_briefly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    predict("02 loss", "?", None, 10**5000)
    said = capsys.readouterr().out
    assert "Not kept: the answer is beyond 1e308; expected a number" in said
    assert len(said) < 200


@pytest.mark.parametrize(
    ("guess", "said"),
    [
        (0.5, "and so it is"),
        (0.509, "and so it is"),
        (0.515, "too high"),
        (0.6, "too high"),
        ("0.1", "too low"),
    ],
)
def test_numbers(guess: object, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    predict("02 loss", "What is the loss?", guess=guess)
    reconcile("02 loss", 0.5, "The loss is 0.5.")
    assert said in capsys.readouterr().out


def test_a_number_with_a_known_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    misses = {0.25: "that is the share of p = 0.5."}
    for guess, said in [
        (0.25, "too low. It is 0.5.\n  What 0.25 misses: that is"),
        (None, "fine. It is 0.5.\n  Not 0.25: that is"),
        (0.1, "too low. It is 0.5.\n"),
    ]:
        predictions.predictions_file().unlink(missing_ok=True)
        predict("02 share", "?", guess=guess)
        reconcile("02 share", 0.5, "it is 0.5.", misses)
        assert said in (out := capsys.readouterr().out)
        assert ("misses" in out) == (guess == 0.25)


@pytest.mark.parametrize(
    ("found", "begins"),
    [
        ("two of five.", "Two of five."),
        ("a third of them.", "A third of them."),
        ("min(1, 0.28) = 0.28.", "min(1, 0.28) = 0.28."),
        ("s = 1.044.", "s = 1.044."),
        ("clip = 0.2.", "clip = 0.2."),
        ("arXiv 2512.01374.", "arXiv 2512.01374."),
        ("0.3, as it must be.", "0.3, as it must be."),
    ],
)
def test_words_get_a_capital_and_formulas_do_not(
    found: str, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    predict("02 corners", "?", CHOICES)
    reconcile("02 corners", "b", found, MISSES)
    assert f"The answer is b. {begins}" in capsys.readouterr().out


def test_every_wrong_option_needs_an_answer() -> None:
    predict("02 corners", "?", CHOICES)
    with pytest.raises(ValueError, match=r"except 'b': \['a'\]"):
        reconcile("02 corners", "b", "two.")
    with pytest.raises(ValueError, match="misses answers"):
        reconcile("02 corners", "d", "two.", MISSES)
    predict("02 share", "?")
    with pytest.raises(ValueError, match="none that is right"):
        reconcile("02 share", 0.5, "It is 0.5.", {0.501: "too close to tell."})
    with pytest.raises(ValueError, match="misses answers"):
        reconcile("02 corners", "b", "two.", {**MISSES, "b": "right, so nothing is missed"})


def test_reconcile_without_its_question_says_what_to_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reconcile("02 corners", "b", "two corners are clipped.", MISSES)
    said = capsys.readouterr().out
    assert said.startswith("No prediction under that name: 02 corners. Run the cell with my_guess")
    assert "a letter needs quotation marks" in said
    assert "clipped" not in said
    with pytest.raises(ValueError, match="lesson is '02'"):
        summary_figure("02")
    asked("b")
    assert "You predicted b, and so it is." in capsys.readouterr().out


def test_predictions_are_kept_between_sessions_and_lessons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    asked("a")
    predict("03 dead", "?", CHOICES, "b")
    assert json.loads(file.read_text(encoding="utf-8")) == {"02 corners": "a", "03 dead": "b"}
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    monkeypatch.setattr(predictions, "_asked", {})
    capsys.readouterr()
    asked(None)
    assert "You predicted a; the answer is b" in capsys.readouterr().out


def test_the_environment_can_name_the_file(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    other = file.with_name("other.json")
    monkeypatch.setenv("GSPO_EDU_PREDICTIONS", str(other))
    asked("b")
    assert other.exists()
    assert not file.exists()


@pytest.mark.parametrize("content", ["", "[1]", '[["02 corners", "a"]]', "null", "{", "\0"])
def test_a_spoilt_file_is_as_good_as_none(
    content: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(content, encoding="utf-8")
    asked(None)
    assert "No prediction yet" in capsys.readouterr().out
    asked("b")
    assert json.loads(file.read_text(encoding="utf-8")) == {"02 corners": "b"}


def test_the_summary_counts_and_draws_rings_where_the_guesses_were() -> None:
    asked("a")
    predict("02 loss", "?", guess=0.5)
    reconcile("02 loss", 0.5, "It is 0.5.")
    predict("02 third", "?", CHOICES)
    reconcile("02 third", "b", "two.", MISSES)
    predict("03 other lesson", "?", CHOICES, "b")
    reconcile("03 other lesson", "b", "two.", MISSES)
    figure, alt = summary_figure("02")
    assert alt == ("Lesson 02, 3 predictions against outcomes; 1 of 2 came out as predicted.")
    (ax,) = figure.axes
    rings = [tuple(map(float, line.get_xydata()[0])) for line in ax.lines if line.get_ms() > 10]
    dots = [tuple(map(float, line.get_xydata()[0])) for line in ax.lines if line.get_ms() < 10]
    assert rings == [(0, 0), (1, 1)]
    assert dots == [(1, 0), (1, 1), (1, 2)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["corners", "loss", "third"]


@pytest.mark.parametrize(("guess", "place"), [(0.125, 0), (0.5, 1), (8, 2), (None, None)])
def test_a_number_lies_on_its_side_of_the_outcome_and_is_written_there(
    guess: float | None, place: float | None
) -> None:
    predict("02 loss", "?", guess=guess)
    reconcile("02 loss", 0.5, "It is 0.5.")
    (ax,) = summary_figure("02")[0].axes
    rings = [float(line.get_xdata()[0]) for line in ax.lines if line.get_ms() > 10]
    assert rings == ([] if place is None else [place])
    written = {text.get_text(): text.xy[0] for text in ax.texts if text.get_text()[:1].isdigit()}
    assert written == {"0.5": 1} | ({} if guess is None else {f"{guess:g}": place})


def test_a_row_with_letters_has_no_number_line() -> None:
    def arrows() -> int:
        return sum(text.arrow_patch is not None for text in summary_figure("02")[0].axes[0].texts)

    asked("a")
    assert arrows() == 0
    predict("02 loss", "?")
    reconcile("02 loss", 0.5, "It is 0.5.")
    assert arrows() == 1


def test_a_summary_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="lesson is '02'"):
        summary_figure("02")


@pytest.mark.parametrize("stored", [None, ["a"], {"a": 1}, True, 0.5, "z", 10**400, float("nan")])
def test_what_is_no_guess_is_dropped_and_the_others_stay(
    stored: object, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(json.dumps({"02 corners": stored, "02 dead": "a"}), encoding="utf-8")
    asked(None)
    assert "No prediction yet, and that is fine." in capsys.readouterr().out
    assert "0 of" not in summary_figure("02")[1]
    asked("b")
    assert json.loads(file.read_text(encoding="utf-8")) == {"02 corners": "b", "02 dead": "a"}


@pytest.mark.parametrize("stored", [None, [1], "a", False, 10**400, float("inf")])
def test_what_is_no_number_is_no_guess_where_a_number_is_asked(
    stored: object, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(json.dumps({"02 loss": stored}), encoding="utf-8")
    predict("02 loss", "?")
    reconcile("02 loss", 0.5, "It is 0.5.")
    assert "No prediction yet, and that is fine. It is 0.5." in capsys.readouterr().out
    assert "No prediction yet" in summary_figure("02")[1]


def no_folder(file: Path) -> Path:
    return file.parent / "nowhere" / file.name


def a_folder(file: Path) -> Path:
    file.mkdir()
    return file


def under_a_file(file: Path) -> Path:
    file.touch()
    return file / file.name


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (no_folder, "No such file or directory"),
        (a_folder, "Is a directory"),
        (under_a_file, "Not a directory"),
    ],
)
def test_a_file_that_cannot_be_written_does_not_stop_the_lesson(
    obstacle: Callable[[Path], Path],
    reason: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = obstacle(file)
    monkeypatch.setenv("GSPO_EDU_PREDICTIONS", str(target))
    asked("a")
    predict("02 other", "?", CHOICES, "b")
    said = " ".join(capsys.readouterr().out.split())
    assert "Your prediction: a. Kept in this session only. The file " in said
    assert f"cannot be written: {reason}." in said
    assert "You predicted a; the answer is b." in said
    assert "0 of 1 came out as predicted" in summary_figure("02")[1]
    assert not list(file.parent.rglob(f"*{target.name}.*"))
    # Once the file can be written, it gets the guesses that were kept in memory.
    monkeypatch.setenv("GSPO_EDU_PREDICTIONS", str(file.with_name("sound.json")))
    predict("02 third", "?", CHOICES, "b")
    assert "Kept.\n" in capsys.readouterr().out
    kept = {"02 corners": "a", "02 other": "b", "02 third": "b"}
    assert json.loads(file.with_name("sound.json").read_text(encoding="utf-8")) == kept


def test_no_permission_to_write_does_not_stop_the_lesson(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(predictions.os, "replace", refuse)
    asked("b")
    assert "Permission denied" in (said := capsys.readouterr().out)
    assert "You predicted b, and so it is." in said
    assert not list(file.parent.iterdir())
