"""AdamW: what turns a gradient into a step.

The step is torch's own, for all parameters in one pass through memory. Its class
``torch.optim.AdamW`` would load torch's compiler when the first optimiser is made, which nothing
here uses and which takes a second: as long as ten rollouts of the tiny policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

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

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        (group,), (beta1, beta2) = self.param_groups, self.betas
        numbered = enumerate(self.parameters)
        touched = {i: (w, w.grad) for i, w in numbered if w.grad is not None}
        for index, (weight, _) in touched.items():
            if index not in self.state:
                means = {name: torch.zeros_like(weight) for name in MEANS}
                self.state[index] = {"step": torch.zeros((), device=weight.device), **means}
        states = [self.state[index] for index in touched]
        with torch.no_grad():
            adamw(
                [weight for weight, _ in touched.values()],
                [grad for _, grad in touched.values()],
                [slots["exp_avg"] for slots in states],
                [slots["exp_avg_sq"] for slots in states],
                [],
                [slots["step"] for slots in states],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=self.eps,
                maximize=False,
            )

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
