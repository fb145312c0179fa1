"""A batch of seeds against separate runs: seconds per rollout, on whatever device there is.

    python benchmarks/batched.py                    1, 2, 4, 8 and 16 seeds of the calm setting
    python benchmarks/batched.py --device cuda      on a GPU; --json ends with one JSON object

"ratio" is the time of the batch over that of one seed: on a GPU 16 seeds should stay below 3. On a
CPU there is nothing to fill, and fixed shapes cost several times the arithmetic: separate runs,
one per core, are the better choice there ("separate" is one ordinary run).
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


def seconds_of(work: Callable[[], Any], device: str, repeats: int) -> float:
    """Median seconds of ``work()``, after one that is not counted."""
    import torch

    found = []
    for repeat in range(repeats + 1):
        begun = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        if repeat:
            found.append(time.perf_counter() - begun)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=5, help="measured rollouts of each")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()

    from gspo_edu.batched import SeedBatch
    from gspo_edu.checkpoint import load_policy, shipped_policies
    from gspo_edu.config import TrainConfig
    from gspo_edu.tasks import ClockWalk
    from gspo_edu.trainer import Trainer

    config = TrainConfig(device=args.device, eval_every=0, eval_prompts=4, drift_probe=0)
    policy, task = load_policy(shipped_policies()["calm"])[0], ClockWalk()
    one = Trainer(config, copy.deepcopy(policy), task)
    separate = seconds_of(one.next_rollout, args.device, args.repeats)
    print(f"separate: {separate:.3f} s per rollout")
    batched: dict[int, float] = {}
    for count in COUNTS:
        batch = SeedBatch(config, range(count), policy, task)
        batched[count] = seconds_of(batch.next_rollout, args.device, args.repeats)
        print(
            f"{count:3d} seeds: {batched[count]:.3f} s, ratio {batched[count] / batched[1]:.2f}, "
            f"{batched[count] / (count * separate):.2f} of {count} separate runs",
            flush=True,
        )
    if args.json:
        print(json.dumps({"device": args.device, "separate": separate, "batched": batched}))


if __name__ == "__main__":
    main()
