"""From rewards to advantages: how much better an answer is than its baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gspo_edu.ratios import at_least_float32


def group_advantages(
    rewards: Tensor | Sequence[float | None],
    group_ids: Tensor | Sequence[int],
    *,
    normalize: bool = True,
    ddof: int = 0,
    eps: float = 0.0,
) -> Tensor:
    """(reward - group mean) / group std: the group replaces the critic.

    Source: GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1.2) and GSPO (arXiv 2507.18071,
    eq. 6). The defaults are the paper's formula. TRL uses ddof=1, eps=1e-4; verl ddof=1, eps=1e-6;
    Dr. GRPO (arXiv 2503.20783) normalize=False.

    Args:
        rewards: (B,) finite numbers; the arithmetic is in float64.
        group_ids: (B,) integers; equal ids mark answers to one prompt.
        normalize: divide by the group's standard deviation.
        ddof: 0 divides the squared deviations by n, 1 by n - 1.
        eps: added to the standard deviation, 0 or more.

    Returns:
        (B,) float32, or float64 for rewards in float64; exactly 0 for a group whose rewards are all
        equal.

    Raises:
        ValueError: if shapes differ, a reward is missing or not finite, a group has one answer, or
            ``ddof`` or ``eps`` is none of the above.
    """
    if ddof not in (0, 1) or not eps >= 0:
        raise ValueError(f"ddof is {ddof} and eps is {eps}; expected ddof 0 or 1 and eps >= 0.")
    if not isinstance(rewards, Tensor):
        rewards = [math.nan if reward is None else reward for reward in rewards]
    given = torch.as_tensor(rewards)
    given = given if given.is_floating_point() else given.to(torch.get_default_dtype())
    reward = torch.as_tensor(rewards, dtype=torch.float64)
    ids = torch.as_tensor(group_ids, device=reward.device)
    if reward.dim() != 1 or ids.shape != reward.shape:
        raise ValueError(
            "rewards and group_ids must both have shape (B,); "
            f"given {tuple(reward.shape)} and {tuple(ids.shape)}."
        )
    check_rewards(reward, ids)
    _, group, size = torch.unique(ids, return_inverse=True, return_counts=True)
    if (size < 2).any():
        alone = int(ids[(size < 2)[group]][0])
        raise ValueError(
            f"group_ids: group {alone} has one answer, so it has no baseline. Sample at least "
            "two answers per prompt (group_size >= 2) or subtract a baseline of your own."
        )
    mean = torch.zeros(len(size), dtype=reward.dtype, device=reward.device)
    mean = mean.index_add(0, group, reward) / size
    centred: Tensor = reward - mean[group]
    # Rounding can leave 0.1 - mean(0.1, 0.1, 0.1) != 0; a flat group must not be blown up to +-1.
    low = torch.full_like(mean, torch.inf).scatter_reduce(0, group, reward, "amin")
    high = torch.full_like(mean, -torch.inf).scatter_reduce(0, group, reward, "amax")
    centred = centred.where((low < high)[group], 0.0)
    if normalize:
        # Squares of very small or large deviations would leave the number format.
        unit = (high - low).where(low < high, 1.0)
        squares = (centred / unit[group]) ** 2
        variance = torch.zeros_like(mean).index_add(0, group, squares) / (size - ddof)
        std = unit * variance.sqrt() + eps
        centred = centred / std.where(low < high, 1.0)[group]
    return centred.to(at_least_float32(given).dtype)


def leave_one_out(
    rewards: Tensor | Sequence[float | None], group_ids: Tensor | Sequence[int]
) -> Tensor:
    """reward - mean reward of the other answers to the prompt, (B,) (RLOO, arXiv 2402.14740).

    Raises:
        ValueError: as ``group_advantages``.
    """
    centred = group_advantages(rewards, group_ids, normalize=False)
    ids = torch.as_tensor(group_ids, device=centred.device)
    _, group, size = torch.unique(ids, return_inverse=True, return_counts=True)
    size = size.to(centred.dtype)
    others: Tensor = (size / (size - 1))[group]
    return centred * others


def check_rewards(rewards: Tensor, group_ids: Tensor) -> None:
    """Refuse rewards that a broken verifier returned.

    Raises:
        ValueError: naming the first prompt and answer whose reward is NaN (or missing) or infinite.
    """
    broken = (~torch.isfinite(rewards)).nonzero()
    if len(broken):
        row = int(broken[0])
        group = int(group_ids[row])
        answer = int((group_ids[:row] == group).sum())
        raise ValueError(
            f"rewards: the reward of prompt {group}, answer {answer} (row {row}) is "
            f"{float(rewards[row])}; expected a finite number. Check the verifier on that answer."
        )
