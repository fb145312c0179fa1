"""What the widget ``Routes`` shows: one answer's routes and log-probs, update by update.

    python -m gspo_edu.widgets.route_record      # makes data/routes.json anew

The shipped record is of an answer that the stormy policy gave: a run of lesson 07, in seconds.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from gspo_edu.batch import Rollout
    from gspo_edu.moe.model import TinyMoE

DIGITS, MOST_DIGITS = 3, 8
SHIPPED = "data/routes.json"
# The shipped record: rollouts before it, seed of its answers, length of the answer, and how many of
# its tokens have another expert after the first update. It is a rich example, not a typical one.
WARM_UP, DICE, SHORTEST, LONGEST, FLIPS = 6, 99, 8, 11, 3


def route_record(policies: Iterable[TinyMoE], rollout: Rollout, row: int) -> dict[str, Any]:
    """Routes and log-probs of one answer under a policy at several moments, ready for JSON.

    Args:
        policies: first the one that sampled, then the same after each update. A generator may
            yield one policy again and again as it changes.
        rollout: sampled by the first.
        row: which answer.

    Returns:
        ``tokens``: its T tokens as text; ``layers``: the N layer numbers; ``top_k``: K;
        ``logits``: [update][T][N][E] router logits with the experts that the router chooses;
        ``logp``: [update][T] log-probs; ``replayed_logits`` and ``replayed_logp``: the same from
        the first update on, with the experts of the first policy. Logits are rounded, but never so
        far that another expert would be chosen.

    Raises:
        ValueError: if the rollout has no routes, no such row, or there is no update.
    """
    import torch

    from gspo_edu.tasks.base import SYMBOLS

    if rollout.routes is None:
        raise ValueError("rollout.routes is None; expected the routes that the policy took.")
    if not 0 <= row < len(rollout.tokens):
        raise ValueError(f"row is {row}; expected 0 to {len(rollout.tokens) - 1}.")
    answer = rollout.rows(torch.tensor([row]))
    length = int(answer.mask.sum())
    record: dict[str, Any] = {
        "tokens": [SYMBOLS[int(token)] for token in answer.tokens[0, :length]],
        "layers": list(rollout.routes.layers),
        **{name: [] for name in ("logits", "logp", "replayed_logits", "replayed_logp")},
    }
    for number, policy in enumerate(policies):
        record["top_k"] = policy.config.top_k
        for name, replay in (("", False), ("replayed_", True))[: 1 + bool(number)]:
            logits, logp = scored(policy, answer, length, replay=replay)
            record[f"{name}logits"].append(rounded(logits, policy.config.top_k))
            record[f"{name}logp"].append([round(value, 6) for value in logp.tolist()])
    if len(record["logp"]) < 2:
        raise ValueError(
            f"policies gives {len(record['logp'])}; expected the policy that sampled, and the same "
            "after one update or more."
        )
    return record


def scored(policy: TinyMoE, answer: Rollout, length: int, *, replay: bool) -> tuple[Tensor, Tensor]:
    """(T, N, E) router logits and (T,) log-probs of the only answer."""
    import torch

    from gspo_edu.sampler import answer_log_probs

    with torch.no_grad():
        score = answer_log_probs(policy, answer, replay=answer.routes if replay else None)
    return score.router_logits[0, :length], score.logp[0, :length]


def rounded(logits: Tensor, top_k: int) -> list[Any]:
    """The logits (..., E) with as few digits as keep the order of the best experts."""
    import torch

    best = logits.topk(top_k).indices
    for digits in range(DIGITS, MOST_DIGITS):
        short = logits.double().round(decimals=digits)
        values = short.topk(min(top_k + 1, short.shape[-1])).values
        distinct = bool((values[..., :-1] > values[..., 1:]).all())
        if distinct and torch.equal(short.topk(top_k).indices, best):
            return [[[float(x) for x in row] for row in layer] for layer in short.tolist()]
    return list(logits.double().tolist())


def shipped_record() -> dict[str, Any]:
    """The record that ships with the package."""
    text = (files("gspo_edu.widgets") / SHIPPED).read_text(encoding="utf-8")
    record: dict[str, Any] = json.loads(text)
    return record


def make_record() -> dict[str, Any]:
    """The shipped record, made anew: stormy preset, seed 0, a rollout and its four updates."""
    import torch

    from gspo_edu.advantages import group_advantages
    from gspo_edu.batch import mini_batch_rows
    from gspo_edu.config import PRESETS, TrainConfig, read_toml
    from gspo_edu.initial import initial_policy
    from gspo_edu.route_split import split_log_ratio
    from gspo_edu.sampler import sampled_rollout
    from gspo_edu.trainer import Trainer

    stormy = read_toml(PRESETS / "stormy.toml")
    config = TrainConfig(**stormy, objective="grpo", seed=0, eval_every=0, eval_prompts=32)
    trainer = Trainer(config, *initial_policy(config)[:2])
    for _ in range(WARM_UP):
        trainer.next_rollout()
    dice = torch.Generator().manual_seed(DICE)
    rollout = sampled_rollout(
        trainer.model, trainer.task, trainer.training_prompts(), config.group_size, generator=dice
    )
    advantages = group_advantages(rollout.rewards, rollout.group)
    policies = [copy.deepcopy(trainer.model)]
    for rows in mini_batch_rows(rollout.group, config.mini_batches, trainer.order):
        trainer.one_update(rollout.rows(rows), advantages[rows])
        policies.append(copy.deepcopy(trainer.model))
    moved = split_log_ratio(policies[1], rollout).changed.sum(dim=1)
    fits = (rollout.lengths >= SHORTEST) & (rollout.lengths <= LONGEST) & (moved >= FLIPS)
    return route_record(policies, rollout, int((fits & rollout.finished).float().argmax()))


def main() -> None:
    """Write the shipped record."""
    path = Path(str(files("gspo_edu.widgets") / SHIPPED))
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(make_record(), separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{path.name}: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
