"""The one batch: four short answers that lessons 02, 03 and 05 work through by hand.

One prompt of the clock walk, four answers of 3, 2, 1 and 4 tokens. The end token of each answer is
left out, so that there is less to compute. The probabilities are round numbers chosen for the
lessons, not the output of a model: under PPO's range of 0.2 all four corners of the clip occur, the
second answer's ratios multiply to 1, and the fourth has the ratios 1.2, 0.9, 1.0 and 1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]

PROMPT = "6 7 3 4 ="
ANSWERS = (("9", "3", "7"), ("8", "0"), ("0",), ("1", "3", "8", "0"))
PROBABILITIES_OLD = ((0.2, 0.6, 0.5), (0.2, 0.4), (0.2,), (0.25, 0.5, 0.4, 0.5))
PROBABILITIES_NEW = ((0.3, 0.3, 0.5), (0.1, 0.8), (0.25,), (0.3, 0.45, 0.4, 0.55))
REWARDS = (1.0, 0.0, 0.5, 0.0)
# Rounded here, 0.3 / 0.25 lies just inside the bound 1.2 on every machine, by less than 1e-11.
DECIMALS = 11
# Junk in the padding, as in real batches: whoever forgets the mask gets another number.
PADDING_OLD, PADDING_NEW = 0.001, 0.002


class BatchTensors(NamedTuple):
    """The batch in torch: float64 (B, T), bool (B, T), float64 (B,) and int64 (B,)."""

    logp: Tensor
    logp_old: Tensor
    mask: Tensor
    rewards: Tensor
    group: Tensor


@dataclass(frozen=True, eq=False)
class OneBatch:
    """Four answers to one prompt; arrays are read-only, (B, T) = (4, 4) or (B,) = (4,).

    Attributes:
        prompt: start 6, goal 7, allowed steps 3 and 4.
        answers: token texts of each answer.
        prob_old, prob: probability of each token under the old and the new policy; in the padding
            finite junk.
        logp_old, logp: their logarithms in nats.
        mask: true on the answers' tokens, false in the padding.
        rewards: what the task's verifier gives.
        group: all 0, since there is one prompt.
    """

    prompt: str
    answers: tuple[tuple[str, ...], ...]
    prob_old: Floats
    prob: Floats
    logp_old: Floats
    logp: Floats
    mask: NDArray[np.bool_]
    rewards: Floats
    group: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(B,) tokens of each answer."""
        lengths: NDArray[np.int64] = self.mask.sum(axis=1, dtype=np.int64)
        return lengths

    def tensors(self) -> BatchTensors:
        """Fresh torch copies, which may be changed and given ``requires_grad_()``."""
        import torch

        arrays = (self.logp, self.logp_old, self.mask, self.rewards, self.group)
        return BatchTensors(*(torch.tensor(array) for array in arrays))

    def table(self) -> str:
        """The batch as text: one line per token, with both probabilities."""
        lines = [f"prompt {self.prompt}", "answer  token  p_old  p_new  reward"]
        for row, answer in enumerate(self.answers):
            for place, token in enumerate(answer):
                reward = f"{self.rewards[row]:6.1f}" if place == 0 else ""
                name = f"{row + 1:4d}" if place == 0 else "    "
                old, new = self.prob_old[row, place], self.prob[row, place]
                lines.append(f"{name} {token:>7} {old:8.2f} {new:6.2f}  {reward}".rstrip())
        return "\n".join(lines)


def _padded(rows: tuple[tuple[float, ...], ...], fill: float) -> Floats:
    width = max(map(len, rows))
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows], dtype=np.float64)


def _one_batch() -> OneBatch:
    prob_old = _padded(PROBABILITIES_OLD, PADDING_OLD)
    prob = _padded(PROBABILITIES_NEW, PADDING_NEW)
    mask = _padded(PROBABILITIES_OLD, 0.0) > 0
    batch = OneBatch(
        prompt=PROMPT,
        answers=ANSWERS,
        prob_old=prob_old,
        prob=prob,
        logp_old=np.log(prob_old).round(DECIMALS),
        logp=np.log(prob).round(DECIMALS),
        mask=mask,
        rewards=np.array(REWARDS),
        group=np.zeros(len(REWARDS), dtype=np.int64),
    )
    for value in vars(batch).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return batch


ONE_BATCH = _one_batch()
