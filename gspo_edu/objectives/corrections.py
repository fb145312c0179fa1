"""Corrections for a sampler and a trainer that disagree about pi_old."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gspo_edu.ratios import sequence_ratio, token_ratio

SETTINGS = {"tis": {"cap"}, "icepop": {"low", "high"}}


def correction_weight(
    correction: Mapping[str, Any] | None,
    logp_old: Tensor,
    logp_rollout: Tensor | None,
    mask: Tensor,
    level: str = "token",
) -> Tensor:
    """Factor on each token's policy term, (B, T); (B, 1) at level "answer"; 1 without correction.

    rho = pi_old(trainer) / pi_old(sampler), detached; at level "answer" its geometric mean over the
    answer. ``{"kind": "tis", "cap": 2.0}`` truncates: min(rho, cap). ``{"kind": "icepop",
    "low": 0.5, "high": 5.0}`` drops what lies outside [low, high]; with low 0 that is masked
    importance sampling, which drops only what is too large. Both act on the policy term only, never
    on the KL term.

    Sources: TIS, Yao et al. 2025 (key ``tis`` of the bibliography); IcePop, arXiv 2510.18855.

    Raises:
        ValueError: if the kind or a setting is unknown or out of range, or ``logp_rollout`` is
            missing.
    """
    if correction is None:
        return torch.ones((), device=logp_old.device)
    settings = dict(correction)
    kind = settings.pop("kind", None)
    if kind not in SETTINGS or set(settings) != SETTINGS[kind]:
        raise ValueError(
            f"correction is {dict(correction)}; expected {{'kind': 'tis', 'cap': ...}} or "
            "{'kind': 'icepop', 'low': ..., 'high': ...}."
        )
    if kind == "tis" and not settings["cap"] > 0:
        raise ValueError(f"correction cap is {settings['cap']}; expected a positive number.")
    if kind == "icepop" and not 0 <= settings["low"] <= settings["high"]:
        raise ValueError(
            f"correction low, high are {settings['low']}, {settings['high']}; "
            "expected 0 <= low <= high."
        )
    if logp_rollout is None:
        raise ValueError(f"correction {kind!r} needs logp_rollout (B, T), the sampler's log-probs.")
    if level == "answer":
        rho = sequence_ratio(logp_old, logp_rollout, mask).detach().unsqueeze(1)
    else:
        rho = token_ratio(logp_old, logp_rollout, mask).detach()
    if kind == "tis":
        return rho.clamp(max=settings["cap"])
    return rho.where((rho >= settings["low"]) & (rho <= settings["high"]), 0.0)
