"""AdamW, written out: what turns a gradient into a step.

It takes bit for bit the steps of ``torch.optim.AdamW`` on a CPU. That one loads torch's compiler
when the first optimiser is made, which nothing here uses and which takes a second: as long as ten
rollouts of the tiny policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

MEANS = ("exp_avg", "exp_avg_sq")


class AdamW:
    """Adam (Kingma & Ba, arXiv 1412.6980) with decoupled weight decay (arXiv 1711.05101, alg. 2).

    Attributes:
        param_groups: one dictionary with ``lr`` and ``weight_decay``, which may be changed between
            steps, as in torch.
        state: for each parameter's number its ``step`` and the running means ``exp_avg`` (of the
            gradient) and ``exp_avg_sq`` (of its square), once it has had a gradient.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        """Nothing is changed before the first ``step``; defaults are torch's."""
        self.parameters = list(parameters)
        self.betas, self.eps = betas, eps
        self.param_groups: list[dict[str, Any]] = [{"lr": lr, "weight_decay": weight_decay}]
        self.state: dict[int, dict[str, Tensor]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or set them to zeros."""
        for weight in self.parameters:
            if weight.grad is not None:
                weight.grad = None if set_to_none else torch.zeros_like(weight.grad)

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient."""
        (group,), (beta1, beta2) = self.param_groups, self.betas
        for index, weight in enumerate(self.parameters):
            grad = weight.grad
            if grad is None:
                continue
            if index not in self.state:
                means = {name: torch.zeros_like(weight) for name in MEANS}
                self.state[index] = {"step": torch.zeros(()), **means}
            slots = self.state[index]
            mean, square = (slots[name] for name in MEANS)
            slots["step"] += 1
            count = slots["step"].item()
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            mean.lerp_(grad, 1 - beta1)
            square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            # Both means start at 0; dividing by their weights so far undoes that.
            size = group["lr"] / (1 - beta1**count)
            spread = (square.sqrt() / math.sqrt(1 - beta2**count)).add_(self.eps)
            weight.addcdiv_(mean, spread, value=-size)

    def state_dict(self) -> dict[str, Any]:
        """``{"state": ..., "param_groups": ...}``, the tensors not copied."""
        return {"state": self.state, "param_groups": self.param_groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from copies of what ``state_dict`` returned.

        Raises:
            ValueError: if the state is of other parameters.
        """
        loaded = {}
        for index, slots in saved["state"].items():
            known = [weight.shape for weight in self.parameters[index : index + 1]]
            if any([slots[name].shape] != known for name in MEANS):
                raise ValueError(
                    f"the state of parameter {index} has shape {tuple(slots[MEANS[0]].shape)}; "
                    f"expected {tuple(known[0]) if known else 'no such parameter'}."
                )
            means = {name: slots[name].to(self.parameters[index], copy=True) for name in MEANS}
            loaded[index] = {"step": slots["step"].clone(), **means}
        self.param_groups = [dict(group) for group in saved["param_groups"]]
        self.state = loaded
