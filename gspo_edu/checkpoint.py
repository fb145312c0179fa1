"""Checkpoints: safetensors with a JSON card in the header. No pickle, nothing half-written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gspo_edu.files import write_atomically
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE

DIGEST = "sha256"
SHIPPED = Path(__file__).parent / "checkpoints"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or does not fit."""


@dataclass(frozen=True)
class Card:
    """What a policy checkpoint says about itself.

    Attributes:
        model: its shape.
        task, task_size: what it was cold-started on.
        command: how to make it again.
        held_out_reward: mean reward on the held-out prompts of an evaluation.
    """

    model: ModelConfig
    task: str
    task_size: int
    command: str
    held_out_reward: float


def save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write ``tensors`` and their JSON ``meta`` to one file, or leave what was there."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in any order, and equal runs are equal files.
    text = json.dumps({**meta, DIGEST: digest(contiguous, meta)})
    write_atomically(path, save(contiguous, {"meta": text}))


def digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    """SHA-256 of the meta data and of every tensor's name, type, shape and bytes."""
    found = hashlib.sha256(json.dumps(meta).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the meta data of ``path``.

    Raises:
        CheckpointError: if the file is missing, damaged or not one of ours. Files without a
            digest, as older versions wrote them, are taken as they are.
    """
    with opened(path) as (file, meta):
        written = meta.pop(DIGEST, None)
        # Copies, because Windows cannot replace a file that tensors still map.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    if written not in (None, digest(tensors, meta)):
        raise CheckpointError(f"checkpoint {path} is damaged (its bytes have changed).")
    return tensors, meta


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The open safetensors file and its meta data, of which the digest is one entry.

    Raises:
        CheckpointError: if the file is missing, damaged or not one of ours.
    """
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads((file.metadata() or {})["meta"])
            if not isinstance(meta, dict):
                raise TypeError("its meta data are no settings")
            yield file, meta
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {path} does not exist.") from None
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {path} is damaged or not a gspo-edu checkpoint ({error})."
        ) from None


def save_policy(path: Path, model: TinyMoE, card: Card) -> None:
    """Write a policy's weights with its card."""
    save_tensors(path, dict(model.named_parameters()), dataclasses.asdict(card))


def load_card(path: Path) -> Card:
    """The card of a policy checkpoint, from the file's header; the weights are not looked at.

    Raises:
        CheckpointError: if the file is not a policy checkpoint.
    """
    with opened(path) as (_, meta):
        meta.pop(DIGEST, None)
    return card_from_meta(path, meta)


def load_policy(path: Path) -> tuple[TinyMoE, Card]:
    """A policy and its card.

    Raises:
        CheckpointError: if the file is not a policy checkpoint, or lacks weights of its model.
    """
    weights, meta = load_tensors(path)
    card = card_from_meta(path, meta)
    model = TinyMoE(card.model)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"checkpoint {path} does not fit its own card: {error}") from None
    return model, card


def card_from_meta(path: Path, meta: Mapping[str, Any]) -> Card:
    """The card in ``meta``; CheckpointError if it is none."""
    try:
        return Card(**{**meta, "model": ModelConfig(**meta["model"])})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {path} has no valid policy card ({error}); expected a file such as "
            "init.safetensors or policy.safetensors of a run folder."
        ) from None


def shipped_policies() -> dict[str, Path]:
    """The cold-started policies in the package, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.safetensors"))}
