"""How the cost of one RL cycle grows with answers, length, layers and experts.

    python benchmarks/scaling.py                        a table
    python benchmarks/scaling.py --out docs/speed       scaling.json and scaling.png there
    python benchmarks/scaling.py --json                 the last line is one JSON object

The base is the shape of w1.py. One size at a time is halved, doubled and so on; the sizes of an
axis take turns, because the same machine is faster in one minute than in the next. Cost is the
median over cycles of the time relative to the base's cycle of the same turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from w1 import ANSWER, GROUP, MINI_BATCHES, PROMPTS, SHAPE, FixedLength, endless_model

AXES = {
    "answers": [64, 128, 256, 512, 1024],
    "answer length": [9, 18, 36, 72],
    "layers": [1, 2, 4, 8],
    "experts": [8, 16, 32, 64],
}
BASE = {
    "answers": PROMPTS * GROUP,
    "answer length": ANSWER,
    "layers": SHAPE["num_layers"],
    "experts": SHAPE["num_experts"],
}


def trainer_of(axis: str, size: int) -> Any:
    """A trainer of W1 with one size changed."""
    from gspo_edu.config import TrainConfig
    from gspo_edu.trainer import Trainer

    sizes = {**BASE, axis: size}
    config = TrainConfig(
        prompts=sizes["answers"] // GROUP,
        group_size=GROUP,
        mini_batches=MINI_BATCHES,
        eval_every=0,
        eval_prompts=1,
        drift_probe=0,
    )
    model = endless_model(num_layers=sizes["layers"], num_experts=sizes["experts"])
    return Trainer(config, model, FixedLength(sizes["answer length"]))


def relative_costs(axis: str, cycles: int) -> dict[int, float]:
    """Cost of each size of ``axis``, relative to the base."""
    trainers = {size: trainer_of(axis, size) for size in AXES[axis]}
    seconds: dict[int, list[float]] = {size: [] for size in trainers}
    for cycle in range(cycles + 1):
        for size, trainer in trainers.items():
            begun = time.perf_counter()
            trainer.next_rollout()
            if cycle:  # the first one warms caches and allocators up
                seconds[size].append(time.perf_counter() - begun)
    base = seconds[BASE[axis]]
    return {
        size: statistics.median(mine / its for mine, its in zip(times, base, strict=True))
        for size, times in seconds.items()
    }


def drawn(costs: dict[str, dict[int, float]]) -> Any:
    """One panel per axis: cost against size, with the straight line of proportional growth."""
    from gspo_edu.plots import BLUE, GREY, new_figure

    figure, axes = new_figure(len(costs), width=2.8)
    for panel, (axis, found) in zip(axes, costs.items(), strict=True):
        sizes, values = list(found), list(found.values())
        proportional = [size / BASE[axis] for size in sizes]
        panel.plot(sizes, proportional, color=GREY, linestyle="--", label="proportional")
        panel.plot(sizes, values, color=BLUE, marker="o", label="measured")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.set_xlabel(axis)
        panel.set_ylim(0.2, 6)
        panel.set_yticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
        panel.minorticks_off()
    axes[0].set_ylabel("time of a cycle (base: 1)")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=7, help="measured cycles of each size")
    parser.add_argument("--out", type=Path, help="folder for scaling.json and scaling.png")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    costs = {}
    for axis in AXES:
        costs[axis] = relative_costs(axis, args.cycles)
        shown = "  ".join(f"{size}: {cost:.2f}" for size, cost in costs[axis].items())
        print(f"{axis:<14} {shown}", flush=True)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "scaling.json").write_text(json.dumps(costs, indent=2) + "\n")
        drawn(costs).savefig(args.out / "scaling.png", dpi=150)
    if args.json:
        print(json.dumps(costs))


if __name__ == "__main__":
    main()
