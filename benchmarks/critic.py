"""What a critic costs: PPO with one against GRPO, whose baseline is the group.

    python benchmarks/critic.py                 memory and seconds per rollout
    python benchmarks/critic.py --json          the last line is one JSON object

The calm setting: 32 prompts x 8 answers, four mini-batches, one core, one thread. Two workers live
side by side and take turns, since the same machine is faster in one minute than in the next:
compare medians of ratios, never seconds of different runs. Learning rates are 0, so that both sides
sample the same answers in every rollout and do the same work; a step costs the same with any rate.

Memory is counted exactly (weights, gradients and AdamW's means, which are what a large model's
memory is made of) and measured: the peak of the process, and by how much it rises above that of a
process that has loaded Python, torch and the policy. A model this small hardly shows in the peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

from w1 import Worker, peak_rss_mb

SIDES = {
    "GRPO": {"objective": "grpo"},
    "PPO with critic": {"objective": "ppo", "critic": True},
}
KEYS = ("seconds_per_rollout", "judging_seconds", "policy_seconds", "critic_seconds")
# Next to nothing, or nothing, in GRPO: no ratio.
OF_CRITIC = ("judging_seconds", "critic_seconds")
MEMORY = ("weights_mb", "gradients_mb", "optimizer_mb")


def serve(side: str) -> None:
    """Worker: build the side's trainer, then make one rollout for each line on stdin."""
    import dataclasses

    from gspo_edu.config import TrainConfig
    from gspo_edu.initial import initial_policy
    from gspo_edu.trainer import Trainer

    config = TrainConfig(lr=0, eval_every=0, eval_prompts=1, drift_probe=0, device="cpu")
    model, task, _ = initial_policy(config)
    start = peak_rss_mb()
    trainer = Trainer(dataclasses.replace(config, **SIDES[side]), model, task)  # type: ignore[arg-type]
    spent = dict.fromkeys(KEYS, 0.0)

    def timed(name: str, function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            result = function(*args, **kwargs)
            spent[name] += time.perf_counter() - begun
            return result

        return wrapper

    trainer.judged = timed("judging_seconds", trainer.judged)  # type: ignore[method-assign]
    trainer.one_update = timed("policy_seconds", trainer.one_update)  # type: ignore[method-assign]
    if trainer.critic is not None:
        learn = timed("critic_seconds", trainer.critic.one_update)
        trainer.critic.one_update = learn  # type: ignore[method-assign]
    print(json.dumps({"ready": side}), flush=True)
    for _ in sys.stdin:
        spent.update(dict.fromkeys(KEYS, 0.0))
        begun = time.perf_counter()
        records = trainer.next_rollout()
        spent["seconds_per_rollout"] = time.perf_counter() - begun
        peak = peak_rss_mb()
        about = {
            "tokens": sum(record["tokens"] for record in records),
            "peak_rss_mb": peak,
            "above_start_mb": peak - start,
        }
        print(json.dumps({**spent, **trained_mb(trainer), **about}), flush=True)


def trained_mb(trainer: Any) -> dict[str, float]:
    """Megabytes of what training keeps per weight, over all models that are trained."""
    models = [(trainer.model, trainer.optimizer)]
    if trainer.critic is not None:
        models.append((trainer.critic.model, trainer.critic.optimizer))
    weights = [weight for model, _ in models for weight in model.parameters()]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    slots = [
        slot
        for _, optimizer in models
        for state in optimizer.state.values()
        for slot in state.values()
    ]
    found = (weights, gradients, slots)
    return {
        name: sum(tensor.nbytes for tensor in tensors) / 1e6
        for name, tensors in zip(MEMORY, found, strict=True)
    }


def measure(cycles: int, core: int) -> dict[str, list[dict[str, float]]]:
    """What each side reports of each rollout but the first, which warms caches and allocators."""
    workers = {side: Worker("critic.py", core, side) for side in SIDES}
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for cycle in range(cycles + 1):
        for side, worker in workers.items():
            measured = worker.cycle()
            if cycle:
                found[side].append(measured)
    for worker in workers.values():
        worker.stop()
    return found


def main() -> None:
    """Measure both sides and print medians and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cycles", type=int, default=20, help="measured rollouts of each side")
    parser.add_argument("--core", type=int, default=0, help="the core that both run on")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve(args.worker)
        return
    found = measure(args.cycles, args.core)
    names = list(found["GRPO"][0])
    pairs = list(zip(found["PPO with critic"], found["GRPO"], strict=True))
    medians = {
        side: {name: statistics.median(one[name] for one in cycles) for name in names}
        for side, cycles in found.items()
    }
    ratios = {
        name: statistics.median(ppo[name] / grpo[name] for ppo, grpo in pairs)
        for name in names
        if name not in OF_CRITIC
    }
    print(f"{'median of each rollout':<22}" + "".join(f"{side:>18}" for side in SIDES) + "   ratio")
    for name in names:
        cells = "".join(f"{medians[side][name]:>18.4g}" for side in SIDES)
        print(f"{name:<22}{cells}" + (f"{ratios[name]:>8.2f}" if name in ratios else ""))
    if args.json:
        print(json.dumps({"medians": medians, "ratios": ratios, "cycles": args.cycles}))


if __name__ == "__main__":
    main()
