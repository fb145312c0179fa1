"""What public libraries compute where papers leave a choice: one function per convention.

Each function takes a ``Case`` and gives the number that the library named in its docstring would
print for it; ``conventions_table`` sets them side by side for the one batch of the lessons. There
is no second formula: the functions choose settings of ``advantages``, ``objectives``, ``ratios``
and ``metrics``.

Libraries change. Each row of the table names the option, and the bibliography file and version.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gspo_edu.advantages import group_advantages
from gspo_edu.metrics import k1, k2, k3, token_weighted_mean
from gspo_edu.objectives import cispo, dr_grpo, gmpo, grpo, gspo, ppo
from gspo_edu.one_batch import ONE_BATCH
from gspo_edu.ratios import product_ratio, sequence_ratio, token_ratio

CLIP_LOW, CLIP_HIGH = 0.2, 0.27
EPS_HIGH = 0.28  # a setting of CISPO that libraries read in two ways
BETA = 0.04  # weight of the KL, DeepSeekMath's
MAX_LEN = 8  # Dr. GRPO's constant: twice the longest answer of the one batch
REFERENCE = 0.25  # probability of each token of the one batch under a made-up reference policy


@dataclass(frozen=True)
class Case:
    """What a library is given: answers to prompts, before advantages are taken.

    Attributes:
        logp, logp_old, logp_ref: (B, T) under the policy, the sampling and the reference policy.
        mask: (B, T) true on response tokens.
        rewards: (B,)
        group: (B,) prompt of each answer.
    """

    logp: Tensor
    logp_old: Tensor
    logp_ref: Tensor
    mask: Tensor
    rewards: Tensor
    group: Tensor

    @property
    def policy(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four inputs of an objective, with the advantages of the GRPO and GSPO papers."""
        return self.logp, self.logp_old, advantages_paper(self), self.mask


def one_case() -> Case:
    """The one batch, with a reference policy that gives each of its tokens the same probability."""
    batch = ONE_BATCH.tensors()
    reference = torch.full_like(batch.logp, REFERENCE).log()
    return Case(batch.logp, batch.logp_old, reference, batch.mask, batch.rewards, batch.group)


# Advantages, (B,)


def advantages_paper(case: Case) -> Tensor:
    """(R - mean) / std with n (GRPO and GSPO write only std; this course takes n)."""
    return group_advantages(case.rewards, case.group)


def advantages_trl(case: Case) -> Tensor:
    """std with n - 1, plus 1e-4 (TRL)."""
    return group_advantages(case.rewards, case.group, ddof=1, eps=1e-4)


def advantages_areal(case: Case) -> Tensor:
    """std with n - 1, plus 1e-5 (AReaL's ``reward_norm``; its recipes then normalise the batch)."""
    return group_advantages(case.rewards, case.group, ddof=1, eps=1e-5)


def advantages_verl(case: Case) -> Tensor:
    """std with n - 1, plus 1e-6 (verl)."""
    return group_advantages(case.rewards, case.group, ddof=1, eps=1e-6)


def advantages_openrlhf(case: Case) -> Tensor:
    """std with n - 1, plus 1e-9 (OpenRLHF's ``group_norm``)."""
    return group_advantages(case.rewards, case.group, ddof=1, eps=1e-9)


def advantages_dr_grpo(case: Case) -> Tensor:
    """R - mean (Dr. GRPO)."""
    return group_advantages(case.rewards, case.group, normalize=False)


# Means of GRPO's token terms, and of GSPO's; the loss, 0-dim


def loss_per_answer(case: Case) -> Tensor:
    """Mean over each answer's tokens, then over answers (GRPO's formula)."""
    return grpo(*case.policy, clip_low=CLIP_LOW, clip_high=CLIP_HIGH).loss


def loss_per_token(case: Case) -> Tensor:
    """Mean over all tokens (DAPO's formula; the default of TRL, verl and OpenRLHF)."""
    return ppo(*case.policy, clip_low=CLIP_LOW, clip_high=CLIP_HIGH).loss


def loss_constant_length(case: Case) -> Tensor:
    """Sum over each answer's tokens over one constant, mean over answers (Dr. GRPO)."""
    return dr_grpo(*case.policy, max_len=MAX_LEN, clip_low=CLIP_LOW, clip_high=CLIP_HIGH).loss


def loss_token_sums(case: Case) -> Tensor:
    """Sum over each answer's tokens, mean over answers (verl's ``seq-mean-token-sum``)."""
    return dr_grpo(*case.policy, max_len=1, clip_low=CLIP_LOW, clip_high=CLIP_HIGH).loss


def loss_constant_without_mean(case: Case) -> Tensor:
    """Sum over all tokens over one constant, no mean (verl's ``seq-mean-token-sum-norm``)."""
    return len(case.mask) * loss_constant_length(case)


def gspo_per_answer(case: Case) -> Tensor:
    """Mean over answers (the paper's formula)."""
    return gspo(*case.policy).loss


def gspo_per_token(case: Case) -> Tensor:
    """Each answer counted once per token (AReaL; TRL with its default ``loss_type``)."""
    lengths = case.mask.sum(dim=1)
    rows = zip(*(x.split(1) for x in case.policy), strict=True)
    each = torch.stack([gspo(*row).loss for row in rows])
    return (each * lengths).sum() / lengths.sum()


# One ratio per answer, (B,)


def ratio_mean_of_logs(case: Case) -> Tensor:
    """exp of the mean log-ratio: the geometric mean (GSPO)."""
    return sequence_ratio(case.logp, case.logp_old, case.mask)


def ratio_sum_of_logs(case: Case) -> Tensor:
    """exp of the sum of log-ratios: the product (TRL's RLOOTrainer)."""
    return product_ratio(case.logp, case.logp_old, case.mask)


# The KL to the reference policy


def kl_k1(case: Case) -> Tensor:
    """Token mean of k1 (OpenRLHF's and AReaL's default; verl's "kl")."""
    return token_weighted_mean(k1(case.logp, case.logp_ref), case.mask)


def kl_k2(case: Case) -> Tensor:
    """Token mean of k2 (verl's "mse")."""
    return token_weighted_mean(k2(case.logp, case.logp_ref), case.mask)


def kl_k3(case: Case) -> Tensor:
    """Token mean of k3 (GRPO; verl's default in the loss, "low_var_kl")."""
    return token_weighted_mean(k3(case.logp, case.logp_ref), case.mask)


def kl_k3_weighted(case: Case) -> Tensor:
    """Token mean of ratio times k3 (TRL's default, ``use_bias_correction_kl``)."""
    ratio = token_ratio(case.logp, case.logp_old, case.mask)
    return token_weighted_mean(ratio * k3(case.logp, case.logp_ref), case.mask)


def advantages_kl_in_loss(case: Case) -> Tensor:
    """The KL is a term of the loss: the advantages, (B,), do not know of it (GRPO)."""
    return advantages_verl(case)


def advantages_kl_in_reward(case: Case) -> Tensor:
    """Each reward minus beta times its tokens' k1, then the group (verl, if so asked), (B,)."""
    penalty = (k1(case.logp_old, case.logp_ref) * case.mask).sum(dim=1)
    rewards = case.rewards - BETA * penalty
    return group_advantages(rewards, case.group, ddof=1, eps=1e-6)


# CISPO's weight on log pi before the mean, in units of the advantage, (B, T)


def cispo_relative_cap(case: Case) -> Tensor:
    """min(r, 1 + eps_high) (MiniMax-M1, which sets no lower bound)."""
    return _cispo_weight(case, cap=1 + EPS_HIGH)


def cispo_absolute_cap(case: Case) -> Tensor:
    """min(r, epsilon_high) (TRL, after ScaleRL, which recommends 5)."""
    return _cispo_weight(case, cap=EPS_HIGH)


def cispo_two_bounds(case: Case) -> Tensor:
    """clip(r, 1 - clip_ratio_low, 1 + clip_ratio_high) (verl)."""
    ratio = token_ratio(case.logp, case.logp_old, case.mask)
    return ratio.clamp(1 - CLIP_LOW, 1 + EPS_HIGH).where(case.mask, 0.0)


def _cispo_weight(case: Case, cap: float) -> Tensor:
    ones = torch.ones_like(case.rewards)
    return cispo(case.logp, case.logp_old, ones, case.mask, cap=cap, denominator=1).token_weight


# Clip fractions, 0-dim; those of GRPO with one epsilon on both sides, as CleanRL has it


def clip_share_of_tokens(case: Case) -> Tensor:
    """Tokens where min() chose the clipped branch, over all tokens (TRL, verl, OpenRLHF, AReaL)."""
    result = grpo(*case.policy, clip_low=CLIP_LOW, clip_high=CLIP_LOW)
    return result.metrics["clip_fraction_token_weighted"]


def clip_share_per_answer(case: Case) -> Tensor:
    """The same, averaged over each answer first (this course's ``clip_fraction_seq``)."""
    result = grpo(*case.policy, clip_low=CLIP_LOW, clip_high=CLIP_LOW)
    return result.metrics["clip_fraction_seq"]


def outside_share_of_tokens(case: Case) -> Tensor:
    """Tokens beyond the range, whatever the sign of A (CleanRL)."""
    result = ppo(*case.policy, clip_low=CLIP_LOW, clip_high=CLIP_LOW)
    return result.metrics["outside_fraction_token_weighted"]


def gmpo_clip_share(case: Case) -> Tensor:
    """GMPO's tokens without gradient, over all tokens."""
    return gmpo(*case.policy).metrics["clip_fraction_token_weighted"]


def gmpo_outside_share(case: Case) -> Tensor:
    """GMPO's tokens beyond the range on either side (verl's two clip fractions, added up)."""
    return gmpo(*case.policy).metrics["outside_fraction_token_weighted"]


def gspo_clip_share_of_answers(case: Case) -> Tensor:
    """Clipped answers over all answers (TRL, level "sequence")."""
    return gspo(*case.policy).metrics["clip_fraction_seq"]


def gspo_clip_share_of_tokens(case: Case) -> Tensor:
    """Clipped answers' tokens over all tokens (verl, OpenRLHF, AReaL)."""
    return gspo(*case.policy).metrics["clip_fraction_token_weighted"]
