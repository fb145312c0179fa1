"""Every right way to write a task passes: loops, NumPy, torch, float32 and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gspo_edu import objectives
from gspo_edu.advantages import group_advantages
from gspo_edu.checks import TASKS, number
from gspo_edu.checks.task import close
from gspo_edu.moe import replay_gates
from gspo_edu.ratios import sequence_ratio, token_ratio


def token_loop(new: Any, old: Any, mask: Any) -> Any:
    return [
        [math.exp(n - o) if m else 0 for n, o, m in zip(*row, strict=True)]
        for row in zip(new, old, mask, strict=True)
    ]


def sequence_loop(new: Any, old: Any, mask: Any) -> Any:
    out = []
    for n, o, m in zip(new, old, mask, strict=True):
        product, length = 1.0, 0
        for t in range(len(n)):
            if m[t]:
                product *= math.exp(n[t]) / math.exp(o[t])
                length += 1
        out.append(product ** (1 / length))
    return out


def sequence_numpy(new: Any, old: Any, mask: Any) -> Any:
    return np.exp(np.mean(np.subtract(new, old), axis=1, where=mask))


def sequence_float32(new: Any, old: Any, mask: Any) -> Any:
    gap = (new.float() - old.float()).masked_fill(~mask, 0)
    return (gap.sum(-1) / mask.sum(-1)).exp()


def settings_in_steps(prompts: int, group: int, parts: int, processes: int) -> dict[str, Any]:
    return {
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "beta": 0,
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "num_generations": group,
        "per_device_train_batch_size": prompts * group // parts // processes,
        "steps_per_generation": parts,
        "learning_rate": 1e-6,
    }


def settings_in_answers(prompts: int, group: int, parts: int, processes: int) -> dict[str, Any]:
    settings = settings_in_steps(prompts, group, parts, processes)
    del settings["steps_per_generation"]
    # Two passes of half the size make an update.
    half = settings["per_device_train_batch_size"] // 2
    settings |= {"per_device_train_batch_size": half, "gradient_accumulation_steps": 2}
    return {**settings, "generation_batch_size": half * processes * parts * 2}


def advantage_loop(rewards: Any) -> Any:
    out = []
    for row in rewards:
        values = [float(x) for x in row]
        middle = sum(values) / len(values)
        spread = math.sqrt(sum((x - middle) ** 2 for x in values) / len(values))
        out.append([(x - middle) / spread if spread else 0.0 for x in values])
    return out


def advantage_torch(rewards: Any) -> Any:
    std = rewards.std(dim=1, keepdim=True, correction=0)
    return (rewards - rewards.mean(dim=1, keepdim=True)) / (std + 1e-8)


def advantage_numpy(rewards: Any) -> Any:
    rewards = np.asarray(rewards)
    return (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, keepdims=True) + 1e-9)


def gspo_loop(new: Any, old: Any, A: Any, mask: Any, low: float, high: float) -> float:
    total = 0.0
    for s, a in zip(sequence_loop(new, old, mask), A, strict=True):
        total += min(s * float(a), min(max(s, 1 - low), 1 + high) * float(a))
    return -total / len(A)


def gspo_numpy(new: Any, old: Any, A: Any, mask: Any, low: float, high: float) -> Any:
    s = np.exp(((new - old) * mask).sum(axis=1) / mask.sum(axis=1))
    return -np.minimum(s * A, np.clip(s, 1 - low, 1 + high) * A).mean()


def gspo_max(new: Any, old: Any, A: Any, mask: Any, low: float, high: float) -> Any:
    s = sequence_ratio(new, old, mask)
    return torch.max(-A * s, -A * torch.clamp(s, 1 - low, 1 + high)).mean().reshape(1)


def gspo_package(new: Any, old: Any, A: Any, mask: Any, low: float, high: float) -> Any:
    return objectives.gspo(new.float(), old.float(), A, mask, clip_low=low, clip_high=high).loss


def grpo_torch(new: Any, old: Any, A: Any, mask: Any, low: float, high: float) -> Any:
    r, a = (new - old).exp(), A.unsqueeze(1)
    term = torch.min(r * a, r.clamp(1 - low, 1 + high) * a)
    return -((term * mask).sum(1) / mask.sum(1)).mean()


def grpo_loop(new: Any, old: Any, A: Any, mask: Any, low: float, high: float) -> float:
    means = []
    for i in range(len(A)):
        own = [t for t in range(len(mask[i])) if mask[i][t]]
        terms = []
        for t in own:
            r = math.exp(float(new[i][t]) - float(old[i][t]))
            terms.append(min(r * float(A[i]), sorted((1 - low, r, 1 + high))[1] * float(A[i])))
        means.append(sum(terms) / len(terms))
    return -sum(means) / len(means)


def term_where(r: Any, a: Any, low: float, high: float) -> Any:
    cut = ((a > 0) & (r > 1 + high)) | ((a < 0) & (r < 1 - low))
    return torch.where(cut, r.clamp(1 - low, 1 + high), r) * a


def fraction_loop(r: Any, A: Any, mask: Any, low: float, high: float) -> float:
    clipped = tokens = 0
    for i in range(len(A)):
        for t in range(len(mask[i])):
            if mask[i][t]:
                tokens += 1
                clipped += (A[i] > 0 and r[i][t] > 1 + high) or (A[i] < 0 and r[i][t] < 1 - low)
    return float(clipped) / tokens


def fraction_grad(r: Any, A: Any, mask: Any, low: float, high: float) -> Any:
    leaf = r.detach().clone().requires_grad_()
    a = A[:, None]
    torch.min(leaf * a, leaf.clamp(1 - low, 1 + high) * a).sum().backward()
    return (leaf.grad[mask] == 0).float().mean()


def router_torch(logits: Any, k: int) -> Any:
    values, experts = logits.topk(k, dim=1)
    return experts, values.softmax(dim=1)


def router_renormalised(logits: Any, k: int) -> Any:
    gates, experts = torch.topk(torch.softmax(logits, dim=-1), k, sorted=False)
    return experts, gates / gates.sum(dim=-1, keepdim=True)


def router_loop(logits: Any, k: int) -> Any:
    experts, gates = [], []
    for row in logits:
        row = [float(x) for x in row]
        best = sorted(range(len(row)), key=lambda e: row[e])[-k:]
        weights = [math.exp(row[e]) for e in best]
        experts.append(best)
        gates.append([w / sum(weights) for w in weights])
    return experts, gates


def replay_torch(logits: Any, experts: Any, old: Any) -> Any:
    return torch.softmax(torch.gather(logits, 1, experts), dim=1)


def replay_numpy(logits: Any, experts: Any, old: Any) -> Any:
    e = np.exp(np.take_along_axis(np.asarray(logits), np.asarray(experts), axis=1))
    return e / e.sum(axis=1, keepdims=True)


def drift_sets(now: Any, before: Any) -> float:
    pairs = list(zip(now, before, strict=True))
    fresh = sum(len({int(x) for x in a} - {int(x) for x in b}) for a, b in pairs)
    return fresh / (len(pairs) * len(pairs[0][0]))


def k3_numpy(p: Any, q: Any) -> Any:
    return np.expm1(q - p) - (q - p)


def k3_torch(p: Any, q: Any) -> Any:
    return (q - p).exp() - 1 - (q - p)


def sizes_one_by_one(answers: int, parts: int) -> list[int]:
    return [len(range(part, answers, parts)) for part in range(parts)]


def product_loop(new: Any, old: Any, mask: Any) -> Any:
    out = []
    for n, o, m in zip(new, old, mask, strict=True):
        out.append(math.prod(math.exp(n[t] - o[t]) for t in range(len(n)) if m[t]))
    return out


def size_loop(weights: Any) -> float:
    total = sum(float(w) for w in weights)
    return 1 / sum((float(w) / total) ** 2 for w in weights)


def weights_autograd(new: Any, old: Any, A: Any, mask: Any, low: float, high: float) -> Any:
    new = new.detach().clone().requires_grad_()
    s = (((new - old) * mask).sum(1) / mask.sum(1)).exp()
    torch.min(s * A, s.clamp(1 - low, 1 + high) * A).mean().backward()
    return new.grad


RIGHT: dict[str, list[Callable[..., Any]]] = {
    "token_ratio": [token_loop, token_ratio, lambda n, o, m: np.where(m, np.exp(n - o), 0)],
    "sequence_ratio": [sequence_loop, sequence_numpy, sequence_float32, sequence_ratio],
    "group_advantage": [advantage_loop, advantage_torch, advantage_numpy],
    "clipped_term": [
        term_where,
        lambda r, a, low, high: objectives.clipped_surrogate(r, a, low, high)[0],
        lambda r, a, low, high: np.minimum(r * a, np.clip(r, 1 - low, 1 + high) * a),
    ],
    "grpo_loss": [grpo_torch, grpo_loop],
    "gspo_loss": [gspo_loop, gspo_numpy, gspo_max, gspo_package],
    "clip_fraction": [fraction_loop, fraction_grad],
    "router_top_k": [router_torch, router_renormalised, router_loop],
    "later_updates": [
        lambda x, n: x.reshape(-1, n)[:, 1:].mean(),
        lambda x, n: np.mean([v for i, v in enumerate(np.asarray(x)) if i % n]),
        lambda x, n: sum(x[i] for i in range(len(x)) if i % n) / (len(x) - len(x) // n),
    ],
    "expert_drift": [
        drift_sets,
        lambda a, b: (a[:, :, None] != b[:, None]).all(-1).double().mean(),
    ],
    "k3": [k3_numpy, k3_torch],
    "mini_batches": [
        sizes_one_by_one,
        lambda n, m: [len(part) for part in np.array_split(np.arange(n), m)],
        lambda n, m: torch.tensor([len(part) for part in torch.arange(n).tensor_split(m)]),
    ],
    "product_ratio": [product_loop, lambda n, o, m: ((n - o) * m).sum(1).exp()],
    "effective_size": [size_loop, lambda w: w.sum() ** 2 / (w**2).sum()],
    "gspo_weights": [weights_autograd],
    "tis_weights": [
        lambda old, engine, m, cap: (old - engine).exp().clamp(max=cap) * m,
        lambda old, engine, m, cap: np.minimum(np.exp(old - engine), cap) * m,
    ],
    "trl_rollout": [
        lambda b, p, s, a, g: (b * p * s / g, s / a),
        lambda b, p, s, a, g: torch.tensor([b * p * s // g, s // a]),
    ],
    "trl_settings": [settings_in_steps, settings_in_answers],
    "replay_gates": [replay_torch, replay_numpy, lambda x, e, old: replay_gates(x, e)],
}


@pytest.mark.parametrize(
    ("task", "function"), [(task, function) for task, them in RIGHT.items() for function in them]
)
def test_a_right_function_passes(task: str, function: Callable[..., Any]) -> None:
    for seed in range(8):
        result = TASKS[task].check(function, seed=seed)
        assert result.passed, str(result)


@pytest.mark.parametrize("task", ["ppo_updates", "gspo_updates"])
@pytest.mark.parametrize("optimiser", ["by hand", "torch.optim"])
def test_a_right_loop_passes(task: str, optimiser: str) -> None:
    objective = objectives.OBJECTIVES[task.split("_")[0]]

    def by_hand(logits: Any, answers: Any, A: Any, n: int, rate: float, a: Any, b: Any) -> Any:
        old, mask = logits.log_softmax(0)[answers], torch.ones_like(answers)
        for _ in range(n):
            x = logits.detach().requires_grad_()
            new = x.log_softmax(0)[answers]
            objective(new, old, A, mask, clip_low=a, clip_high=b).loss.backward()
            logits = x.detach() - rate * x.grad
        return logits

    def with_optim(logits: Any, answers: Any, A: Any, n: int, rate: float, a: Any, b: Any) -> Any:
        x, mask = logits.clone().requires_grad_(), torch.ones_like(answers)
        old, descent = x.detach().log_softmax(0)[answers], torch.optim.SGD([x], lr=rate)
        for _ in range(n):
            descent.zero_grad()
            new = x.log_softmax(0)[answers]
            objective(new, old, A, mask, clip_low=a, clip_high=b).loss.backward()
            descent.step()
        return x

    for seed in range(4):
        function = by_hand if optimiser == "by hand" else with_optim
        assert TASKS[task].check(function, seed=seed).passed


@pytest.mark.parametrize("task", TASKS)
def test_the_formula_without_switches_is_the_package(task: str) -> None:
    for seed in range(10):
        for case in TASKS[task].draw(torch.Generator().manual_seed(seed)):
            assert close(TASKS[task].formula(case), TASKS[task].right(case))


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_fixes_the_inputs_and_another_changes_them(task: str) -> None:
    def drawn(seed: int) -> str:
        return str(TASKS[task].draw(torch.Generator().manual_seed(seed)))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_inputs_differ_from_one_check_to_the_next() -> None:
    seen: list[Any] = []

    def watch(new: Any, old: Any, mask: Any) -> Any:
        seen.append(new.detach().clone())
        return sequence_ratio(new, old, mask)

    for _ in range(2):
        TASKS["sequence_ratio"].check(watch)
    half = len(seen) // 2
    assert not any(torch.equal(a, b) for a, b in zip(seen[:half], seen[half:], strict=True))


def test_the_group_advantage_is_the_lessons() -> None:
    batch = torch.tensor([[1.0, 0.0, 0.5, 0.0]])
    assert torch.allclose(advantage_torch(batch)[0], group_advantages(batch[0], [0] * 4), atol=1e-6)


@pytest.mark.parametrize(
    ("value", "key"),
    [(1.188, "no_root"), (1.05, "arithmetic_mean"), (1.0900, "square_root"), (0.04307, "log")],
)
def test_a_wrong_number_is_named(value: float, key: str) -> None:
    assert number("05 four tokens", value).misconceptions == (key,)


@pytest.mark.parametrize(
    "value", [1.0440, 1.044009, "later", np.float32(1.044), torch.tensor([1.044]), [1.044]]
)
def test_a_right_number_passes_in_any_dress(value: Any) -> None:
    assert number("05 four tokens", value).passed == (value != "later")
