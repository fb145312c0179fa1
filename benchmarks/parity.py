"""Our objectives against TRL's own loss code and verl's formulas: loss and gradient.

    python benchmarks/parity.py             print the table
    python benchmarks/parity.py --write     and put it into docs/parity.md

Each row hands the same log-probs, advantages and mask to both sides: four batches of eight answers
of 1 to 12 tokens, advantages of both signs, ratios far and near, so that some are clipped above,
some below, some not at all. Differences are relative: a gradient's to its largest entry, a loss's
to the loss or, where terms of both signs nearly cancel, to the sum of the gradient's entries
without their signs. TRL must be installed (the extra ``real``); verl need not be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import parity_trl
import parity_verl as verl
import torch
from torch import Tensor

from gspo_edu.metrics import k3
from gspo_edu.objectives import (
    cispo,
    dapo,
    dr_grpo,
    gmpo,
    grpo,
    gspo,
    gspo_token,
    ppo,
    ppo_dual_clip,
    sapo,
)
from gspo_edu.ratios import sequence_ratio, token_ratio

PAGE = Path(__file__).resolve().parents[1] / "docs/parity.md"
BEGIN, END = "<!-- begin: made by benchmarks/parity.py -->\n", "<!-- end -->"
LIMITS = {"float32": 1e-6, "float64": 1e-12}
# verl adds 1e-8 to an answer's length, and TRL keeps SAPO's temperatures in float32.
ROUNDED = {"float32": 1e-6, "float64": 2e-7}
LIMIT = 16  # length limit of answers, for Dr. GRPO
BETA = 0.04
TOKEN = {"clip_low": 0.2, "clip_high": 0.27}
ANSWER = {"clip_low": 3e-4, "clip_high": 4e-4}


@dataclass(frozen=True)
class Batch:
    """What an objective is given; (B, T), advantages and rewards (B,).

    Attributes:
        logp, logp_old, logp_ref, logp_rollout: under the policy, the sampling policy as the trainer
            computes it, the reference policy, and the sampling policy as its engine reported it.
    """

    logp: Tensor
    logp_old: Tensor
    logp_ref: Tensor
    logp_rollout: Tensor
    advantages: Tensor
    mask: Tensor

    @property
    def given(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four arguments that all objectives share."""
        return self.logp, self.logp_old, self.advantages, self.mask

    @property
    def per_token(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same with the advantages as (B, T)."""
        advantages = self.advantages.unsqueeze(1).expand_as(self.logp)
        return self.logp, self.logp_old, advantages, self.mask

    def rows(self, rows: slice) -> Batch:
        """Some of the answers."""
        return Batch(**{name: value[rows] for name, value in vars(self).items()})

    def scaled(self, factor: Tensor | float) -> Batch:
        """The same answers with advantages times ``factor``."""
        return replace(self, advantages=self.advantages * factor)


def batches(kind: torch.dtype) -> list[Batch]:
    """Four ragged batches whose log-ratios have the standard deviations 0.4, 0.02, 0.002, 0."""
    made = []
    for seed, spread in enumerate((0.4, 0.02, 0.002, 0.0)):
        dice = torch.Generator().manual_seed(seed)
        like = {"generator": dice, "dtype": torch.float64}
        lengths = torch.tensor([1, 12, 5, 9, 2, 7, 12, 3])
        mask = torch.arange(12) < lengths.unsqueeze(1)
        old = -3 * torch.rand(8, 12, **like) - 0.05
        logp = old + spread * torch.randn(8, 12, **like)
        made.append(
            Batch(
                logp=logp.to(kind, copy=True).requires_grad_(),
                logp_old=old.to(kind),
                logp_ref=(logp + 0.2 * torch.randn(8, 12, **like)).to(kind),
                logp_rollout=(old + 0.5 * torch.randn(8, 12, **like)).to(kind),
                advantages=(torch.randn(8, **like) + 0.3).to(kind),
                mask=mask.to(kind),
            )
        )
    return made


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        objective: name in ``OBJECTIVES``.
        library: "TRL" or "verl".
        settings: theirs, in their words.
        ours: call on our side, in words.
        our_loss, their_loss: 0-dim losses with graph.
    """

    objective: str
    library: str
    settings: str
    ours: str
    our_loss: Callable[[Batch], Tensor]
    their_loss: Callable[[Batch], Tensor]

    def differences(self, kind: torch.dtype) -> tuple[float, float]:
        """Largest relative difference of the loss and of the gradient over all batches."""
        worst_loss = worst_gradient = 0.0
        for batch in batches(kind):
            losses = [self.our_loss(batch), self.their_loss(batch)]
            gradients = [torch.autograd.grad(loss, batch.logp)[0] for loss in losses]
            ours, theirs = (loss.item() for loss in losses)
            size = max(abs(ours), gradients[0].abs().sum().item())
            worst_loss = max(worst_loss, abs(ours - theirs) / size)
            apart = (gradients[0] - gradients[1]).abs().max() / gradients[0].abs().max()
            worst_gradient = max(worst_gradient, apart.item())
        return worst_loss, worst_gradient


def words(settings: Mapping[str, Any]) -> str:
    """Settings as one would write them in Python."""
    shown = {
        name: f'"{value}"' if isinstance(value, str) else value for name, value in settings.items()
    }
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def trl_row(
    objective: str,
    settings: dict[str, Any],
    ours: str,
    our_loss: Callable[[Batch], Tensor],
    **more: Any,
) -> Row:
    """A row whose other side is TRL's own code."""

    def their_loss(batch: Batch) -> Tensor:
        return parity_trl.loss(settings, *batch.given, logp_ref=batch.logp_ref, **more)[0]

    return Row(objective, "TRL", words(settings), ours, our_loss, their_loss)


def length_weighted(batch: Batch) -> Batch:
    """Advantages times length over the mean length: what a token mean makes of answers."""
    lengths = batch.mask.sum(dim=1)
    return batch.scaled(lengths / lengths.mean())


def weighted_kl(batch: Batch, ratio: Tensor) -> Tensor:
    """Mean per answer of ratio times k3, TRL's default KL term."""
    term = ratio * k3(batch.logp, batch.logp_ref) * batch.mask
    return (term.sum(dim=1) / batch.mask.sum(dim=1)).mean()


def trl_token_rows() -> list[Row]:
    """One ratio per token."""
    clip = {"epsilon": 0.2, "epsilon_high": 0.27}
    kl = {"beta": BETA, "use_bias_correction_kl": False}

    def with_weighted_kl(b: Batch) -> Tensor:
        ratio = token_ratio(b.logp, b.logp_old, b.mask)
        return grpo(*b.given, **TOKEN).loss + BETA * weighted_kl(b, ratio)

    return [
        trl_row("grpo", {"loss_type": "grpo", **clip}, "", lambda b: grpo(*b.given, **TOKEN).loss),
        trl_row(
            "grpo",
            {"loss_type": "grpo", **clip, **kl},
            "beta, logp_ref",
            lambda b: grpo(*b.given, **TOKEN, beta=BETA, logp_ref=b.logp_ref).loss,
        ),
        trl_row(
            "grpo",
            {"loss_type": "grpo", **clip, "beta": BETA},
            "beta=0, plus beta times the mean per answer of r · k3",
            with_weighted_kl,
        ),
        trl_row(
            "dr_grpo",
            {"loss_type": "dr_grpo", **clip, "max_completion_length": LIMIT},
            f"max_len={LIMIT}",
            lambda b: dr_grpo(*b.given, **TOKEN, max_len=LIMIT).loss,
        ),
        trl_row("ppo", {"loss_type": "bnpo", **clip}, "", lambda b: ppo(*b.given, **TOKEN).loss),
        trl_row(
            "dapo",
            {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "steps_per_generation": 4},
            "denominator: a quarter of the rollout's 240 tokens",
            lambda b: dapo(*b.given, denominator=60).loss,
            tokens=240,
        ),
        trl_row(
            "dapo",
            {"loss_type": "dapo", **clip, **kl},
            "beta, logp_ref",
            lambda b: dapo(*b.given, **TOKEN, beta=BETA, logp_ref=b.logp_ref).loss,
        ),
        trl_row(
            "cispo",
            {"loss_type": "cispo", "epsilon_high": 1.3},
            "cap=1.3",
            lambda b: cispo(*b.given, cap=1.3).loss,
        ),
        trl_row("sapo", {"loss_type": "sapo"}, "", lambda b: sapo(*b.given).loss),
        trl_row(
            "ppo_dual_clip",
            {"loss_type": "bnpo", **clip, "delta": 1.5},
            "dual_clip=1.5",
            lambda b: ppo_dual_clip(*b.given, **TOKEN, dual_clip=1.5).loss,
        ),
    ]


def trl_sequence_rows() -> list[Row]:
    """One ratio per answer."""
    paper = {
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    }

    def weighted_by_length(b: Batch) -> Tensor:
        return gspo(*length_weighted(b).given, **ANSWER).loss

    def with_weighted_kl(b: Batch) -> Tensor:
        ratio = sequence_ratio(b.logp, b.logp_old, b.mask).unsqueeze(1)
        return gspo(*b.given, **ANSWER).loss + BETA * weighted_kl(b, ratio)

    def of_max_len(b: Batch) -> Tensor:
        return gspo(*b.scaled(b.mask.sum(dim=1) / LIMIT).given, **ANSWER).loss

    times_length = "each advantage times length / mean length"
    return [
        trl_row("gspo", paper, "", lambda b: gspo(*b.given, **ANSWER).loss),
        trl_row(
            "gspo",
            {**paper, "beta": BETA, "use_bias_correction_kl": False},
            "beta, logp_ref",
            lambda b: gspo(*b.given, **ANSWER, beta=BETA, logp_ref=b.logp_ref).loss,
        ),
        trl_row(
            "gspo",
            {**paper, "beta": BETA},
            "beta=0, plus beta times the mean per answer of s · k3",
            with_weighted_kl,
        ),
        trl_row("gspo", {**paper, "loss_type": "dapo"}, times_length, weighted_by_length),
        trl_row("gspo", {**paper, "loss_type": "bnpo"}, times_length, weighted_by_length),
        trl_row(
            "gspo",
            {**paper, "loss_type": "dr_grpo", "max_completion_length": LIMIT},
            f"each advantage times length / {LIMIT}",
            of_max_len,
        ),
        trl_row(
            "gspo",
            {**paper, "loss_type": "luspo"},
            "each advantage times length",
            lambda b: gspo(*b.scaled(b.mask.sum(dim=1)).given, **ANSWER).loss,
        ),
    ]


def verl_row(
    objective: str,
    settings: str,
    ours: str,
    our_loss: Callable[[Batch], Tensor],
    their_loss: Callable[[Batch], Tensor],
) -> Row:
    """A row whose other side is verl's formula."""
    return Row(objective, "verl", settings, ours, our_loss, their_loss)


def verl_token_rows() -> list[Row]:
    """loss_mode: vanilla, which is a dual clip, under each loss_agg_mode."""
    low, high = TOKEN["clip_low"], TOKEN["clip_high"]
    clip = "clip_ratio_low=0.2, clip_ratio_high=0.27"
    never = {"low": low, "high": high, "c": 1e9}
    by_answer = "seq-mean-token-mean"

    def tis(b: Batch) -> Tensor:
        weights = (b.logp_old - b.logp_rollout).exp().clip(max=1.5)
        return verl.vanilla(*b.per_token, **never, mode=by_answer, weights=weights)

    def with_kl(b: Batch) -> Tensor:
        kl = verl.kl_loss(b.logp, b.logp_ref, b.mask, by_answer)
        return verl.vanilla(*b.per_token, **never, mode=by_answer) + BETA * kl

    return [
        verl_row(
            "ppo_dual_clip",
            f"vanilla, {clip}, clip_ratio_c=1.5, token-mean",
            "dual_clip=1.5",
            lambda b: ppo_dual_clip(*b.given, **TOKEN, dual_clip=1.5).loss,
            lambda b: verl.vanilla(*b.per_token, low=low, high=high, c=1.5),
        ),
        verl_row(
            "grpo",
            f"vanilla, {clip}, {by_answer}, clip_ratio_c too large to bind",
            "",
            lambda b: grpo(*b.given, **TOKEN).loss,
            lambda b: verl.vanilla(*b.per_token, **never, mode=by_answer),
        ),
        verl_row(
            "grpo",
            f"the same, use_kl_loss with low_var_kl, kl_loss_coef={BETA}",
            "beta, logp_ref",
            lambda b: grpo(*b.given, **TOKEN, beta=BETA, logp_ref=b.logp_ref).loss,
            with_kl,
        ),
        verl_row(
            "grpo",
            "the same without KL, token weights of the sampler's mismatch cut at 1.5",
            'correction={"kind": "tis", "cap": 1.5}',
            lambda b: (
                grpo(
                    *b.given,
                    **TOKEN,
                    logp_rollout=b.logp_rollout,
                    correction={"kind": "tis", "cap": 1.5},
                ).loss
            ),
            tis,
        ),
        verl_row(
            "dr_grpo",
            f"vanilla, {clip}, seq-mean-token-sum",
            "max_len=1",
            lambda b: dr_grpo(*b.given, **TOKEN, max_len=1).loss,
            lambda b: verl.vanilla(*b.per_token, **never, mode="seq-mean-token-sum"),
        ),
        verl_row(
            "dr_grpo",
            f"vanilla, {clip}, seq-mean-token-sum-norm, loss_scale_factor={LIMIT}",
            f"max_len={LIMIT}, denominator=1",
            lambda b: dr_grpo(*b.given, **TOKEN, max_len=LIMIT, denominator=1).loss,
            lambda b: verl.vanilla(
                *b.per_token, **never, mode="seq-mean-token-sum-norm", scale=LIMIT
            ),
        ),
    ]


def verl_other_rows() -> list[Row]:
    """gspo and the rest."""
    paper = {"low": ANSWER["clip_low"], "high": ANSWER["clip_high"]}
    gspo_words = "gspo, clip_ratio_low=3e-4, clip_ratio_high=4e-4"

    def own_advantages(b: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        ramp = torch.linspace(-1, 1, b.logp.shape[1]).to(b.logp)
        return b.logp, b.logp_old, b.advantages.unsqueeze(1) + ramp, b.mask

    return [
        verl_row(
            "gspo",
            gspo_words,
            "",
            lambda b: gspo(*b.given, **ANSWER).loss,
            lambda b: verl.gspo(*b.per_token, **paper),
        ),
        verl_row(
            "gspo_token",
            f"{gspo_words}, an advantage per token",
            "",
            lambda b: gspo_token(*own_advantages(b), **ANSWER).loss,
            lambda b: verl.gspo(*own_advantages(b), **paper),
        ),
        verl_row(
            "sapo",
            "sapo, tau_pos=1, tau_neg=1.05",
            "",
            lambda b: sapo(*b.given).loss,
            lambda b: verl.sapo(*b.per_token, pos=1.0, neg=1.05),
        ),
        verl_row(
            "gmpo",
            "geo_mean, clip_ratio=0.4",
            "",
            lambda b: gmpo(*b.given).loss,
            lambda b: verl.geo_mean(*b.per_token, low=0.4, high=0.4),
        ),
        verl_row(
            "cispo",
            "cispo, clip_ratio_low=1, clip_ratio_high=0.3, token-mean",
            "cap=1.3",
            lambda b: cispo(*b.given, cap=1.3).loss,
            lambda b: verl.cispo(*b.per_token, low=1.0, high=0.3),
        ),
        verl_row(
            "cispo",
            "gpg, token-mean",
            "logp_old=logp: every ratio 1",
            lambda b: cispo(b.logp, b.logp, b.advantages, b.mask).loss,
            lambda b: verl.gpg(b.logp, b.per_token[2], b.mask),
        ),
    ]


def rows(library: str | None = None) -> list[Row]:
    """All comparisons, or those with one library."""
    found = [*trl_token_rows(), *trl_sequence_rows(), *verl_token_rows(), *verl_other_rows()]
    return [row for row in found if library in (None, row.library)]


def limits(row: Row) -> dict[str, float]:
    """The largest difference that counts as equal, per number format."""
    return ROUNDED if row.library == "verl" or row.objective == "sapo" else LIMITS


def table() -> str:
    """The comparisons in Markdown, with the largest difference of loss and gradient in each."""
    lines = [
        f"TRL {version('trl')}, transformers {version('transformers')}, torch {version('torch')}; "
        "verl 0.8.0.dev, commit b178a3cd56f5.",
        "",
        "| objective | library | their settings | on our side | float32 | float64 |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows():
        found = [max(row.differences(kind)) for kind in (torch.float32, torch.float64)]
        shown = " | ".join(f"{value:.0e}" for value in found)
        ours = row.ours if row.ours else "the same"
        lines.append(f"| `{row.objective}` | {row.library} | {row.settings} | {ours} | {shown} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table, and store it if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name}")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    made = table()
    print(made)
    if wanted.write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text(before + BEGIN + made + END + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
