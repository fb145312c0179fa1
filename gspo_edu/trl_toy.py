"""The course's task in TRL's GRPOTrainer, with the course's policy as a Qwen3-MoE of transformers.

    python -m gspo_edu.trl_toy --level sequence --rollouts 8
    accelerate launch --multi_gpu --num_processes 2 -m gspo_edu.trl_toy

(The second line needs no GPU, see docs/real_trainers.md.) Needs the extra ``real``. Lesson 11 takes
its parts from here. What TRL need not be told is left out, so that ``paper_settings`` shows what
one has to set and nothing else.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Set before the library is loaded: processes that fork later would make it warn.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.hf_tokenizer import tokenizer
from gspo_edu.moe.hf import to_qwen3_moe
from gspo_edu.tasks import Task, make_task
from gspo_edu.tasks.base import PAD, SYMBOLS, masked_after_end, prompts_of_split

PROMPTS, GROUP, MINI_BATCHES = 32, 8, 4


def prompt_dataset(task: Task, count: int, seed: int) -> Any:
    """``count`` training prompts as text, the only column that TRL needs."""
    dice = torch.Generator().manual_seed(seed)
    prompts = prompts_of_split(task, count, dice, held_out=False)
    return Dataset.from_dict({"prompt": [" ".join(SYMBOLS[t] for t in row) for row in prompts]})


def reward_function(task: Task) -> Callable[..., list[float | None]]:
    """The task's verifier in the form that TRL calls: one number per completion.

    It looks for the end token itself. TRL also calls an answer finished if its last token happens
    to be padding.
    """

    def verified(
        prompts: list[str], completion_ids: list[list[int]], **_: Any
    ) -> list[float | None]:
        width = max(len(ids) for ids in completion_ids)
        tokens = torch.tensor([ids + [PAD] * (width - len(ids)) for ids in completion_ids])
        asked = torch.tensor([[SYMBOLS.index(word) for word in row.split()] for row in prompts])
        mask, finished = masked_after_end(tokens)
        return list(task.rewards(asked, tokens, mask, finished).tolist())

    return verified


def paper_settings(level: str = "sequence", **changes: Any) -> dict[str, Any]:
    """Settings of GRPOConfig for GSPO as in the paper (section 5.1), or its GRPO baseline.

    Args:
        level: "sequence" (range 3e-4, 4e-4) or "token" (range 0.2, 0.27).
        changes: settings that shall differ or come in addition.

    Raises:
        ValueError: if ``level`` is neither.
    """
    ranges = {"sequence": (3e-4, 4e-4), "token": (0.2, 0.27)}
    if level not in ranges:
        raise ValueError(f"level is {level!r}; expected 'sequence' or 'token'.")
    low, high = ranges[level]
    objective = {
        "importance_sampling_level": level,
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon": low,
        "epsilon_high": high,
        "steps_per_generation": MINI_BATCHES,
        "gradient_accumulation_steps": 1,
    }
    # What the defaults would get wrong here, on a CPU and for a mixture of experts.
    machine = {
        "use_cpu": True,
        "bf16": False,
        "router_aux_loss_coef": 0.0,
        "activation_checkpointing": False,
    }
    run = {
        "per_device_train_batch_size": PROMPTS * GROUP // MINI_BATCHES,
        "num_generations": GROUP,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "ddp_find_unused_parameters": False,
    }
    return {**objective, **machine, **run, **changes}


def toy_policy(name: str = "calm") -> Any:
    """A shipped policy as a Qwen3MoeForCausalLM."""
    return to_qwen3_moe(load_policy(shipped_policies()[name])[0])


def toy_trainer(model: Any = None, *, seed: int = 0, **settings: Any) -> Any:
    """A GRPOTrainer on the clock walk, not started yet.

    Args:
        model: a causal language model of transformers; ``toy_policy()`` unless given.
        seed: of samples and shuffles.
        settings: of GRPOConfig, such as ``paper_settings()``; those that are not given keep TRL's
            default, except the length limit, which is the task's.
    """
    task = make_task("clock_walk")
    settings = {"max_completion_length": task.max_new_tokens, "seed": seed, **settings}
    with quiet(), tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=toy_policy() if model is None else model,
            reward_funcs=reward_function(task),
            args=GRPOConfig(output_dir=folder, **settings),
            train_dataset=prompt_dataset(task, 4096, seed),
            processing_class=tokenizer(),
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


@contextmanager
def quiet() -> Iterator[None]:
    """No advice from transformers and TRL: what matters of it is in lesson 11, in words."""
    verbosity = transformers_logging.get_verbosity()
    logger = logging.getLogger("trl")
    level = logger.level
    transformers_logging.set_verbosity_error()
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        logger.setLevel(level)


def trained(trainer: Any, rollouts: int) -> list[dict[str, float]]:
    """Train for ``rollouts`` rollouts and return what TRL logged, one record per update."""
    trainer.args.max_steps = rollouts * trainer.args.steps_per_generation
    with quiet():
        trainer.train()
    return [record for record in trainer.state.log_history if "loss" in record]


@dataclass(frozen=True)
class SeenBatch:
    """What one call of TRL's loss was given, and what it gave; all detached.

    Attributes:
        logp, logp_old: (B, T); ``logp_old`` is ``logp`` itself where TRL keeps no old log-probs.
        advantages: (B,).
        mask: (B, T), 1 on completion tokens.
        loss: 0-dim.
        has_old: whether TRL kept log-probs of the sampling policy.
    """

    logp: Tensor
    logp_old: Tensor
    advantages: Tensor
    mask: Tensor
    loss: Tensor
    has_old: bool


def watched(trainer: Any) -> list[SeenBatch]:
    """From now on, every mini-batch that the trainer's loss sees is appended to the list."""
    seen: list[SeenBatch] = []
    last: dict[str, Tensor] = {}
    forward, loss = trainer._get_per_token_logps_and_entropies, trainer._compute_loss

    def keep_log_probs(*args: Any, **kwargs: Any) -> Any:
        found = forward(*args, **kwargs)
        last["logp"] = found[0].detach()
        return found

    def keep_batch(model: Any, inputs: dict[str, Any]) -> Tensor:
        found: Tensor = loss(model, inputs)
        old = inputs.get("old_per_token_logps")
        seen.append(
            SeenBatch(
                logp=last["logp"],
                logp_old=last["logp"] if old is None else old,
                advantages=inputs["advantages"],
                mask=inputs["completion_mask"],
                loss=found.detach(),
                has_old=old is not None,
            )
        )
        return found

    trainer._get_per_token_logps_and_entropies = keep_log_probs
    trainer._compute_loss = keep_batch
    return seen


def loss_of(
    trainer: Any,
    logp: Tensor,
    logp_old: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    *,
    logp_ref: Tensor | None = None,
    tokens: int | None = None,
    tool_mask: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """What TRL's own loss makes of given log-probs, and what it would log; nothing is trained.

    Args:
        trainer: a GRPOTrainer, whose forward pass is replaced for this call.
        logp, logp_old, logp_ref: (B, T).
        advantages: (B,).
        mask: (B, T), 1 on completion tokens.
        tokens: of the whole rollout; those of this batch unless given.
        tool_mask: (B, T), 0 on tokens that a tool wrote.
    """
    forward = trainer._get_per_token_logps_and_entropies
    inside = mask.long()
    batch = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.long),
        "completion_ids": torch.zeros_like(inside),
        "completion_mask": inside,
        "advantages": advantages,
        "old_per_token_logps": logp_old,
        "ref_per_token_logps": logp_ref,
        "num_items_in_batch": torch.as_tensor(int(inside.sum()) if tokens is None else tokens),
    }
    if tool_mask is not None:
        batch["tool_mask"] = tool_mask.long()
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer._metrics["train"].clear()
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
        logp,
        torch.zeros_like(logp),
        logp.new_zeros(()),
    )
    try:
        found = trainer.compute_loss(trainer.model, batch)
    finally:
        trainer._get_per_token_logps_and_entropies = forward
    return found, {name: values[-1] for name, values in trainer._metrics["train"].items()}


def said_by_trl(**settings: Any) -> list[str]:
    """The warnings that TRL logs when a trainer is made with these settings, as plain text."""
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger, listener = logging.getLogger("trl.trainer.grpo_trainer"), Listener()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(listener)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        toy_trainer(**settings)
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagate
    return heard


def main(words: list[str] | None = None) -> None:
    """Train and print one JSON line per rollout, from the main process only."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--level", choices=("sequence", "token"), default="sequence")
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    processes = int(os.environ.get("WORLD_SIZE", 1))
    rows = PROMPTS * GROUP // MINI_BATCHES // processes
    settings = paper_settings(given.level, per_device_train_batch_size=rows)
    trainer = toy_trainer(seed=given.seed, **settings)
    began = time.perf_counter()
    records = trained(trainer, given.rollouts)
    if not trainer.accelerator.is_main_process:
        return
    for number in range(given.rollouts):
        part = records[number * MINI_BATCHES : (number + 1) * MINI_BATCHES]
        clipped = sum(record["clip_ratio/region_mean"] for record in part) / MINI_BATCHES
        print(json.dumps({"rollout": number, "reward": part[0]["reward"], "clip_ratio": clipped}))
    seconds = (time.perf_counter() - began) / given.rollouts
    print(json.dumps({"processes": processes, "seconds_per_rollout": round(seconds, 2)}))


if __name__ == "__main__":
    main()
