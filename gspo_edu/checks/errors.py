"""Errors of a learner's function, in words that help."""

from __future__ import annotations

import traceback

# What a message of Python, NumPy or torch contains, and what helps; the first that fits counts.
HINTS = (
    (
        "'NoneType' object has no attribute 'zero_'",
        "A gradient is None until the first backward().",
    ),
    ("NoneType", "Does something that it uses return None?"),
    (
        "Boolean value of Tensor",
        "min(), if, and, or take single numbers. For tensors: torch.minimum, torch.where, &, |.",
    ),
    (
        "truth value of an array",
        "min(), if, and, or take single numbers. For arrays: np.minimum, np.where, &, |.",
    ),
    (
        "numpy() on Tensor that requires grad",
        "NumPy computes no gradients. Use torch's function of that name; detach() would cut them.",
    ),
    (
        "The size of tensor a",
        "A sum along each row has shape (B,), a table (B, T): keepdim=True makes the sum (B, 1).",
    ),
    (
        "could not be broadcast together",
        "A sum along each row has shape (B,), a table (B, T): keepdims=True makes the sum (B, 1).",
    ),
    ("name 'np' is not defined", "Import it first: import numpy as np."),
    ("name 'math' is not defined", "Import it first: import math."),
    ("NameError: name", "Is it misspelt, or text without quotes?"),
    ("backward through the graph a second time", "Return the loss; backward() is called for you."),
    ("does not require grad", "A new tensor has lost its gradient: .requires_grad_() asks anew."),
    ("bitwise_xor", "A power is **; ^ is something else."),
    ("bitwise_", "& and | bind tighter than < and >: put each comparison into brackets."),
    ("to Python scalars", "math takes single numbers. For tensors: torch.exp, torch.log."),
    ("with a bool tensor", "mask is true or false. Its opposite is ~mask."),
)


def in_words(error: BaseException, caller: str) -> str:
    """The exception in a sentence, with the line of the learner's that raised it, and a hint.

    Args:
        error: what the function raised.
        caller: file whose frames are not the learner's.
    """
    try:
        said = str(error).strip().splitlines()
        words = f": {said[0][:200]}" if said else ""
        frames = traceback.extract_tb(error.__traceback__)
        mine = [frame for frame in frames if frame.filename != caller]
        own = bool(mine and mine[0].line) and "site-packages" not in mine[0].filename
        where = f" (line {mine[0].lineno}: {(mine[0].line or '')[:80]})" if own else ""
    except Exception:  # an exception whose text cannot be read
        words = where = ""
    text = f"{type(error).__name__}{words}"
    hint = next((f" {said}" for part, said in HINTS if part in text), "")
    return f"It stops with {type(error).__name__}{words}{where}.{hint}"
