"""Inference engines: copies of the policy that sample in an arithmetic of their own.

Large systems sample with one program and train with another. Both hold the same weights, yet they
round differently, so that pi_old has two values for each token: the engine's and the trainer's.

- ``fp32``: the trainer itself samples; nothing differs.
- ``bf16``: weights and activations in bfloat16. Only the final logits become float32 before the
  softmax, as in vLLM.
- ``int8``: the matrices of attention and experts are int8 numbers with one scale per output
  channel; embedding, router, norms and head stay as they are, and activations are float32.

An engine may also run behind: with ``lag`` k it samples with the weights of k rollouts ago.
"""

from __future__ import annotations

import copy
from collections import deque

import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.moe.model import TinyMoE
from gspo_edu.moe.routes import drift
from gspo_edu.objectives.surrogate import ObjectiveResult
from gspo_edu.records import counted_log_ratios
from gspo_edu.route_split import changed_tokens

ENGINES = ("fp32", "bf16", "int8")
INT8_MAX = 127
# The usual choice for mixtures of experts: a router or a head in int8 costs more than it saves.
QUANTIZED = (".qkv.weight", ".out.weight", ".gate_up", ".down", ".gate_up.weight", ".down.weight")
STATE = "engine."

Weights = dict[str, Tensor]


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """``weight`` as int8 numbers and one float scale per output channel.

    Symmetric, rounded to the nearest: weight is about int8 * scale, off by at most scale / 2.

    Args:
        weight: (out, in), or the stack (E, in, out) of experts; either way dimension 1 is the one
            that a channel's numbers have in common.

    Returns:
        int8 of the same shape, and the scale with length 1 in that dimension.
    """
    other = 1
    largest = weight.abs().amax(dim=other, keepdim=True)
    scale = largest.clamp(min=torch.finfo(weight.dtype).tiny * INT8_MAX) / INT8_MAX
    return (weight / scale).round().to(torch.int8), scale


def engine_copy(model: TinyMoE, kind: str, weights: Weights | None = None) -> TinyMoE:
    """A copy of ``model``, with other ``weights`` if given, that computes as an engine of ``kind``.

    Raises:
        ValueError: if there is no such engine.
    """
    if kind not in ENGINES:
        raise ValueError(f"engine is {kind!r}; expected one of {', '.join(ENGINES)}.")
    made = copy.deepcopy(model).requires_grad_(False)
    if weights is not None:
        made.load_state_dict(weights)
    if kind == "bf16":
        made = made.bfloat16()
    elif kind == "int8":
        for name, weight in made.named_parameters():
            if name.endswith(QUANTIZED):
                numbers, scale = quantize(weight)
                weight.copy_(numbers * scale)
    return made


class Engine:
    """Gives a trainer the model that samples.

    Attributes:
        kind: one of ``ENGINES``.
        lag: rollouts by which its weights are behind.
    """

    def __init__(self, kind: str = "fp32", lag: int = 0) -> None:
        """An engine that has not been given any weights.

        Raises:
            ValueError: if there is no such engine, or ``lag`` is negative.
        """
        if kind not in ENGINES:
            raise ValueError(f"engine is {kind!r}; expected one of {', '.join(ENGINES)}.")
        if lag < 0:
            raise ValueError(f"lag is {lag}; expected 0 or more rollouts.")
        self.kind, self.lag = kind, lag
        self.sent: deque[Weights] = deque(maxlen=lag + 1)

    @property
    def differs(self) -> bool:
        """Whether its log-probs can be others than the trainer's own."""
        return self.kind != "fp32" or self.lag > 0

    @torch.no_grad()
    def serving(self, model: TinyMoE) -> TinyMoE:
        """Take over the trainer's present weights; returns the model for the next rollout.

        To be called once per rollout. While the first ``lag`` rollouts are under way, the oldest
        weights are the initial ones.
        """
        if not self.differs:
            return model
        self.sent.append({name: weight.clone() for name, weight in model.state_dict().items()})
        return engine_copy(model, self.kind, self.sent[0])

    def state(self) -> Weights:
        """The weights that will still be needed, for a checkpoint."""
        kept = list(self.sent)[-self.lag :] if self.lag else []
        return {
            f"{STATE}{place}.{name}": weight
            for place, weights in enumerate(kept)
            for name, weight in weights.items()
        }

    def load_state(self, tensors: Weights) -> None:
        """Go on from ``state``."""
        self.sent.clear()
        own = [name.removeprefix(STATE) for name in tensors if name.startswith(STATE)]
        for place in sorted({int(name.split(".", 1)[0]) for name in own}):
            start = f"{STATE}{place}."
            self.sent.append(
                {n.removeprefix(start): w for n, w in tensors.items() if n.startswith(start)}
            )


def engine_metrics(
    logp: Tensor,
    routes: Tensor | None,
    rollout: Rollout,
    mask: Tensor,
    result: ObjectiveResult,
) -> dict[str, Tensor]:
    """How far trainer and engine disagree about a rollout that nobody has trained on yet.

    Log-ratios are log pi_old(trainer) - log pi_old(engine), of tokens and, averaged, of answers.

    Args:
        logp: (B, T) of the trainer.
        routes: (B, T, N, K) of the trainer, choosing freely; None for dense models.
        rollout: with the engine's log-probs and routes.
        mask: (B, T), true on tokens that count.
        result: the objective's, of these log-probs as new and the engine's as old ones: what it
            clips, it clips through the engine alone.

    Returns:
        0-dim tensors: mean, std and largest absolute value of both log-ratios, the objective's clip
        metrics, ``engine_drift`` (share of expert slots, as ``moe.routes.drift``) and
        ``engine_changed_tokens`` (share of tokens with another expert in some layer).
    """
    log_r, log_s = counted_log_ratios(logp, rollout.logp_old, mask)
    found = {}
    for name, values in (("token", log_r), ("sequence", log_s)):
        kept = values if len(values) else values.new_zeros(1)
        found[f"engine_{name}_log_ratio_mean"] = kept.mean()
        found[f"engine_{name}_log_ratio_std"] = kept.std(correction=0)
        found[f"engine_{name}_log_ratio_max"] = kept.abs().max()
    for name, value in result.metrics.items():
        if name.startswith(("clip_", "outside_")):
            found[f"engine_{name}"] = value
    if routes is not None and rollout.routes is not None:
        theirs = rollout.routes.answer
        found["engine_drift"] = drift(routes, theirs)
        found["engine_changed_tokens"] = changed_tokens(routes, theirs)[mask.bool()].float().mean()
    return found
