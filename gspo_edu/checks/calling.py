"""Calling a learner's function: whatever it does, an outcome comes back, and in time."""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gspo_edu.checks.errors import in_words

Work = TypeVar("Work")
SECONDS = 3.0
IMPORT_SECONDS = 60.0  # torch.optim's first use imports much
LARGEST = 100_000  # numbers in an output
HALF = (torch.float16, torch.bfloat16)
HEARD = 600  # characters of what a function prints


class Ear(io.StringIO):
    """Keeps the first ``HEARD`` characters: a loop may print without end."""

    def write(self, text: str) -> int:
        """Take as much of ``text`` as there is room for; its length."""
        super().write(text[: max(0, HEARD + 1 - self.tell())])
        return len(text)

    def words(self) -> str:
        """What was heard, with three dots if there was more."""
        heard = self.getvalue()
        return (heard[:HEARD] + " ..." if len(heard) > HEARD else heard).rstrip()


class TimeUp(BaseException):
    """Raised inside a function that takes too long. No ``except Exception`` catches it."""


class Unusable(Exception):
    """An output that is not made of numbers; the message says what it is."""


@dataclass(frozen=True)
class Outcome:
    """What one call gave.

    Attributes:
        value: float64 tensor without graph; None if there is none.
        gradient: of the summed, weighted output with respect to one argument; None if the output
            carries no graph or none was asked for.
        is_tensor: whether the output was a torch tensor of real numbers.
        half: whether it was in half precision.
        problem: why there is no value, in a sentence; empty if there is one.
        missing: True if the function is not written yet.
        late: True if it was stopped.
        printed: what the function printed, cut off after some lines.
    """

    value: Tensor | None = None
    gradient: Tensor | None = None
    is_tensor: bool = False
    half: bool = False
    problem: str = ""
    missing: bool = False
    late: bool = False
    printed: str = ""


def outcome_of(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    *,
    gradient: str | None = None,
    reading: Callable[[Any], Tensor] | None = None,
    seconds: float = SECONDS,
) -> Outcome:
    """Call ``function`` with copies of its arguments, in order; never raises.

    Args:
        function: the learner's.
        arguments: by name, passed by position; tensors, arrays, lists and numbers.
        gradient: name of the tensor argument whose gradient is wanted.
        reading: output to tensor, graph kept; ``numbers`` by default.
        seconds: time limit.
    """
    read = reading or numbers

    def work() -> Outcome:
        given = {name: _copy(value) for name, value in arguments.items()}
        leaf = given.get(gradient) if gradient else None
        if isinstance(leaf, Tensor):
            given[gradient or ""] = leaf.requires_grad_()
        output = function(*given.values())
        if output is None or output is ...:
            said = f"It returns {'None' if output is None else '...'}."
            return Outcome(missing=True, problem=said)
        value = read(output)
        slope = None
        if isinstance(leaf, Tensor) and value.requires_grad:
            (slope,) = torch.autograd.grad(weighted(value), leaf, allow_unused=True)
            slope = None if slope is None else slope.detach().double()
        return Outcome(
            value=value.detach(),
            gradient=slope,
            is_tensor=any(part.is_floating_point() for part in _tensors(output)),
            half=_kind(output) in HALF,
        )

    ear = Ear()
    return replace(_outcome(work, seconds, ear), printed=ear.words())


def _outcome(work: Callable[[], Outcome], seconds: float, ear: Ear) -> Outcome:
    """What ``work`` gives, or why it gives nothing."""
    try:
        return in_time(work, seconds, ear)
    except TimeUp:
        said = f"It was stopped after {seconds:g} seconds. Does a loop never end?"
        return Outcome(problem=said, late=True)
    except Unusable as error:
        return Outcome(problem=str(error))
    except BaseException as error:
        # torch raises the same with a text, for operations that it lacks.
        if isinstance(error, NotImplementedError) and not error.args:
            return Outcome(missing=True, problem="It raises NotImplementedError.")
        return Outcome(problem=in_words(error, __file__))


def weighted(value: Tensor) -> Tensor:
    """A sum in which no two entries count the same, so that one slope tells them apart."""
    weights = torch.arange(1, value.numel() + 1, dtype=value.dtype)
    return (value.reshape(-1) * weights).sum()


def in_time(work: Callable[[], Work], seconds: float, ear: Ear | None = None) -> Work:
    """What ``work()`` returns or raises; what it prints goes to ``ear``, warnings are dropped.

    Raises:
        TimeUp: if it has not ended after ``seconds``; it is then stopped if Python can stop it.
    """
    found: list[Work] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    with _heard_by(ear or Ear()):
        thread.start()
        thread.join(seconds)
        deadline = time.monotonic() + IMPORT_SECONDS
        while _imports(thread) and time.monotonic() < deadline:
            thread.join(seconds)
        if thread.is_alive():
            _stop(thread)
            raise TimeUp
    if failed:
        raise failed[0]
    return found[0]


@contextlib.contextmanager
def _heard_by(ear: Ear) -> Iterator[None]:
    with (
        contextlib.redirect_stdout(ear),
        contextlib.redirect_stderr(ear),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _imports(thread: threading.Thread) -> bool:
    """Whether the thread is importing: a module that is stopped half-way stays broken for good."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _stop(thread: threading.Thread, tries: int = 20) -> None:
    # A bare `except:` in a loop swallows one exception, hardly twenty.
    for _ in range(tries):
        if not thread.is_alive():
            return
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeUp)
        )
        time.sleep(0.02)


def numbers(output: Any) -> Tensor:
    """``output`` as a float64 tensor; the graph of a tensor is kept.

    Raises:
        Unusable: if it is not made of real numbers.
    """
    if isinstance(output, Tensor):
        if output.is_complex():
            raise Unusable("It returns complex numbers.")
        if output.numel() > LARGEST:
            raise Unusable(f"It returns {output.numel()} numbers.")
        if output.is_meta or output.is_nested:
            raise Unusable("It returns a tensor without plain numbers in it.")
        return (output if output.layout == torch.strided else output.to_dense()).double().cpu()
    if isinstance(output, str | bytes | dict | set) or callable(output):
        raise Unusable(f"It returns {_article(type(output).__name__)}, not numbers.")
    if isinstance(output, list | tuple) and _has_graph(output):
        try:
            return _stacked(output)
        except (RuntimeError, TypeError, ValueError):
            raise Unusable("It returns a list whose parts have different shapes.") from None
    try:
        array = np.asarray(_plain(output))
        if array.dtype.kind not in "biuf" or array.size > LARGEST:
            raise Unusable(f"It returns {_article(type(output).__name__)}, not numbers.")
        return torch.tensor(array.astype(np.float64))
    except (TypeError, ValueError, OverflowError, RecursionError):
        kind = _article(type(output).__name__)
        if isinstance(output, list | tuple) and len({_length(row) for row in output}) > 1:
            raise Unusable(f"It returns {kind} whose rows have different lengths.") from None
        raise Unusable(f"It returns {kind} that is not a table of numbers.") from None


def _tensors(output: Any) -> Iterator[Tensor]:
    """The tensors in an output, however deep in lists."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, list | tuple):
        for part in output:
            yield from _tensors(part)


def _has_graph(output: Any) -> bool:
    try:
        return any(part.requires_grad for part in _tensors(output))
    except RecursionError:  # a list inside itself
        return False


def _stacked(output: Any) -> Tensor:
    if isinstance(output, list | tuple):
        return torch.stack([_stacked(part) for part in output])
    return torch.as_tensor(output).double()


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | bytes):
        raise Unusable("It returns text among the numbers.")
    return value.tolist() if isinstance(value, Tensor) else value


def _length(row: Any) -> int | None:
    return len(row) if isinstance(row, list | tuple) else None


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _kind(output: Any) -> torch.dtype | None:
    if isinstance(output, Tensor):
        return output.dtype
    return torch.float16 if getattr(output, "dtype", None) == np.float16 else None


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
