"""W1: one RL cycle (generation, reward, old log-probs, four updates), here and in TRL.

    python benchmarks/w1.py                 this project alone
    python benchmarks/w1.py --trl           side by side with TRL's GRPOTrainer, alternating
    python benchmarks/w1.py --trl --json    the last line is one JSON object
    python benchmarks/w1.py --profile       where the time goes, by operation

4 layers, width 64, 4 heads of 16, 16 experts top-2 of width 64, fp32; prompts of 17 tokens,
answers of exactly 18; 32 prompts x 8 answers; four mini-batches of 64; GSPO; one core, one thread.
TRL needs `pip install -e ".[real]"`; it runs with the fastest settings found for it (see
w1_trl.py). Both workers live side by side and take turns, since the same machine is faster in one
minute than in the next: compare medians of ratios, never seconds of different runs. The matmul
floor is the time of the cycle's matrix products alone: the same shapes, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROMPT, ANSWER, PROMPTS, GROUP, MINI_BATCHES = 17, 18, 32, 8, 4
SHAPE = {
    "num_layers": 4,
    "width": 64,
    "num_heads": 4,
    "head_dim": 16,
    "num_experts": 16,
    "top_k": 2,
    "expert_width": 64,
}
VOCABULARY = 14
# glibc gives memory back to the system after each step and takes it anew: slow for either side.
MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
}
KEYS = ("seconds_per_cycle", "generation_seconds", "old_logp_seconds", "update_seconds")


class Worker:
    """A process that runs one cycle whenever it is told to."""

    def __init__(self, script: str, core: int, *words: str) -> None:
        """Start ``script`` with ``--worker`` and ``words`` on one core."""
        variables = {**os.environ, **MALLOC, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(HERE / script), "--worker", *words]
        if hasattr(os, "sched_setaffinity"):
            command = ["taskset", "-c", str(core), *command]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        )
        self.imports = self.answer()

    def answer(self) -> Any:
        """The next JSON line that the worker prints."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.process.args} ended with status {self.process.wait()}.")

    def cycle(self, order: str = "go") -> Any:
        """Run one cycle; its times in seconds and the peak memory in MB."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return self.answer()

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def peak_rss_mb() -> float:
    """Peak resident memory of this process."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def serve() -> None:
    """Worker: build the trainer, then run a cycle for each line on stdin."""
    started = time.perf_counter()
    import torch

    import gspo_edu.trainer as trainer_module
    from gspo_edu.config import TrainConfig

    imports = time.perf_counter() - started
    spent = dict.fromkeys(KEYS, 0.0)

    def timed(name: str, function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            result = function(*args, **kwargs)
            spent[name] += time.perf_counter() - begun
            return result

        return wrapper

    config = TrainConfig(
        prompts=PROMPTS,
        group_size=GROUP,
        mini_batches=MINI_BATCHES,
        eval_every=0,
        eval_prompts=1,
        drift_probe=0,
    )
    trainer = trainer_module.Trainer(config, endless_model(), FixedLength())
    trainer_module.sampled_rollout = timed("generation_seconds", trainer_module.sampled_rollout)
    trainer.as_old_policy = timed("old_logp_seconds", trainer.as_old_policy)  # type: ignore[method-assign]
    trainer.one_update = timed("update_seconds", trainer.one_update)  # type: ignore[method-assign]
    assert torch.get_num_threads() == 1
    print(json.dumps({"import_seconds": imports}), flush=True)
    for order in sys.stdin:
        if order == "floor\n":
            print(json.dumps({"floor_seconds": matmul_floor(trainer.next_rollout)}), flush=True)
            continue
        if order == "profile\n":
            print(json.dumps({"table": profile_table(trainer.next_rollout)}), flush=True)
            continue
        spent.update(dict.fromkeys(KEYS, 0.0))
        begun = time.perf_counter()
        records = trainer.next_rollout()
        spent["seconds_per_cycle"] = time.perf_counter() - begun
        assert records[0]["length"] == ANSWER
        assert len(records) == MINI_BATCHES
        print(json.dumps({**spent, "peak_rss_mb": peak_rss_mb()}), flush=True)


def matmul_floor(cycle: Any) -> float:
    """Seconds that the matrix products of ``cycle()`` take alone."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    products = {"mm", "addmm", "bmm", "baddbmm", "baddbmm_", "_grouped_mm"}
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
    pool: dict[Any, Any] = {}

    def stand_in(value: Any) -> Any:
        # Offsets decide how the work is shared out, so they are kept as they are.
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        key = (tuple(value.shape), value.stride())
        if key not in pool:
            pool[key] = torch.empty_strided(*key).normal_()
        return pool[key]

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func._schema.name.removeprefix("aten::") in products:
                held = {name: stand_in(value) for name, value in kwargs.items()}
                calls.append((func, tuple(map(stand_in, args)), held))
            return func(*args, **kwargs)

    with Recorder():
        cycle()
    seconds = []
    with torch.no_grad():
        for _ in range(5):
            begun = time.perf_counter()
            for func, args, kwargs in calls:
                func(*args, **kwargs)
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def profile_table(cycle: Any) -> str:
    """The operations that take most of ``cycle()``, by their own time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        cycle()
    return found.key_averages().table(
        sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=45
    )


def endless_model(**changes: int) -> Any:
    """The model of W1, which never samples the end token: every answer has the full length.

    ``changes`` replace sizes of ``SHAPE``.
    """
    import dataclasses

    import torch

    from gspo_edu.moe import ModelConfig, TinyMoE
    from gspo_edu.tasks.base import END

    never = torch.zeros(VOCABULARY)
    never[END] = -1e4

    class Endless(TinyMoE):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            result = super().forward(*args, **kwargs)
            return dataclasses.replace(result, logits=result.logits + never)

    return Endless(ModelConfig(VOCABULARY, **(SHAPE | changes)))  # type: ignore[arg-type]


class FixedLength:
    """Random digits; the reward is the share of ascending neighbours, whatever the length."""

    prompt_length = PROMPT

    def __init__(self, answer: int = ANSWER) -> None:
        self.max_new_tokens = answer

    def random_prompts(self, count: int, generator: Any) -> Any:
        """(count, 17) digits."""
        import torch

        return torch.randint(0, 10, (count, PROMPT), generator=generator)

    def rewards(self, prompts: Any, tokens: Any, mask: Any, finished: Any) -> Any:
        """(B,) share of neighbours in ascending order."""
        return (tokens[:, 1:] >= tokens[:, :-1]).float().mean(dim=1)

    def exact(self, prompts: Any, tokens: Any, mask: Any, finished: Any) -> Any:
        """(B,) whether all are."""
        return self.rewards(prompts, tokens, mask, finished) == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trl", action="store_true", help="side by side with TRL")
    parser.add_argument("--cycles", type=int, default=10, help="measured cycles of each side")
    parser.add_argument("--core", type=int, default=0, help="the core that both run on")
    parser.add_argument("--profile", action="store_true", help="this side, by operation")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve()
        return
    sides = {"gspo-edu": Worker("w1.py", args.core)}
    if args.trl:
        sides["TRL"] = Worker("w1_trl.py", args.core)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for cycle in range(args.cycles + 1):
        for name, worker in sides.items():
            measured = worker.cycle()
            if cycle:  # the first one warms caches and allocators up
                found[name].append(measured)
    floor = sides["gspo-edu"].cycle("floor")["floor_seconds"]
    if args.profile:
        print(sides["gspo-edu"].cycle("profile")["table"])
    medians = {
        name: {key: statistics.median(cycle[key] for cycle in cycles) for key in cycles[0]}
        for name, cycles in found.items()
    }
    for name, worker in sides.items():
        times = "  ".join(f"{key} {medians[name][key]:.3f}" for key in medians[name])
        print(f"{name:<9} imports {worker.imports['import_seconds']:.2f} s  {times}")
        worker.stop()
    report: dict[str, Any] = dict(medians["gspo-edu"]) | {"matmul_floor_seconds": floor}
    share = report["seconds_per_cycle"] / floor
    print(f"matmul floor {floor:.3f} s: a cycle takes {share:.2f} times as long")
    if args.trl:
        pairs = zip(found["TRL"], found["gspo-edu"], strict=True)
        ratios = sorted(t["seconds_per_cycle"] / g["seconds_per_cycle"] for t, g in pairs)
        middle = statistics.median(ratios)
        print(
            f"TRL / gspo-edu, cycle by cycle: median {middle:.2f} "
            f"(min {ratios[0]:.2f}, max {ratios[-1]:.2f}, {len(ratios)} pairs)"
        )
        report |= {"trl": medians["TRL"], "ratios": ratios, "median_ratio": middle}
        memory = medians["gspo-edu"]["peak_rss_mb"] / medians["TRL"]["peak_rss_mb"]
        print(f"peak memory gspo-edu / TRL: {memory:.2f}")
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
