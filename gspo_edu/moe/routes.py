"""Routes: which experts each token took, how far they drift, and how to replay them.

Routes are int16 tensors (rows, positions, N, K), -1 in padding. Position t holds the experts that
were active while token t of the answer was predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


class Routing(Protocol):
    """What routes have to fit: a ``ModelConfig``, or a model of another library.

    Attributes:
        routed_layers: numbers of the layers that have a router.
        num_experts: experts per layer, E.
        top_k: experts per token, K.
    """

    @property
    def routed_layers(self) -> tuple[int, ...]: ...
    @property
    def num_experts(self) -> int: ...
    @property
    def top_k(self) -> int: ...


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

    def check(self, config: Routing, mask: Tensor, prompts: Tensor | None = None) -> RouteTrace:
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
        answer = checked_rows(self.answer, self.layers, config, mask, "answer")
        self.check_prompt(config, prompts)
        return replace(self, answer=answer)

    def check_prompt(self, config: Routing, prompts: Tensor | None) -> None:
        """Raise ValueError unless the prompts' part has its shape and names all experts."""
        check_integers(self.prompt, "prompt")
        shape, wanted = tuple(self.prompt.shape), (len(self.layers), config.top_k)
        covers = None if prompts is None else (len(prompts), prompts.shape[1] - 1)
        if len(shape) != 4 or shape[2:] != wanted or covers not in (None, shape[:2]):
            rows, width = covers or ("prompts", "positions")
            raise ValueError(
                f"prompt routes have shape {shape}; expected ({rows}, {width}, {wanted[0]}, "
                f"{wanted[1]}): prompts, positions without the last, layers, experts."
            )
        check_experts(self.prompt, self.layers, config.num_experts, "prompt")
        check_holes((self.prompt < 0).any(dim=-1), self.layers, "prompt")


def checked_rows(
    routes: Tensor, layers: tuple[int, ...], config: Routing, mask: Tensor, row: str
) -> Tensor:
    """``routes`` of ``layers``, complete and -1 outside ``mask``; see ``RouteTrace.check``.

    Args:
        routes: (B, T, N, K), or T - 1 positions.
        layers: the N layer numbers.
        config: what the model that will replay can do.
        mask: (B, T), 1 where a route is needed.
        row: what a row is called in errors, such as "answer".

    Returns:
        (B, T, N, K), -1 where the model chooses live.

    Raises:
        ValueError: naming what does not fit, and layer and position where it lies.
    """
    check_integers(routes, row)
    if layers != config.routed_layers:
        raise ValueError(
            f"routes are of layers {layers}; the model routes in {config.routed_layers}."
        )
    rows, width = mask.shape
    if routes.dim() != 4 or routes.shape[0] != rows or routes.shape[2] != len(layers):
        raise ValueError(
            f"routes have shape {tuple(routes.shape)}; expected ({rows}, {width}, "
            f"{len(layers)}, {config.top_k}): {row}s, positions, layers, experts."
        )
    if routes.shape[3] != config.top_k:
        raise ValueError(
            f"routes name {routes.shape[3]} experts per token; the model uses {config.top_k}."
        )
    if routes.shape[1] == width - 1:
        routes = torch.cat([routes, routes.new_full((rows, 1, *routes.shape[2:]), -1)], dim=1)
    elif routes.shape[1] != width:
        raise ValueError(
            f"routes cover {routes.shape[1]} positions; expected {width}, or {width - 1} if "
            "the engine did not run the last token."
        )
    inside = mask.bool()
    routes = routes.where(inside[..., None, None], -1)
    check_experts(routes, layers, config.num_experts, row)
    not_last = inside & (inside.flip(1).cumsum(dim=1).flip(1) > 1)
    check_holes((routes < 0).any(dim=-1) & not_last[..., None], layers, row)
    return routes


def check_integers(routes: Tensor, row: str) -> None:
    """Raise ValueError unless ``routes`` are integers."""
    kind = routes.dtype
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise ValueError(f"routes of the {row}s are of {kind}; expected integers.")


def check_holes(holes: Tensor, layers: tuple[int, ...], row: str) -> None:
    """Raise ValueError if any of ``holes`` (rows, T, N), places without experts, is true."""
    if holes.any():
        number, position, layer = holes.nonzero()[0].tolist()
        last = "a row" if row == "row" else "an answer"
        raise ValueError(
            f"routes name no expert at {row} {number}, position {position}, layer "
            f"{layers[layer]}; only {last}'s last token may lack its experts."
        )


def check_experts(routes: Tensor, layers: tuple[int, ...], num_experts: int, row: str) -> None:
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
            number, position, layer = where.nonzero()[0].tolist()
            raise ValueError(
                f"routes name {fault} at {row} {number}, position {position}, layer "
                f"{layers[layer]}: {routes[number, position, layer].tolist()}."
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
