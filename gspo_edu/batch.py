"""The one record that travels from the sampler to the optimiser.

B answers (rows), T response positions (right-padded), P prompts, N layers, K experts per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gspo_edu.ratios import checked_mask

if TYPE_CHECKING:
    from gspo_edu.moe.routes import RouteTrace


@dataclass(frozen=True)
class Rollout:
    """A batch of sampled answers with everything that training needs to know about them.

    Attributes:
        prompts: (P, T_prompt) token ids, all prompts of one length.
        tokens: (B, T) token ids of the answers, end token included, padded on the right.
        mask: (B, T) bool, true on response tokens (padding and environment tokens are false).
        logp_old: (B, T) float32 log-probs under the policy that sampled, at the sampling
            temperature; 0 where ``mask`` is false.
        rewards: (B,) float32; ``advantages.check_rewards`` refuses what is not finite.
        group: (B,) int64, row of ``prompts`` that each answer belongs to.
        finished: (B,) bool, false for answers that the length limit cut off.
        routes: the experts that the policy chose while sampling; None for dense models.
        logp_rollout: (B, T) log-probs that the engine itself reported, where ``logp_old`` holds the
            trainer's instead.

    Raises:
        ValueError: if the shapes do not fit each other, the mask holds anything but 0 and 1, or
            ``group`` is not int64 or names a prompt that is not there.
    """

    prompts: Tensor
    tokens: Tensor
    mask: Tensor
    logp_old: Tensor
    rewards: Tensor
    group: Tensor
    finished: Tensor
    routes: RouteTrace | None = None
    logp_rollout: Tensor | None = None

    def __post_init__(self) -> None:
        rows, width = self.tokens.shape
        wanted = {
            "mask": (rows, width),
            "logp_old": (rows, width),
            "rewards": (rows,),
            "group": (rows,),
            "finished": (rows,),
        }
        if self.logp_rollout is not None:
            wanted["logp_rollout"] = (rows, width)
        for name, shape in wanted.items():
            given = tuple(getattr(self, name).shape)
            if given != shape:
                raise ValueError(
                    f"Rollout.{name} has shape {given}; expected {shape}, "
                    f"because tokens has shape {(rows, width)}."
                )
        checked_mask(self.mask)
        if self.group.dtype != torch.int64:
            raise ValueError(f"Rollout.group is {self.group.dtype}; expected torch.int64.")
        known = (self.group >= 0) & (self.group < len(self.prompts))
        if not known.all():
            raise ValueError(
                f"Rollout.group names prompt {int(self.group[~known][0])}; "
                f"expected 0 to {len(self.prompts) - 1}, the rows of prompts."
            )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Tensor:
        """(B,) number of response tokens of each answer."""
        return self.mask.sum(dim=1)

    def rows(self, index: Tensor) -> Rollout:
        """The answers ``index`` (B',) with the prompts they need, renumbered."""
        used, group = torch.unique(self.group[index], return_inverse=True)
        return replace(
            self,
            prompts=self.prompts[used],
            tokens=self.tokens[index],
            mask=self.mask[index],
            logp_old=self.logp_old[index],
            rewards=self.rewards[index],
            group=group,
            finished=self.finished[index],
            routes=None if self.routes is None else self.routes.rows(index, used),
            logp_rollout=None if self.logp_rollout is None else self.logp_rollout[index],
        )


def mini_batch_rows(
    group: Tensor, mini_batches: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Row indices of each mini-batch: every answer once, sizes that differ by at most one.

    Groups are shuffled but stay together, so that the answers of a mini-batch share few prompts
    and each prompt is computed once (verl splits by prompts as well; TRL shuffles answers).

    Args:
        group: (B,) prompt of each answer.
        mini_batches: how many gradient updates one rollout feeds.
        generator: source of the shuffle.

    Yields:
        int64 tensors; 10 answers in four mini-batches give 3, 3, 2 and 2 rows.

    Raises:
        ValueError: if there are more mini-batches than answers, or fewer than one.
    """
    if not 1 <= mini_batches <= len(group):
        raise ValueError(
            f"mini_batches is {mini_batches}; expected 1 to {len(group)}, the number of answers."
        )
    place = torch.randperm(int(group.max()) + 1, generator=generator).to(group.device)
    order = torch.argsort(place[group], stable=True)
    yield from torch.tensor_split(order, mini_batches)
