"""Which modules of a transformers model are routers, and how each makes gates of its logits.

A router that is not in ``GATES`` is refused, not guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LAYER = re.compile(r"(?:(.*)\.)?layers\.(\d+)\..*")


@dataclass(frozen=True)
class RoutedModel:
    """Where a model of transformers routes.

    Attributes:
        decoder: the module that owns the layers, and runs once per forward pass.
        routers: of each layer that has one.
        num_experts, top_k: E and K.
    """

    decoder: nn.Module
    routers: dict[int, nn.Module]
    num_experts: int
    top_k: int

    @property
    def routed_layers(self) -> tuple[int, ...]:
        """Numbers of the layers that have a router."""
        return tuple(self.routers)

    def checkpointed_layers(self) -> tuple[int, ...]:
        """Those of them that activation checkpointing computes again for a backward pass."""
        layers = {n: self.decoder.get_submodule(f"layers.{n}") for n in self.routers}
        return tuple(
            n
            for n, layer in layers.items()
            if layer.training and getattr(layer, "gradient_checkpointing", False)
        )


def softmax_gates(router: Any, logits: Tensor, experts: Tensor) -> Tensor:
    """Entries of the softmax over all experts, in float32; normalised if the router says so."""
    gates = logits.softmax(dim=-1, dtype=torch.float32).gather(-1, experts)
    if router.norm_topk_prob:
        gates = gates / gates.sum(dim=-1, keepdim=True)
    return gates.to(logits.dtype)


def mixtral_gates(router: Any, logits: Tensor, experts: Tensor) -> Tensor:
    """The same, always normalised, and left in float32."""
    gates = logits.softmax(dim=-1, dtype=torch.float32).gather(-1, experts)
    return gates / gates.sum(dim=-1, keepdim=True)


def sigmoid_gates(router: Any, logits: Tensor, experts: Tensor) -> Tensor:
    """DeepSeek-V3 (arXiv 2412.19437, eq. 12 to 16): its bias helps to choose, and is no gate."""
    gates = logits.sigmoid().gather(-1, experts)
    if router.norm_topk_prob:
        gates = gates / (gates.sum(dim=-1, keepdim=True) + 1e-20)
    scaled: Tensor = gates * router.routed_scaling_factor
    return scaled


def softmax_of_chosen(router: Any, logits: Tensor, experts: Tensor) -> Tensor:
    """gpt-oss: the softmax over the chosen experts' logits, in their own precision."""
    return logits.gather(-1, experts).softmax(dim=-1)


# In the library's own order of operations, so that replaying a model's own routes changes no bit.
GATES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "Qwen2MoeTopKRouter": softmax_gates,
    "Qwen3MoeTopKRouter": softmax_gates,
    "MixtralTopKRouter": mixtral_gates,
    "OlmoeTopKRouter": softmax_gates,
    "DeepseekV3TopkRouter": sigmoid_gates,
    "GptOssTopKRouter": softmax_of_chosen,
}


def routed_model(model: nn.Module) -> RoutedModel:
    """Find the routers of ``model``, a mixture of experts of transformers, wrapped or not.

    Raises:
        ValueError: if a router is unknown, if there is none, or if they have no common decoder.
    """
    found: dict[str, dict[int, nn.Module]] = {}
    for name, module in model.named_modules():
        children = {type(child).__name__ for child in module.children()}
        if type(module).__name__ in GATES:
            place = LAYER.fullmatch(name)
            if place is None:
                raise ValueError(f"router {name or 'itself'} is in no layer; give the whole model.")
            found.setdefault(place[1] or "", {})[int(place[2])] = module
        elif "experts" in dict(module.named_children()) and not children & GATES.keys():
            unknown = sorted(child for child in children if re.search("router|gate", child.lower()))
            raise ValueError(
                f"{name} is a {type(module).__name__} with the unknown router "
                f"{', '.join(unknown) or 'inside it'}; known are {', '.join(GATES)}."
            )
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no router: a dense model, or one that is not of "
            f"transformers. Known are {', '.join(GATES)}."
        )
    if len(found) > 1:
        raise ValueError(f"routers are in several stacks of layers: {', '.join(found)}; give one.")
    ((where, routers),) = found.items()
    first: Any = next(iter(routers.values()))
    return RoutedModel(model.get_submodule(where), routers, first.num_experts, first.top_k)
