"""From rewards to advantages: how much better an answer is than its baseline.

The baseline is the group (``group_advantages``, ``leave_one_out``) or a critic (``gae``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gspo_edu.ratios import at_least_float32, checked_mask


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


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, lam: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation, (advantages, value targets), each (B, T) and detached.

    delta_t = reward_t + gamma V_t+1 - V_t and A_t = delta_t + gamma lam A_t+1: the sum over l of
    (gamma lam)^l delta_t+l (arXiv 1506.02438, eq. 16), from an answer's last token backwards.
    ``lam=1`` is the return minus the value, ``lam=0`` the TD error. The targets are A_t + V_t, so
    the return for ``lam=1``.

    One step is one response token. Environment tokens between two of them (mask false) are part of
    what the next value has seen: they take no step and no discount. After an answer's last response
    token the value is 0, also where the length limit cut the answer, since its reward is final.

    Args:
        rewards: (B,), one per answer, paid with its last response token, as a verifier gives it; or
            (B, T), one per response token, as a judge of single steps gives it. (B, 1) means (B,).
        values: (B, T) the critic's guess before each token, at the token's own position.
        mask: (B, T), 1 on response tokens. What lies elsewhere, also NaN, is ignored; put the
            reward for a turn on the turn's last response token.
        gamma: discount per response token, 0 to 1.
        lam: weight of longer returns, 0 to 1.

    Returns:
        Float32, or float64 for values in float64; the arithmetic is in float64. 0 outside the mask.

    Raises:
        ValueError: if a shape does not fit, a reward or value on a response token is not finite, or
            ``gamma`` or ``lam`` is not between 0 and 1.
    """
    if not (0 <= gamma <= 1 and 0 <= lam <= 1):
        raise ValueError(f"gamma is {gamma} and lam is {lam}; expected 0 to 1 each.")
    inside = checked_mask(mask, values=values)
    value = values.detach().double().where(inside, 0.0)
    reward = reward_per_token(rewards.detach().double(), inside)
    for name, given in (("rewards", reward), ("values", value)):
        broken = (~torch.isfinite(given)).nonzero()
        if len(broken):
            row, place = broken[0].tolist()
            raise ValueError(
                f"{name}: answer {row}, token {place} has {float(given[row, place])}; expected a "
                "finite number."
            )
    advantage = torch.zeros_like(value)
    later_advantage = later_value = value.new_zeros(len(value))
    for place in reversed(range(value.shape[1])):
        here = inside[:, place]
        delta = reward[:, place] + gamma * later_value - value[:, place]
        later_advantage = torch.where(here, delta + gamma * lam * later_advantage, later_advantage)
        later_value = torch.where(here, value[:, place], later_value)
        advantage[:, place] = later_advantage.where(here, 0.0)
    kind = at_least_float32(values).dtype
    return advantage.to(kind), (advantage + value).to(kind)


def reward_per_token(rewards: Tensor, inside: Tensor) -> Tensor:
    """Rewards as (B, T), 0 outside: (B,) or (B, 1) are paid with each answer's last token.

    Raises:
        ValueError: for any other shape but (B, T).
    """
    rows, width = inside.shape
    if rewards.shape == (rows, width) and width > 1:
        return rewards.where(inside, 0.0)
    if rewards.shape not in {(rows,), (rows, 1)}:
        raise ValueError(
            f"rewards has shape {tuple(rewards.shape)}; expected ({rows},), ({rows}, 1) or "
            f"({rows}, {width}), because the mask has shape {(rows, width)}."
        )
    last = inside & (inside.flip(1).cumsum(dim=1).flip(1) == 1)
    return rewards.reshape(rows, 1).expand(rows, width).where(last, 0.0)


def standardized(advantages: Tensor, mask: Tensor, *, ddof: int = 0, eps: float = 0.0) -> Tensor:
    """(advantage - mean) / std over all response tokens, (B, T); 0 outside and where all are equal.

    What libraries do to a critic's advantages (verl divides by n - 1, OpenRLHF by n); it is in no
    equation of PPO or GAE.

    Args:
        advantages: (B, T).
        mask: (B, T), 1 on response tokens.
        ddof: 0 divides the squared deviations by n, 1 by n - 1.
        eps: added to the standard deviation.
    """
    inside = checked_mask(mask, advantages=advantages)
    chosen = advantages[inside].double()
    if len(chosen) < 2 or (chosen == chosen[0]).all():
        return torch.zeros_like(advantages)
    found = torch.zeros_like(advantages)
    centred = (chosen - chosen.mean()) / (chosen.std(correction=ddof) + eps)
    found[inside] = centred.to(found.dtype)
    return found


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
