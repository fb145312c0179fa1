"""Z models of one shape as one: the weights in one matrix, and one pass for all of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

from gspo_edu.moe.contexts import PromptsWithAnswers
from gspo_edu.moe.model import ForwardResult, TinyMoE
from gspo_edu.sampler import Sampled, fixed_answers


class StackedPolicy:
    """Z models of one shape; to the sampler they are one model that reads Z times as much.

    Attributes:
        weights: (Z, D), a leaf for autograd.
    """

    def __init__(self, models: Sequence[TinyMoE]) -> None:
        """Start from copies of the models' weights."""
        self.config = models[0].config
        self.shapes = {name: w.shape for name, w in models[0].named_parameters()}
        # Says what to compute; its own weights are never used and take no memory.
        self.template = copy.deepcopy(models[0]).to("meta")
        rows = [parameters_to_vector(model.parameters()).detach() for model in models]
        self.weights = torch.stack(rows).requires_grad_()

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """(D,) -> the weights of one model, as views."""
        parts = row.split([shape.numel() for shape in self.shapes.values()])
        pairs = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in pairs}

    def __call__(
        self, tokens: Tensor, context: PromptsWithAnswers, *, replay: Tensor | None = None
    ) -> ForwardResult:
        """``TinyMoE.forward``; the first 1/Z of prompts and of answers is the first model's."""
        count = len(self.weights)
        prompts, silent = context.prompts // count, context.silent // count
        inside = context.inside[: len(context.inside) // count]
        group = torch.arange(len(inside), device=inside.device) // context.answers

        def split(x: Tensor) -> Tensor:
            parts = x[: context.silent], x[context.silent :]
            return torch.cat([part.unflatten(0, (count, -1)) for part in parts], dim=1)

        def joined(x: Tensor) -> Tensor:
            return torch.cat([x[:, :silent].flatten(0, 1), x[:, silent:].flatten(0, 1)])

        def one_pass(row: Tensor, tokens: Tensor, *routes: Tensor) -> tuple[Tensor, ...]:
            own = PromptsWithAnswers(prompts, context.width, group, inside, fixed_shapes=True)
            fixed = {"replay": routes[0]} if routes else {}
            found = functional_call(self.template, self.named(row), (tokens, own), fixed)
            return found.logits, found.routes, found.router_logits

        routes = [] if replay is None else [split(replay)]
        found = torch.vmap(one_pass)(self.weights, split(tokens), *routes)
        return ForwardResult(found[0].flatten(0, 1), joined(found[1]), joined(found[2]))

    def answers(
        self, prompts: Tensor, group_size: int, noise: Tensor, temperature: float
    ) -> Sampled:
        """``sampler.fixed_answers`` of each model to its own prompts, with its own noise.

        Args:
            prompts: (Z, P, T_prompt).
            group_size, temperature: as there.
            noise: (Z, T, B, V).

        Returns:
            What is said there, with Z in front of every shape.
        """

        def of_one(row: Tensor, prompts: Tensor, noise: Tensor) -> Sampled:
            def policy(*given: Any) -> ForwardResult:
                found: ForwardResult = functional_call(self.template, self.named(row), given)
                return found

            return fixed_answers(policy, prompts, group_size, noise, temperature)

        found: Sampled = torch.vmap(of_one)(self.weights, prompts, noise)
        return found
