"""Runs that differ in their seed only, as one batch of models: what fills a GPU.

The tiny model leaves a GPU idle: it waits for the next small operation nearly all the time. Here an
operation serves all Z models at once, so that their number hardly changes how many there are.

- The weights of all models are one matrix (Z, D), a row per model, and ``torch.vmap`` turns one
  model's pass into the pass of all.
- All seeds' prompts and answers are one ``Rollout``, seed after seed. What treats every answer
  alone, like the reward or the log-prob of a token, needs to know nothing of seeds.
- No shape depends on what is sampled (contexts with ``fixed_shapes``): every expert computes every
  token, and answers that have ended are masked, not dropped. That is several times the arithmetic,
  so on a CPU separate runs are faster.
- Each seed keeps a ``Trainer``, with its generators, whose weights and optimiser state are views of
  the batch's. It judges its own rollout and writes its own records, on the CPU.

A seed's run is the same, up to rounding, as with a ``Trainer`` of its own on ``fixed_shapes``: same
prompts, same samples, same shuffles, whichever other seeds are in the batch.

Left out on purpose: a critic, the load-balancing loss, and engines other than the trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from gspo_edu.adamw import MEANS, AdamW
from gspo_edu.batch import Rollout, mini_batch_rows
from gspo_edu.objectives import ObjectiveResult
from gspo_edu.records import Record, about_held_out, live_routes
from gspo_edu.sampler import (
    DIVERGED,
    AnswerScore,
    DivergedError,
    Sampled,
    answer_log_probs,
    fixed_layout,
    rollout_of,
    sampling_noise,
)
from gspo_edu.stacked import StackedPolicy
from gspo_edu.tasks import TwoTurnWalk
from gspo_edu.trainer import EVAL_ANSWERS, Trainer, with_old

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
# What a run may not have here, and the only value that will do.
UNBATCHED = {"critic": False, "balance": 0.0, "engine": "fp32", "lag": 0}


@dataclass(frozen=True)
class Update:
    """What an update of all models leaves for their records, seed after seed.

    Attributes:
        batch: the answers, Z mini-batches in one.
        score: of them, before the update.
        loss, norms: (Z,).
        metrics: the objective's, each (Z, ...).
        after: see ``Trainer.after``.
    """

    batch: Rollout
    score: AnswerScore
    loss: Tensor
    norms: Tensor
    metrics: dict[str, Tensor]
    after: Tensor | None


class SeedBatch:
    """Trains the runs of several trainers together.

    Attributes:
        trainers: one per seed; while the batch trains them, they must not train alone.
        policy: their models.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        """Go on from where the trainers are, the start or equally many rollouts later.

        Raises:
            ValueError: naming what cannot be trained in one batch.
        """
        check_batch(trainers)
        self.trainers, self.first = list(trainers), trainers[0]
        self.config, self.task, self.device = self.first.config, self.first.task, self.first.device
        self.policy = StackedPolicy([one.model for one in trainers])
        self.reference = StackedPolicy([one.reference for one in trainers])
        self.reference.weights.requires_grad_(False)
        rows = self.policy.weights.detach()
        self.optimizer = AdamW(rows, lr=self.config.lr, weight_decay=self.config.weight_decay)
        means = {name: torch.zeros_like(rows) for name in MEANS}
        for index, one in enumerate(trainers):
            states = one.optimizer.state
            own = {name: mean[index] for name, mean in means.items()}
            step = states[0]["step"].clone() if states else torch.zeros((), device=self.device)
            self.optimizer.state[index] = {"step": step, **own}
            views = [self.policy.named(x).values() for x in (rows[index], *own.values())]
            for number, (weight, view, *slots) in enumerate(
                zip(one.model.parameters(), *views, strict=True)
            ):
                weight.data = view
                before = states.get(number, {})
                for name, slot in zip(MEANS, slots, strict=True):
                    slot.copy_(before.get(name, slot))
                states[number] = {"step": step, **dict(zip(MEANS, slots, strict=True))}

    def records(self) -> Iterator[list[Record]]:
        """Train to the end; for each update a list of records, one per seed."""
        while self.first.rollout < self.config.rollouts:
            yield from map(list, zip(*self.next_rollout(), strict=True))

    def next_rollout(self) -> list[list[Record]]:
        """``Trainer.next_rollout`` for all seeds; the records of each."""
        prompts = torch.cat([one.training_prompts() for one in self.trainers]).to(self.device)
        rollout = self.sampled(prompts, self.config.group_size, [one.dice for one in self.trainers])
        pairs = zip(self.trainers, self.of_seeds(rollout), strict=True)
        judged = [one.judged(own) for one, own in pairs]
        advantages = torch.cat([found[0] for found in judged]).to(self.device)
        rollout = self.as_old_policy(rollout)
        records: list[list[Record]] = [[] for _ in self.trainers]
        for _ in range(self.config.epochs):
            # All that needs to know values comes before the epoch's updates or after them.
            batches = list(self.mini_batches(rollout, advantages))
            made = self.first.update
            updates = [self.one_update(*batch) for batch in batches]
            for number, update in enumerate(updates, made + 1):
                index = {"rollout": self.first.rollout + 1, "update": number}
                for mine, found, about in zip(records, judged, self.about(update), strict=True):
                    mine.append({**index, **found[2], **about})
        for one, slots in zip(self.trainers, self.optimizer.state.values(), strict=True):
            one.rollout += 1
            steps = slots["step"].repeat(len(one.optimizer.state))
            for own, step in zip(one.optimizer.state.values(), steps, strict=True):
                own["step"] = step
        if self.first.evaluates():
            for mine, held_out in zip(records, self.held_out_metrics(), strict=True):
                mine[-1].update(held_out)
        return records

    @torch.no_grad()
    def sampled(self, prompts: Tensor, group_size: int, dice: Sequence[torch.Generator]) -> Rollout:
        """The answers of all models to their prompts (Z P, T_prompt), with a generator each.

        Raises:
            DivergedError: naming the seeds whose log-probs are not finite.
        """
        count, config = len(self.trainers), self.policy.config
        answers = len(prompts) // count * group_size
        shape = (self.task.max_new_tokens, answers, config.vocab_size)
        noise = torch.stack([sampling_noise(shape, own) for own in dice])
        found = self.policy.answers(
            prompts.unflatten(0, (count, -1)), group_size, noise, self.config.temperature
        )
        pairs = zip(self.trainers, found.finite.flatten().tolist(), strict=True)
        diverged = [one.config.seed for one, finite in pairs if not finite]
        if diverged:
            raise DivergedError(f"seeds {diverged}: {DIVERGED}")
        return rollout_of(self.task, prompts, Sampled(*(x.flatten(0, 1) for x in found)), config)

    def of_seeds(self, rollout: Rollout) -> list[Rollout]:
        """Each seed's part of a rollout, on the CPU."""
        per_seed = len(rollout.prompts) // len(self.trainers)
        return parts(replace(rollout, group=rollout.group % per_seed), len(self.trainers))

    @torch.no_grad()
    def as_old_policy(self, rollout: Rollout) -> Rollout:
        """As ``Trainer.as_old_policy``; routes that will be replayed are checked here, once."""
        config = self.config
        if config.recompute_old or config.replay == "r2":
            rollout = with_old(
                config, rollout, self.score(self.policy, rollout, config.replay == "r3")
            )
        if config.replay != "none" and rollout.routes is not None:
            routes = rollout.routes.check(self.policy.config, rollout.mask, rollout.prompts)
            rollout = replace(rollout, routes=routes)
        return rollout

    def mini_batches(
        self, rollout: Rollout, advantages: Tensor
    ) -> Iterator[tuple[Rollout, Tensor, Rollout | None]]:
        """An epoch's: for each update every seed's answers, their advantages, and drift's probe."""
        count, config = len(self.trainers), self.config
        size, group = len(rollout) // count, self.of_seeds(rollout)[0].group
        shuffled = [mini_batch_rows(group, config.mini_batches, one.order) for one in self.trainers]
        for drawn in zip(*shuffled, strict=True):
            own = torch.stack(drawn) + size * torch.arange(count)[:, None]
            rows = own.flatten().to(self.device)
            probed = own[:, : config.drift_probe].flatten().to(self.device)
            measured = len(probed) and rollout.routes is not None
            yield rollout.rows(rows), advantages[rows], rollout.rows(probed) if measured else None

    def score(self, policy: StackedPolicy, batch: Rollout, replay: bool = False) -> AnswerScore:
        """``answer_log_probs`` without a look at any value; ``replay``: with the batch's routes."""
        size, own = self.config.group_size, len(batch) // len(self.trainers)
        # Where groups were cut, each answer gets a copy of its prompt.
        layout = fixed_layout(batch, 1 if own % size else size)
        routes = batch.routes if replay else None
        temperature = self.config.temperature
        return answer_log_probs(
            policy, batch, temperature=temperature, replay=routes, layout=layout
        )

    def one_update(self, batch: Rollout, advantages: Tensor, probe: Rollout | None) -> Update:
        """A step of every model on its own mini-batch; see ``mini_batches``."""
        config, count = self.config, len(self.trainers)
        replay = config.replay != "none"
        score = self.score(self.policy, batch, replay)
        given = [score.logp, batch.logp_old, advantages, self.first.loss_mask(batch)]
        if config.beta:
            given.append(self.score(self.reference, batch).logp)
        given = [x.unflatten(0, (count, -1)) for x in given]

        def objective(*given: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            found = self.first.objective(*given)
            return found.loss, found.metrics

        if self.first.update == 1:
            objective(*(x[0].detach() for x in given))  # alone, it can warn about its settings
        loss, metrics = torch.vmap(objective)(*given)
        # No model enters another one's loss, so the gradient of the sum is each one's own.
        (gradient,) = torch.autograd.grad(loss.sum(), self.policy.weights)
        norms = self.step(gradient)
        for one in self.trainers:
            one.update += 1
        after = None
        if probe is not None:
            with torch.no_grad():
                again = self.score(self.policy, probe, replay)
            after = live_routes(again.routes, again.router_logits, probe.routes if replay else None)
        return Update(batch, score, loss.detach(), norms, metrics, after)

    def step(self, gradient: Tensor) -> Tensor:
        """Bound each model's gradient and step; returns the (Z,) norms before.

        A model whose gradient is not finite stays as it is, as in a ``Trainer``: for that, the host
        reads Z truth values.
        """
        norms: Tensor = gradient.norm(dim=1)
        # As torch.nn.utils.clip_grad_norm_ does it, for each row.
        factor = (self.config.max_grad_norm / (norms + 1e-6)).clamp(max=1)
        bounded = gradient * factor[:, None]
        usable = torch.isfinite(norms).tolist()
        for row, own, fits in zip(self.optimizer.parameters, bounded, usable, strict=True):
            row.grad = own if fits else None
        self.optimizer.step()
        return norms

    def about(self, update: Update) -> list[Record]:
        """The records of an update, worked out by each seed's trainer on the CPU."""
        count, replay = len(self.trainers), self.config.replay != "none"
        batches, scores = self.of_seeds(update.batch), parts(update.score, count)
        after = [None] * count if update.after is None else update.after.cpu().chunk(count)
        loss, norms = update.loss.cpu(), update.norms.cpu()
        metrics = {name: value.cpu() for name, value in update.metrics.items()}
        return [
            one.about_update(
                batches[i],
                scores[i],
                ObjectiveResult(loss[i], torch.empty(0), {n: v[i] for n, v in metrics.items()}),
                norms[i],
                batches[i].routes if replay else None,
                after[i],
            )
            for i, one in enumerate(self.trainers)
        ]

    def held_out_metrics(self) -> list[Record]:
        """``Trainer.held_out_metrics`` of all models, on the same prompts with the same noise."""
        prompts, _ = self.first.held_out()
        dice = [one.held_out()[1] for one in self.trainers]
        rollout = self.sampled(prompts.repeat(len(self.trainers), 1), EVAL_ANSWERS, dice)
        return [about_held_out(self.task, own) for own in self.of_seeds(rollout)]


def parts(record: T, count: int) -> list[T]:
    """A dataclass of tensors as ``count`` of them, cut along the first dimension, on the CPU."""
    cut: dict[str, Sequence[Any]] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Tensor):
            cut[field.name] = value.detach().cpu().chunk(count)
        elif dataclasses.is_dataclass(value):
            cut[field.name] = parts(value, count)
        else:
            cut[field.name] = [value] * count
    return [
        replace(record, **{name: values[index] for name, values in cut.items()})
        for index in range(count)
    ]


def check_batch(trainers: Sequence[Trainer]) -> None:
    """Raise ValueError unless the trainers can be trained in one batch."""
    if not trainers:
        raise ValueError("trainers is empty; expected one trainer per seed.")
    seeds, config = [one.config.seed for one in trainers], trainers[0].config
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds are {seeds}; expected all different.")
    wanted = described(trainers[0])
    for one in trainers[1:]:
        for name, value in described(one).items():
            if value != wanted[name]:
                raise ValueError(
                    f"{name} is {value} with seed {one.config.seed} but {wanted[name]} with seed "
                    f"{seeds[0]}; the runs of a batch differ in their seed only."
                )
    for name, only in UNBATCHED.items():
        if getattr(config, name) != only:
            raise ValueError(
                f"{name} is {getattr(config, name)}; a batch of seeds can do {only} only. Train "
                "such runs one by one."
            )
    if isinstance(trainers[0].task, TwoTurnWalk):
        raise ValueError(
            "task is two_turn; a batch of seeds can do tasks of one turn only. Train such runs one "
            "by one."
        )
    if config.prompts % config.mini_batches:
        raise ValueError(
            f"mini_batches is {config.mini_batches}; expected a divisor of prompts = "
            f"{config.prompts}, since a batch of seeds needs whole groups in each mini-batch."
        )


def described(trainer: Trainer) -> dict[str, Any]:
    """What has to agree between the trainers of a batch."""
    shape = dataclasses.asdict(trainer.model.config)
    return {
        **{f"the model's {name}": value for name, value in shape.items()},
        **{k: v for k, v in dataclasses.asdict(trainer.config).items() if k != "seed"},
        "the task": trainer.task,
        "rollouts made": trainer.rollout,
    }
