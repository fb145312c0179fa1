"""A batch of seeds against separate runs: seconds of a rollout and of an update.

    python benchmarks/batched.py                    1, 2, 4, 8 and 16 seeds of the calm setting
    python benchmarks/batched.py --device cuda      on a GPU
    python benchmarks/batched.py --json             the last line is one JSON object

"separate" is one ordinary run on that device. "growth" is the batch's time over that of one
separate run: on a GPU 16 seeds should stay below 3. "gain" is the time of as many separate runs,
one after the other, over the batch's. Both are medians of ratios: the batch and the separate run
take turns, because the same machine is faster in one minute than in the next.

A CPU has nothing idle to fill, and fixed shapes cost several times the arithmetic, so there the
gain is below 1. What can be counted without a GPU are the "operations" of sampling a rollout and
of an update, each a launch or more on a GPU: they hardly grow with the seeds.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

COUNTS = (1, 2, 4, 8, 16)


def seconds(work: Callable[[], Any], device: str) -> float:
    """How long ``work()`` takes, until the device has finished it."""
    import torch

    begun = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def operations(work: Callable[[], Any]) -> int:
    """How many operations of torch ``work()`` calls."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    with Counter() as counter:
        work()
    return counter.count


def separate_work(trainer: Any) -> dict[str, Callable[[], Any]]:
    """A rollout and an update of an ordinary run."""
    from gspo_edu.batch import mini_batch_rows
    from gspo_edu.sampler import sampled_rollout

    config, prompts = trainer.config, trainer.training_prompts().to(trainer.device)

    def sample() -> Any:
        return sampled_rollout(
            trainer.model, trainer.task, prompts, config.group_size, generator=trainer.dice
        )

    rollout = sample()
    rows = next(mini_batch_rows(rollout.group, config.mini_batches, trainer.order))
    batch, advantages = rollout.rows(rows), trainer.judged(rollout)[0][rows]
    return {"rollout": sample, "update": lambda: trainer.one_update(batch, advantages)}


def batched_work(together: Any) -> dict[str, Callable[[], Any]]:
    """The same of a ``SeedBatch``, records included."""
    import torch

    prompts = torch.cat([one.training_prompts() for one in together.trainers]).to(together.device)
    dice = [one.dice for one in together.trainers]

    def sample() -> Any:
        return together.sampled(prompts, together.config.group_size, dice)

    rollout = sample()
    judged = zip(together.trainers, together.of_seeds(rollout), strict=True)
    advantages = torch.cat([one.judged(own)[0] for one, own in judged]).to(together.device)
    batch = next(together.mini_batches(rollout, advantages))
    return {
        "rollout": sample,
        "update": lambda: together.about(together.one_update(*batch)),
        "update alone": lambda: together.one_update(*batch),
    }


def compared(count: int, device: str, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds, ratios and operations of ``count`` seeds, for a rollout and an update."""
    from gspo_edu.batched import SeedBatch
    from gspo_edu.checkpoint import load_policy, shipped_policies
    from gspo_edu.config import TrainConfig
    from gspo_edu.tasks import ClockWalk
    from gspo_edu.trainer import Trainer

    policy = load_policy(shipped_policies()["calm"])[0]

    def trainer(seed: int) -> Any:
        config = TrainConfig(seed=seed, device=device, eval_every=0, eval_prompts=4)
        return Trainer(config, copy.deepcopy(policy), ClockWalk())

    alone = separate_work(trainer(0))
    together = batched_work(SeedBatch([trainer(seed) for seed in range(count)]))
    found = {}
    for name, work in alone.items():
        pairs = []
        for repeat in range(repeats + 1):
            pair = seconds(work, device), seconds(together[name], device)
            if repeat:  # the first one warms caches and allocators up
                pairs.append(pair)
        growth = statistics.median(batched / one for one, batched in pairs)
        found[name] = {
            "separate_seconds": statistics.median(one for one, _ in pairs),
            "batched_seconds": statistics.median(batched for _, batched in pairs),
            "growth": growth,
            "gain": count / growth,
            "operations": operations(together[f"{name} alone" if name == "update" else name]),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=5, help="measured turns")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="numbers of seeds")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    results = {}
    for count in args.counts:
        results[count] = compared(count, args.device, args.repeats)
        for name, found in results[count].items():
            print(
                f"{count:3d} seeds, {name:<8} {found['batched_seconds']:.4f} s, separate "
                f"{found['separate_seconds']:.4f} s; growth {found['growth']:.2f}, gain "
                f"{found['gain']:.2f}; {found['operations']} operations",
                flush=True,
            )
    if args.json:
        print(json.dumps({"device": args.device, "seeds": results}))


if __name__ == "__main__":
    main()
