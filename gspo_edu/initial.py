"""Where a run starts: a shipped policy, one of your own, or a fresh cold start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from gspo_edu.checkpoint import Card, CheckpointError, load_card, load_policy, shipped_policies
from gspo_edu.cold_start import cold_start_losses
from gspo_edu.config import TrainConfig
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE
from gspo_edu.tasks import Task, make_task, task_size
from gspo_edu.tasks.base import VOCAB_SIZE
from gspo_edu.trainer import torch_device

SHAPE = {
    "layers": "num_layers",
    "width": "width",
    "heads": "num_heads",
    "experts": "num_experts",
    "top_k": "top_k",
    "expert_width": "expert_width",
    "norm_topk_prob": "norm_topk_prob",
    "dense": "dense",
}

Watch = Callable[[Iterator[float], int], Iterator[float]]


def given_shape(config: TrainConfig) -> dict[str, Any]:
    """The fields of ModelConfig that the run's config names."""
    given = {known: getattr(config, name) for name, known in SHAPE.items()}
    given = {known: value for known, value in given.items() if value is not None}
    if "width" in given or "num_heads" in given:
        default = ModelConfig(VOCAB_SIZE)
        width, heads = given.get("width", default.width), given.get("num_heads", default.num_heads)
        if width % heads:
            raise ValueError(f"width is {width}; expected a multiple of heads, which is {heads}.")
        given["head_dim"] = width // heads
    return given


def check_start(config: TrainConfig) -> None:
    """Refuse a config from which no run can start, before anything is written.

    Raises:
        ValueError: if task, shape, starting policy or device do not fit or are not there.
    """
    task = make_task(config.task, config.task_size)
    shape = given_shape(config)
    torch_device(config.device)
    if config.init in ("auto", "cold"):
        ModelConfig(VOCAB_SIZE, **shape)
    else:
        policy_from_file(Path(config.init), config, task, shape)


def initial_policy(
    config: TrainConfig, watch: Watch = lambda losses, steps: losses
) -> tuple[TinyMoE, Task, Card]:
    """The policy that a run starts from, its task, and the card that says where it comes from.

    Args:
        config: ``init``, ``task``, ``task_size`` and the shape fields decide.
        watch: wraps the losses of a cold start, for a progress bar.

    Raises:
        ValueError: if the settings contradict each other or the checkpoint.
    """
    task = make_task(config.task, config.task_size)
    shape = given_shape(config)
    if config.init not in ("auto", "cold"):
        return policy_from_file(Path(config.init), config, task, shape)
    wanted = ModelConfig(VOCAB_SIZE, **shape)
    if config.init == "auto":
        for path in shipped_policies().values():
            card = load_card(path)
            if (card.model, card.task, card.task_size) == (wanted, config.task, task_size(task)):
                return load_policy(path)[0], task, card
    return cold_started_policy(config, task, wanted, watch)


def policy_of_run(path: Path, config: TrainConfig) -> tuple[TinyMoE, Task, Card]:
    """The policy that a run started from, as its folder keeps it, unless the config contradicts it.

    Raises:
        CheckpointError: if the file is damaged or was made for a run with other settings.
    """
    task = make_task(config.task, config.task_size)
    shape = given_shape(config)
    if config.init in ("auto", "cold"):
        shape = vars(ModelConfig(VOCAB_SIZE, **shape))
    model, started_on, card = policy_from_file(path, config, task, shape)
    if config.init in ("auto", "cold") and card.task_size != task_size(task):
        raise CheckpointError(
            f"{path} was started on task size {card.task_size}, but the config's is "
            f"{task_size(task)}."
        )
    return model, started_on, card


def policy_from_file(
    path: Path, config: TrainConfig, task: Task, shape: dict[str, Any]
) -> tuple[TinyMoE, Task, Card]:
    """A policy from a file, unless the config contradicts it."""
    if not path.exists():
        raise CheckpointError(
            f"init is {str(path)!r}; expected auto, cold or an existing checkpoint file."
        )
    model, card = load_policy(path)
    for name, value in shape.items():
        if value != getattr(card.model, name):
            raise CheckpointError(
                f"{path} has {name}={getattr(card.model, name)}, but the config asks for {value}; "
                "leave the shape to the file, or use init=cold."
            )
    if card.model.dense and config.replay != "none":
        raise CheckpointError(
            f"{path} is a dense model, which has no routes to replay, but replay is "
            f"{config.replay}; expected none."
        )
    if card.task != config.task:
        raise CheckpointError(
            f"{path} was started on {card.task}, but the config's task is {config.task}."
        )
    if config.task_size is None:
        task = make_task(card.task, card.task_size)
    return model, task, card


def cold_started_policy(
    config: TrainConfig, task: Task, wanted: ModelConfig, watch: Watch
) -> tuple[TinyMoE, Task, Card]:
    """A new policy after imitation. It depends on the shape and the task, not on the run's seed."""
    torch.set_num_threads(config.threads)
    model = TinyMoE(wanted)
    losses = cold_start_losses(
        model,
        task,
        steps=config.cold_start_steps,
        noise=config.cold_start_noise,
        generator=torch.Generator().manual_seed(0),
    )
    for _ in watch(losses, config.cold_start_steps):
        pass
    card = Card(
        model=wanted,
        task=config.task,
        task_size=task_size(task),
        command=cold_start_command(config, wanted),
        held_out_reward=float("nan"),
    )
    return model, task, card


def cold_start_command(config: TrainConfig, wanted: ModelConfig) -> str:
    """The command line that makes this policy again as RUN/init.safetensors."""
    words = ["gspo-edu train --init cold --rollouts 0", f"--task {config.task}"]
    if config.task_size is not None:
        words.append(f"--task-size {config.task_size}")
    default = ModelConfig(VOCAB_SIZE)
    for name, known in SHAPE.items():
        value = getattr(wanted, known)
        if value != getattr(default, known):
            flag = name.replace("_", "-")
            words.append(
                f"--{'' if value else 'no-'}{flag}"
                if value in (True, False) and isinstance(value, bool)
                else f"--{flag} {value}"
            )
    words += [
        f"--cold-start-steps {config.cold_start_steps}",
        f"--cold-start-noise {config.cold_start_noise}",
        "--out RUN",
    ]
    return " ".join(words)
