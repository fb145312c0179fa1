"""Record a run of TRL's GRPOTrainer for ``gspo-edu inspect``, without changing what it does.

    trainer = GRPOTrainer(...)
    record_run(trainer, "my-run")
    trainer.train()

Then ``gspo-edu inspect my-run``. Each update writes one Parquet file, whole or not at all, so that
a run that dies leaves everything up to its last completed update. With several processes each
writes its own answers. Written for TRL 1.16; what it needs of the trainer is named in ``NEEDED``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gspo_edu.inspection.writing import fresh_folder, write_run

NEEDED = (
    "_generate_and_score_completions",
    "_calculate_rewards",
    "_get_per_token_logps_and_entropies",
    "_compute_loss",
    "epsilon_low",
    "epsilon_high",
    "importance_sampling_level",
    "num_generations",
    "reward_weights",
    "max_completion_length",
    "loss_type",
    "eos_token_ids",
)
# The loss types for which epsilon bounds the ratio on both sides; under CISPO it is a cap on the
# ratio itself, and SAPO and VESPO have no use for it.
CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
OWN = "gspo_edu_"  # what is added to TRL's batches; TRL shuffles and splits it with the rest


def record_run(trainer: Any, folder: str | Path) -> Recorder:
    """Let ``trainer`` write every update into ``folder``; to be called before ``train()``.

    Args:
        trainer: a ``trl.GRPOTrainer``, or a subclass that computes its loss as TRL does.
        folder: a new or empty folder.

    Raises:
        ValueError: if the trainer lacks what is recorded, or the folder holds another run.
    """
    missing = [name for name in NEEDED if not hasattr(trainer, name)]
    if missing:
        raise ValueError(
            f"trainer is {type(trainer).__name__} without {', '.join(missing)}; expected TRL's "
            "GRPOTrainer of version 1.16 or one like it."
        )
    process = trainer.accelerator.process_index
    folder = Path(folder)
    if process == 0:
        fresh_folder(folder)
    trainer.accelerator.wait_for_everyone()
    recorder = Recorder(trainer, folder)
    trainer.add_callback(recorder.callback())
    return recorder


class Recorder:
    """Holds the micro-batches of the update under way; see ``record_run``.

    Attributes:
        folder: where the files go.
        written: how many updates have been written.
        lost: how many could not be, as on a full disk.
    """

    def __init__(self, trainer: Any, folder: Path) -> None:
        """Wrap the trainer's methods, on this object only."""
        self.trainer, self.folder, self.written, self.lost = trainer, folder, 0, 0
        self.waiting: list[tuple[Tensor, dict[str, Any]]] = []
        self.rewards: Tensor | None = None
        self.logp: Tensor | None = None
        self.rollouts = 0
        self.inner = {name: getattr(trainer, name) for name in NEEDED if name.startswith("_")}
        trainer._calculate_rewards = self.calculate_rewards
        trainer._generate_and_score_completions = self.generate_and_score
        trainer._get_per_token_logps_and_entropies = self.log_probs
        trainer._compute_loss = self.compute_loss

    def calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        """Keep what the reward functions gave, (answers of all processes, functions)."""
        self.rewards = self.inner["_calculate_rewards"](*args, **kwargs)
        assert self.rewards is not None
        return self.rewards

    def generate_and_score(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Put rewards, groups and ends beside TRL's own batch, which is then shuffled and split."""
        batch: dict[str, Any] = self.inner["_generate_and_score_completions"](*args, **kwargs)
        trainer = self.trainer
        if not trainer.model.training or self.rewards is None:
            return batch
        per_function = self.rewards
        weighted = (per_function * trainer.reward_weights.to(per_function.device)).nansum(dim=1)
        rewards = weighted.masked_fill(torch.isnan(per_function).all(dim=1), torch.nan)
        rows = len(batch["completion_ids"])
        first = trainer.accelerator.process_index * rows
        place = torch.arange(first, first + rows, device=rewards.device)
        groups = len(rewards) // trainer.num_generations
        batch[OWN + "rewards"] = rewards[place]
        batch[OWN + "group"] = place // trainer.num_generations + self.rollouts * groups
        batch[OWN + "finished"] = self.finished(batch)
        self.rollouts += 1
        return batch

    def finished(self, batch: dict[str, Any]) -> Tensor:
        """(B,) whether each answer's last token is an end token.

        TRL itself also lets a sampled padding token count as an end. What
        ``mask_truncated_completions`` masked out was cut.
        """
        ids, length = batch["completion_ids"], batch["completion_mask"].sum(dim=1)
        ends = torch.tensor(sorted(self.trainer.eos_token_ids), device=ids.device)
        last = ids.gather(1, (length - 1).clamp(min=0)[:, None]).squeeze(1)
        found: Tensor = torch.isin(last, ends) & (length > 0)
        return found

    def log_probs(self, *args: Any, **kwargs: Any) -> Any:
        """Keep the log-probs that TRL computes last: in the loss, those of the policy."""
        found = self.inner["_get_per_token_logps_and_entropies"](*args, **kwargs)
        self.logp = found[0].detach()
        return found

    def compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's loss; its micro-batch waits for the end of the update."""
        loss: Tensor = self.inner["_compute_loss"](model, inputs)
        if not self.trainer.model.training or OWN + "rewards" not in inputs:
            return loss
        assert self.logp is not None
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        advantages = inputs["advantages"]
        columns = {
            "logp": self.logp,
            # Without off-policy steps TRL has no old log-probs: it takes the same ones.
            "logp_old": inputs.get("old_per_token_logps", self.logp),
            "logp_rollout": inputs.get("sampling_per_token_logps"),
            "rewards": inputs[OWN + "rewards"],
            "group": inputs[OWN + "group"],
            "finished": inputs[OWN + "finished"],
            # A subclass may give one per token; inspect reads one per answer.
            "advantages": advantages if advantages.dim() == 1 else None,
        }
        kept = {name: value.detach().cpu() for name, value in columns.items() if value is not None}
        self.waiting.append((mask.detach().cpu(), kept))
        self.logp = None
        return loss

    def end_update(self, update: int) -> None:
        """Write what the update ``update`` was made of."""
        if not self.waiting:
            return
        masks, parts = zip(*self.waiting, strict=True)
        width = max(mask.shape[1] for mask in masks)
        mask = torch.cat([padded(mask, width) for mask in masks])
        columns = {
            name: torch.cat([padded(part[name], width) for part in parts]) for name in parts[0]
        }
        columns["update"] = torch.full((len(mask),), update)
        process = self.trainer.accelerator.process_index
        path = self.folder / f"update-{update:06d}-process-{process:03d}.parquet"
        self.waiting.clear()
        try:
            write_run(path, mask, columns, self.settings())
        except OSError as error:
            # Hours of training count more than their record.
            if not self.lost:
                warnings.warn(
                    f"update {update} could not be recorded in {self.folder} "
                    f"({error.strerror or error}); the training goes on without.",
                    stacklevel=2,
                )
            self.lost += 1
        else:
            self.written += 1

    def settings(self) -> dict[str, Any]:
        """What TRL was told that ``inspect`` can use."""
        trainer = self.trainer
        found = {
            "level": trainer.importance_sampling_level,
            "max_length": trainer.max_completion_length,
            "source": f"TRL, loss_type {trainer.loss_type}",
        }
        if trainer.loss_type in CLIPPED:
            found |= {"clip_low": trainer.epsilon_low, "clip_high": trainer.epsilon_high}
        return found

    def callback(self) -> Any:
        """A TrainerCallback that says when an update is complete."""
        from transformers import TrainerCallback

        end_update: Callable[[int], None] = self.end_update

        class EndOfUpdate(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                end_update(state.global_step)

        return EndOfUpdate()


def padded(given: Tensor, width: int) -> Tensor:
    """(B, T) padded on the right to ``width``; what is (B,) stays."""
    if given.dim() == 1:
        return given
    return torch.nn.functional.pad(given, (0, width - given.shape[1]))
