"""Importance ratios: how much likelier the new policy makes what the old policy wrote.

Every function takes ``(logp, logp_old, mask)``, each (B, T): log-probs of the sampled tokens under
the policy being trained and under the policy that sampled them, and a mask that is 1 on response
tokens. The gradient flows through ``logp`` alone; ``logp_old`` is detached.

Log-probs are subtracted in float32 or better, before anything is rounded: in bfloat16 the whole
range of GSPO, [1 - 3e-4, 1 + 4e-4], would round to 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """``x`` itself if it is float32 or float64, else a float32 copy."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def checked_mask(mask: Tensor, **log_probs: Tensor) -> Tensor:
    """``mask`` (B, T) as bool, after checking that the log-probs have its shape.

    Raises:
        ValueError: if a shape differs, or the mask holds anything but 0 and 1 (true and false).
    """
    shapes = {name: tuple(given.shape) for name, given in log_probs.items()}
    shapes["mask"] = tuple(mask.shape)
    if mask.dim() != 2 or len(set(shapes.values())) > 1:
        given = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"Log-probs and mask must have one shape (B, T); given {given}.")
    inside = mask.bool()
    # A mask of true and false can hold nothing else, and to look would make a GPU wait.
    if mask.dtype != torch.bool and (inside != mask).any():
        odd = mask[inside != mask][0].item()
        raise ValueError(
            f"mask holds {odd:g}; expected 1 (or true) on response tokens and 0 (or false) "
            "elsewhere. It is not an additive mask."
        )
    return inside


def token_log_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """log r_t = log pi(y_t) - log pi_old(y_t), (B, T); 0 outside the mask, whatever lies there.

    Raises:
        ValueError: as ``checked_mask``.
    """
    inside = checked_mask(mask, logp=logp, logp_old=logp_old)
    # Selecting before subtracting keeps NaN in padding out of the value and of the gradient.
    new = at_least_float32(logp).where(inside, 0.0)
    old = at_least_float32(logp_old).detach().where(inside, 0.0)
    return new - old


def token_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """r_t = pi(y_t) / pi_old(y_t), (B, T); 0 outside the mask (PPO, arXiv 1707.06347, eq. 6)."""
    return token_log_ratio(logp, logp_old, mask).exp() * mask.bool()


def product_log_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """Sum of log r_t over the answer's tokens, (B,); 0 for an answer without tokens."""
    return token_log_ratio(logp, logp_old, mask).sum(dim=1)


def sequence_log_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """log s = mean of log r_t over the answer's tokens, (B,); 0 for an answer without tokens."""
    total = product_log_ratio(logp, logp_old, mask)
    return total / mask.bool().sum(dim=1).clamp(min=1)


def sequence_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """s = (pi(y) / pi_old(y))^(1/|y|), (B,): the geometric mean (GSPO, arXiv 2507.18071, eq. 7)."""
    return sequence_log_ratio(logp, logp_old, mask).exp()


def product_ratio(logp: Tensor, logp_old: Tensor, mask: Tensor) -> Tensor:
    """pi(y) / pi_old(y), (B,): the importance ratio of the whole answer, without the root."""
    return product_log_ratio(logp, logp_old, mask).exp()
