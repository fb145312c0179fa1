"""Every objective of the course, side by side.

An objective is a function ``(logp, logp_old, advantages, mask, *, its own settings)`` that returns
an ``ObjectiveResult``. ``logp``, ``logp_old`` and ``mask`` are (B, T); advantages are (B,), (B, 1)
or (B, T). The loss is minimised. Its gradient flows through ``logp`` alone: all other inputs are
detached. What lies where the mask is 0, NaN included, reaches neither loss nor gradient.
"""

from collections.abc import Callable

from gspo_edu.objectives.grpo import cispo, dapo, dr_grpo, grpo
from gspo_edu.objectives.gspo import gspo, gspo_token, seq_unnormalised
from gspo_edu.objectives.ppo import ppo, ppo_dual_clip
from gspo_edu.objectives.smooth import gmpo, sapo
from gspo_edu.objectives.surrogate import ObjectiveResult, clipped_surrogate

OBJECTIVES: dict[str, Callable[..., ObjectiveResult]] = {
    objective.__name__: objective
    for objective in (
        ppo,
        ppo_dual_clip,
        grpo,
        dr_grpo,
        dapo,
        cispo,
        gspo,
        gspo_token,
        seq_unnormalised,
        gmpo,
        sapo,
    )
}

__all__ = [
    "OBJECTIVES",
    "ObjectiveResult",
    "cispo",
    "clipped_surrogate",
    "dapo",
    "dr_grpo",
    "gmpo",
    "grpo",
    "gspo",
    "gspo_token",
    "ppo",
    "ppo_dual_clip",
    "sapo",
    "seq_unnormalised",
]
