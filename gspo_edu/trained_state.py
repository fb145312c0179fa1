"""A model and its optimiser as named tensors, for checkpoints, and back."""

from __future__ import annotations

from torch import Tensor, nn

from gspo_edu.adamw import AdamW


def trained_tensors(model: nn.Module, optimizer: AdamW, prefix: str = "") -> dict[str, Tensor]:
    """``{prefix}model.NAME`` and ``{prefix}optimizer.NUMBER.SLOT``, not copied."""
    tensors = {f"{prefix}model.{name}": w.detach() for name, w in model.named_parameters()}
    for index, slots in optimizer.state_dict()["state"].items():
        for slot, value in slots.items():
            tensors[f"{prefix}optimizer.{index}.{slot}"] = value
    return tensors


def load_trained_tensors(
    model: nn.Module, optimizer: AdamW, tensors: dict[str, Tensor], prefix: str = ""
) -> None:
    """Go on from what ``trained_tensors`` returned; other names in ``tensors`` are left alone.

    Raises:
        KeyError, RuntimeError, ValueError: if the tensors are of another model.
    """
    names = [name for name, _ in model.named_parameters()]
    model.load_state_dict({name: tensors[f"{prefix}model.{name}"] for name in names})
    slots: dict[int, dict[str, Tensor]] = {}
    start = f"{prefix}optimizer."
    for name, value in tensors.items():
        if name.startswith(start):
            index, slot = name.removeprefix(start).split(".")
            slots.setdefault(int(index), {})[slot] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": slots, "param_groups": groups})
