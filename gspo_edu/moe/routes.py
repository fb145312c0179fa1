"""Routes: which experts each token took, how far they drift, and how to replay them.

Routes are int16 tensors (rows, positions, N, K), -1 in padding. Position t holds the experts that
were active while token t of the answer was predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gspo_edu.moe.config import ModelConfig


@dataclass(frozen=True)
class RouteTrace:
    """The expert choices of one forward pass over prompts and answers.

    Attributes:
        prompt: (P, T_prompt - 1, N, K) int16. The last prompt token belongs to the answers, since
            it predicts their first token.
        answer: (B, T, N, K) int16, -1 in padding.
        layers: the N layer numbers, so that dense layers in between cannot shift the meaning.
    """

    prompt: Tensor
    answer: Tensor
    layers: tuple[int, ...]

    def rows(self, index: Tensor, used: Tensor) -> RouteTrace:
        """Routes of the answers ``index`` and the prompts ``used``."""
        return replace(self, prompt=self.prompt[used], answer=self.answer[index])

    @property
    def nbytes(self) -> int:
        """Memory that the trace takes, in bytes."""
        return self.prompt.nbytes + self.answer.nbytes

    def check(self, config: ModelConfig, mask: Tensor, prompts: Tensor | None = None) -> RouteTrace:
        """Make sure that this trace can be replayed by a model of ``config`` on these answers.

        A trace may lack the last position of every row, as engines that never run the last sampled
        token record it: T - 1 positions, or -1 at an answer's last token. Those experts are then
        chosen live. A trace that lacks more is refused.

        Args:
            config: the model that will replay.
            mask: (B, T), 1 on response tokens.
            prompts: (P, T_prompt) token ids; without them, how many prompts the trace covers and
                how far is not checked.

        Raises:
            ValueError: naming what does not fit, and layer and position where it lies.
        """
        for part, routes in (("prompts", self.prompt), ("answers", self.answer)):
            kind = routes.dtype
            if kind.is_floating_point or kind.is_complex or kind == torch.bool:
                raise ValueError(f"routes of the {part} are of {kind}; expected integers.")
        if self.layers != config.routed_layers:
            raise ValueError(
                f"routes are of layers {self.layers}; the model routes in {config.routed_layers}."
            )
        rows, width = mask.shape
        answer = self.answer
        if answer.dim() != 4 or answer.shape[0] != rows or answer.shape[2] != len(self.layers):
            raise ValueError(
                f"routes have shape {tuple(answer.shape)}; expected ({rows}, {width}, "
                f"{len(self.layers)}, {config.top_k}): answers, positions, layers, experts."
            )
        if answer.shape[3] != config.top_k:
            raise ValueError(
                f"routes name {answer.shape[3]} experts per token; the model uses {config.top_k}."
            )
        if answer.shape[1] == width - 1:
            last = answer.new_full((rows, 1, *answer.shape[2:]), -1)
            answer = torch.cat([answer, last], dim=1)
        elif answer.shape[1] != width:
            raise ValueError(
                f"routes cover {answer.shape[1]} positions; expected {width}, or {width - 1} if "
                "the engine did not run the last token."
            )
        inside = mask.bool()
        answer = answer.where(inside[..., None, None], -1)
        self.check_prompt(config, prompts)
        self.check_experts("answer", answer, config.num_experts)
        not_last = inside & (inside.flip(1).cumsum(dim=1).flip(1) > 1)
        holes = (answer < 0).any(dim=-1) & not_last[..., None]
        if holes.any():
            row, position, layer = holes.nonzero()[0].tolist()
            raise ValueError(
                f"routes name no expert at answer {row}, position {position}, layer "
                f"{self.layers[layer]}; only an answer's last token may lack its experts."
            )
        return replace(self, answer=answer)

    def check_prompt(self, config: ModelConfig, prompts: Tensor | None) -> None:
        """Raise ValueError unless the prompts' part has its shape and names all experts."""
        shape, wanted = tuple(self.prompt.shape), (len(self.layers), config.top_k)
        covers = None if prompts is None else (len(prompts), prompts.shape[1] - 1)
        if len(shape) != 4 or shape[2:] != wanted or covers not in (None, shape[:2]):
            rows, width = covers or ("prompts", "positions")
            raise ValueError(
                f"prompt routes have shape {shape}; expected ({rows}, {width}, {wanted[0]}, "
                f"{wanted[1]}): prompts, positions without the last, layers, experts."
            )
        self.check_experts("prompt", self.prompt, config.num_experts)
        holes = (self.prompt < 0).any(dim=-1)
        if holes.any():
            row, position, layer = holes.nonzero()[0].tolist()
            raise ValueError(
                f"routes name no expert at prompt {row}, position {position}, layer "
                f"{self.layers[layer]}; only an answer's last token may lack its experts."
            )

    def check_experts(self, what: str, routes: Tensor, num_experts: int) -> None:
        """Raise ValueError if ``routes`` (rows, T, N, K) name an unknown expert, or one twice."""
        ordered = routes.sort(dim=-1).values
        twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
        partly = (ordered[..., 0] < 0) & (ordered[..., -1] >= 0)
        faults = {
            f"an expert outside 0 to {num_experts - 1}": (ordered[..., -1] >= num_experts),
            "an expert twice": twice.any(dim=-1),
            "fewer experts than the model uses": partly,
        }
        for fault, where in faults.items():
            if where.any():
                row, position, layer = where.nonzero()[0].tolist()
                raise ValueError(
                    f"routes name {fault} at {what} {row}, position {position}, layer "
                    f"{self.layers[layer]}: {routes[row, position, layer].tolist()}."
                )


def replay_gates(logits: Tensor, experts: Tensor, *, normalize: bool = True) -> Tensor:
    """Gate weights of the given experts, from the live router logits.

    Routing Replay fixes which experts run, not how much each counts, so the router still learns
    (arXiv 2510.11370). The model computes its own top-k gates with this function too.

    Args:
        logits: (..., E) live router logits.
        experts: (..., K) integer expert ids.
        normalize: softmax over the K experts; False takes their entries of the full softmax.

    Returns:
        (..., K) gates in the order of ``experts``.
    """
    chosen = experts.long()
    if normalize:
        return logits.gather(-1, chosen).softmax(dim=-1)
    return logits.softmax(dim=-1).gather(-1, chosen)


def drift(routes: Tensor, reference: Tensor) -> Tensor:
    """Share of expert slots whose expert is not among the reference's for that token and layer.

    Args:
        routes, reference: (..., K) expert ids, -1 in padding, which does not count.

    Returns:
        0-dim tensor in [0, 1]; 0 if there is nothing to compare.

    Raises:
        ValueError: if the shapes differ.
    """
    if routes.shape != reference.shape:
        raise ValueError(
            f"routes has shape {tuple(routes.shape)} and reference {tuple(reference.shape)}; "
            "drift compares the same tokens, layers and number of experts."
        )
    counts = (routes >= 0) & (reference[..., :1] >= 0)
    kept = (routes.unsqueeze(-1) == reference.unsqueeze(-2)).any(dim=-1)
    return (counts & ~kept).sum() / counts.sum().clamp(min=1)
