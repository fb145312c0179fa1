"""Files that ``gspo-edu inspect`` reads: from any lists, from a rollout, from a training here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from gspo_edu.files import write_atomically
from gspo_edu.inspection.columns import COLUMNS, OF_ROUTES, OF_TOKENS, Array
from gspo_edu.inspection.rows import SETTINGS_KEY
from gspo_edu.inspection.rules import OF_LEVEL, own_bounds
from gspo_edu.ratios import at_least_float32
from gspo_edu.records import live_routes

if TYPE_CHECKING:
    from gspo_edu.batch import Rollout
    from gspo_edu.moe.routes import RouteTrace
    from gspo_edu.objectives import ObjectiveResult
    from gspo_edu.records import Record
    from gspo_edu.sampler import AnswerScore
    from gspo_edu.trainer import Trainer

PART = "update-{update:06d}.parquet"


def write_run(
    path: Path, mask: Tensor, columns: Mapping[str, Any], settings: Mapping[str, Any] | None = None
) -> None:
    """Write answers to a Parquet file that is whole or not there.

    Only response tokens are written, so that the file needs no mask.

    Args:
        path: the file.
        mask: (B, T), 1 on response tokens.
        columns: by name (see ``columns.COLUMNS``): tensors (B, T) or (B, T, N, K), or one value
            per answer, as tensor or sequence.
        settings: of the run, see ``columns.SETTINGS``.

    Raises:
        ValueError: if a column is unknown.
    """
    unknown = set(columns) - set(COLUMNS)
    if unknown:
        raise ValueError(f"column {min(unknown)!r} is unknown; expected {', '.join(COLUMNS)}.")
    inside = mask.detach().bool().cpu()
    ends = np.concatenate([[0], np.cumsum(inside.sum(dim=1).numpy())]).astype(np.int64)
    arrays = {
        name: (
            lists_of(given.detach().cpu()[inside], ends)
            if name in (*OF_TOKENS, *OF_ROUTES)
            else pa.array(given.tolist() if isinstance(given, Tensor) else list(given))
        )
        for name, given in columns.items()
        if given is not None
    }
    known = {name: value for name, value in (settings or {}).items() if value is not None}
    table = pa.table(arrays).replace_schema_metadata({SETTINGS_KEY: json.dumps(known)})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(path, buffer.getvalue().to_pybytes())


def lists_of(values: Tensor, ends: Array) -> pa.Array:
    """One list per answer, from (tokens,) or (tokens, N, K)."""
    if values.is_floating_point():
        values = at_least_float32(values)  # Arrow has no bfloat16
    flat = pa.array(values.reshape(-1).numpy())
    for size in reversed(values.shape[1:]):
        flat = pa.ListArray.from_arrays(np.arange(0, len(flat) + 1, size, dtype=np.int32), flat)
    return pa.LargeListArray.from_arrays(ends, flat)


def rollout_file(
    path: Path,
    rollout: Rollout,
    logp: Tensor,
    *,
    group: Tensor | None = None,
    advantages: Tensor | None = None,
    routes: Tensor | None = None,
    update: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a rollout and what a later policy makes of its answers.

    Args:
        path: the Parquet file.
        rollout: answers with ``logp_old``, rewards and groups; ``logp_rollout`` and routes if any.
        logp: (B, T) log-probs of the same tokens under the later policy.
        group: (B,) ids that differ between the files of one folder; the rollout's unless given.
        advantages: (B,); what ``inspect`` makes of rewards and groups unless given.
        routes: (B, T, N, K) experts that the later policy chose.
        update: number of the update that these log-probs belong to.
        settings: see ``write_run``.
    """
    both = routes is not None and rollout.routes is not None
    columns = {
        "logp": logp,
        "logp_old": rollout.logp_old,
        "rewards": rollout.rewards,
        "group": rollout.group if group is None else group,
        "advantages": advantages,
        "logp_rollout": rollout.logp_rollout,
        "finished": rollout.finished,
        "update": None if update is None else [update] * len(rollout),
        "routes": routes if both else None,
        "routes_reference": rollout.routes.answer if both and rollout.routes else None,
    }
    write_run(path, rollout.mask, columns, settings)


def record_training(trainer: Trainer, folder: Path) -> None:
    """Let every later update of ``trainer`` write a file into ``folder``, for ``inspect``.

    Nothing else about the training changes. Only PPO's critic is left out, since its advantages
    are one per token.

    Raises:
        ValueError: if the trainer has a critic, or the folder holds such files already.
    """
    if trainer.critic is not None:
        raise ValueError("trainer has a critic; expected one whose advantages are one per answer.")
    fresh_folder(folder)
    settings = trainer_settings(trainer)
    one_update, about_update = trainer.one_update, trainer.about_update
    held: dict[str, Tensor] = {}

    def noting_advantages(batch: Rollout, advantages: Tensor) -> Record:
        held["advantages"] = advantages
        return one_update(batch, advantages)

    def writing(
        batch: Rollout,
        score: AnswerScore,
        result: ObjectiveResult,
        norm: Tensor,
        replay: RouteTrace | None,
        after: Tensor | None,
    ) -> Record:
        update = trainer.update + 1
        rollout_file(
            folder / PART.format(update=update),
            replace(batch, mask=trainer.loss_mask(batch)),
            score.logp,
            # A mini-batch numbers its groups from 0; over a run they must differ.
            group=batch.group + update * trainer.config.prompts,
            advantages=held["advantages"],
            routes=live_routes(score.routes, score.router_logits, replay),
            update=update,
            settings=settings,
        )
        return about_update(batch, score, result, norm, replay, after)

    trainer.one_update = noting_advantages  # type: ignore[method-assign]
    trainer.about_update = writing  # type: ignore[method-assign]


def fresh_folder(folder: Path) -> None:
    """Make ``folder``, unless it holds the files of another run.

    Raises:
        ValueError: if it does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = sorted(folder.glob("*.parquet"))
    if there:
        raise ValueError(
            f"{folder} holds {there[0].name} already; expected an empty folder, so that runs do "
            "not get mixed."
        )


def trainer_settings(trainer: Trainer) -> dict[str, Any]:
    """What the config says that ``inspect`` can use."""
    config = trainer.config
    given = {**own_bounds(config.objective), **config.given_objective_settings()}
    level = {objective: name for name, objective in OF_LEVEL.items()}.get(config.objective)
    return {
        "level": level,
        "clip_low": given.get("clip_low"),
        "clip_high": given.get("clip_high"),
        "max_length": trainer.task.max_new_tokens,
        "source": f"gspo_edu, {config.objective}",
    }
