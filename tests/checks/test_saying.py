"""What a learner is told beside the verdict: what was printed, what is stale, what was given."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from gspo_edu import checks
from gspo_edu.checks import TASKS
from gspo_edu.checks.calling import HEARD

RIGHT = "return (((a - b) * m).sum(1) / m.sum(1)).exp()"
CHECK = "result = checks.sequence_ratio(mine)"


def judged(body: str) -> Any:
    found: dict[str, Any] = {}
    exec(f"def mine(a, b, m):\n    {body}", found)
    return TASKS["sequence_ratio"].check(found["mine"], seed=0)


def test_what_a_function_prints_is_shown_under_the_verdict() -> None:
    for body in (f"print('gap <', a.shape); {RIGHT}", "print('gap <', a.shape); return a.sum(1)"):
        result = judged(body)
        assert result.printed == "gap < torch.Size([1, 2])"
        assert "it printed  gap < torch.Size([1, 2])" in str(result)
        assert "gap &lt; torch" in result._repr_html_()


def test_printed_is_what_belongs_to_the_example_shown() -> None:
    result = judged(f"print(len(a)); {RIGHT} if len(a) != 3 else 'no'")
    assert result.printed == "3"


def test_printing_without_end_is_cut_off() -> None:
    result = judged("print('x' * 10000); " + RIGHT)
    assert result.printed == "x" * HEARD + " ..."


def test_printing_the_answer_is_not_returning_it() -> None:
    result = judged("print(a.sum(1))")
    assert result.started
    assert result.message.startswith("It prints, but returns None.")
    assert not judged("pass").started


def test_return_inside_a_loop_is_asked_about() -> None:
    result = judged("\n    for i in range(len(a)):\n        return (a[i] - b[i]).sum()")
    assert "Does return stand inside the loop" in result.message


def test_a_comma_after_return_is_asked_about() -> None:
    assert "comma after return" in judged(RIGHT + ",").message


def test_plain_numbers_do_not_mend_a_fault_of_the_gradient() -> None:
    def plain(a: Any, b: Any, A: Any, m: Any, low: float, high: float) -> float:
        s = (((a - b) * m).sum(1) / m.sum(1)).exp()
        return float(-torch.minimum(s * A, s.clamp(1 - low, 1 + high) * A).mean())

    assert checks.function("gspo_loss", plain).passed
    exhibit = checks.function("gspo_loss", plain, item="exhibit 5")
    assert exhibit.misconceptions == ("no_gradient",)
    assert "no gradient can flow" in exhibit.message


def test_a_list_of_tensors_is_no_list_of_plain_numbers() -> None:
    def routes(logits: Any, k: int) -> Any:
        best = logits.topk(k, dim=1)
        return best.indices, list(best.values.softmax(dim=1))

    result = checks.function("router_top_k", routes)
    assert result.passed
    assert "plain numbers" not in result.message


def test_gates_in_nested_lists_keep_their_gradient() -> None:
    def routes(logits: Any, k: int) -> Any:
        best = [row.topk(k) for row in logits]
        return [b.indices.tolist() for b in best], [list(b.values.softmax(0)) for b in best]

    result = checks.function("router_top_k", routes)
    assert "values and gradients" in result.message


def test_a_loop_over_plain_numbers_is_right_though_tensors_lose_their_gradient_in_it() -> None:
    def loop(p: Any, q: Any) -> list[Any]:
        return [math.exp(b - a) - (b - a) - 1 for a, b in zip(p, q, strict=True)]

    result = checks.function("k3", loop)
    assert result.passed
    assert "plain numbers" in result.message
    detached = checks.function("k3", lambda p, q: [(q - p).exp().detach() - (q - p) - 1])
    assert not detached.passed


def test_an_error_raised_by_the_check_names_no_line() -> None:
    def backward(a: Any, b: Any, A: Any, m: Any, low: float, high: float) -> Any:
        loss = (a * m).sum().exp()
        loss.backward()
        return loss

    result = TASKS["gspo_loss"].check(backward, seed=0)
    assert result.message.endswith("Return the loss; backward() is called for you.")
    assert "_engine_run_backward" not in result.message


def test_none_is_no_function_yet() -> None:
    result = TASKS["sequence_ratio"].check(None)
    assert not result.started
    assert "brackets" not in result.message
    assert "brackets" in TASKS["sequence_ratio"].check(1.0).message


@pytest.fixture
def shell(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GSPO_EDU_PROGRESS", str(tmp_path / "progress.json"))
    shell = InteractiveShell.instance()
    shell.run_cell('from gspo_edu import checks\nchecks.begin("05")')
    yield shell
    InteractiveShell.clear_instance()


def said(shell: Any, cell: str) -> str:
    assert shell.run_cell(cell).success
    return str(shell.user_ns["result"].message)


@pytest.mark.parametrize(
    ("cell", "error"), [("def mine(:", "SyntaxError"), ("def mine(*_): pass\n1 / 0", "ZeroDiv")]
)
def test_an_answer_from_before_an_error_is_called_so(shell: Any, cell: str, error: str) -> None:
    shell.run_cell(f"def mine(a, b, m):\n    {RIGHT}")
    assert "stopped" not in said(shell, CHECK)
    assert not shell.run_cell(cell).success
    assert f"The cell before stopped with {error}" in said(shell, CHECK)
    assert "stopped" not in said(shell, CHECK)


def test_a_decimal_comma_is_named(shell: Any) -> None:
    assert not shell.run_cell("my_s = 1,044").success
    assert "decimals have a point" in said(shell, 'result = checks.number("05 four tokens", None)')


def test_cells_are_watched_once_however_often_an_exercise_begins(shell: Any) -> None:
    before = len(shell.events.callbacks["post_run_cell"])
    shell.run_cell('checks.begin("02")')
    assert len(shell.events.callbacks["post_run_cell"]) == before
