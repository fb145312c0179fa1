"""What a reader is told about a computed answer."""

from __future__ import annotations

import pytest
import torch

from gspo_edu.questions import check_answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "Not filled in yet"),
        (0.5, "Right: 0.5."),
        (0.50004, "Right"),
        ("0.5", "Right"),
        (-0.5, "the sign is that of the loss"),
        (0.7, "0.7 is not it.\n  Compute it again"),
        ([0.5], "Right: 0.5."),
        (torch.tensor([[0.5]]), "Right: 0.5."),
        ([-0.5], "-0.5 is not it.\n  the sign is that of the loss"),
        (torch.tensor(0.5, requires_grad=True), "Right: 0.5."),
        (torch.tensor(0.5, dtype=torch.bfloat16), "Right: 0.5."),
        ([0.5, 0.5], "Expected one number, found 2 numbers."),
        ([], "Expected one number, found 0 numbers."),
    ],
)
def test_one_number(answer: object, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_answer(answer, 0.5, [(-0.5, "the sign is that of the loss")])
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "right", "said"),
    [
        (0.83, 5 / 6, "Nearly: give four digits.\n"),
        (0.0045, 0.0044721, "Nearly: give four digits.\n"),
        (-0.83, 5 / 6, "-0.83 is not it.\n  Compute it again"),
        (0.8333, 5 / 6, "Right"),
        (0.82, 5 / 6, "0.82 is not it.\n  Compute it again"),
        ([0.83, 1.0], [5 / 6, 1.0], "Nearly: give four digits.\n"),
        ([0.83, 1.1], [5 / 6, 1.0], "0.83, 1.1 is not it.\n  Compute it again"),
        (0.0, 0.0044721, "0 is not it.\n  Compute it again"),
    ],
)
def test_a_right_answer_with_too_few_digits(
    answer: object, right: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_answer(answer, right)  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith(said)


def test_a_known_mistake_near_the_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    check_answer(0.5028, 0.5, [(0.5028, "padding")])
    assert capsys.readouterr().out == "0.5028 is not it.\n  padding\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([1.0, -1.0], "Right: 1, -1."),
        (torch.tensor([1.0, -1.0]), "Right"),
        ([[1.0], [-1.0]], "Right: 1, -1."),
        ([torch.tensor(1.0, requires_grad=True), torch.tensor(-1.0).bfloat16()], "Right: 1, -1."),
        ([[0.5], [0.5]], "0.5, 0.5 is not it."),
        ([0.5, -0.5], "0.5, -0.5 is not it.\n  not divided by the std"),
        ([1.0], "Expected 2 numbers, found one number."),
        (1.0, "Expected 2 numbers, found one number."),
    ],
)
def test_several_numbers(answer: object, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_answer(answer, [1.0, -1.0], [([0.5, -0.5], "not divided by the std")])
    assert said in capsys.readouterr().out


def test_a_mistake_that_leads_to_the_right_number_is_no_mistake() -> None:
    with pytest.raises(ValueError, match="cannot be told"):
        check_answer(None, 0.5, [(0.5004, "too close")])


@pytest.mark.parametrize("bad", ["half", [1, "b"], float("nan"), [[1], [1, 2]]])
def test_an_answer_that_is_no_number_is_answered_in_words(
    bad: object, capsys: pytest.CaptureFixture[str]
) -> None:
    check_answer(bad, 0.5)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert said.startswith("The answer is")
    assert "expected" in said


@pytest.mark.parametrize(
    "bad", [10**400, [1, -(10**400)], 10**5000], ids=["one", "in a list", "huge"]
)
def test_a_number_beyond_the_number_format_is_named_briefly(
    bad: object, capsys: pytest.CaptureFixture[str]
) -> None:
    check_answer(bad, 0.5)  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith("The answer is beyond 1e308; expected numbers such")
