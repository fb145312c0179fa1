"""Runs that differ in their seed only, as one batch of models: what fills a GPU.

The tiny model leaves a GPU idle; sixteen of them side by side take hardly longer than one. Their
weights are stacked, and ``torch.vmap`` turns one model's pass into all models' passes. No shape
depends on what is sampled (contexts with ``fixed_shapes``): every expert computes every token, and
answers that have ended are masked, not dropped. That costs several times the arithmetic, so on a
CPU separate runs are faster.

Everything but the two passes is the ``Trainer``'s: each seed has one, whose weights are views of
the stack. Updates equal those of separate runs up to rounding. Sampling follows the same
distribution with other random numbers, since one draw per token serves all models at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from gspo_edu.adamw import MEANS, AdamW
from gspo_edu.batch import Rollout, mini_batch_rows
from gspo_edu.config import TrainConfig
from gspo_edu.metrics import entropy_of
from gspo_edu.moe.contexts import AnswerCache, PromptsWithAnswers, Sequences
from gspo_edu.moe.model import TinyMoE
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.sampler import AnswerScore, DivergedError
from gspo_edu.tasks.base import PAD, Task, masked_after_end
from gspo_edu.trainer import Record, Trainer

Weights = dict[str, Tensor]
# What a run may not have here: it needs passes that are not batched.
UNBATCHED = {"replay": "none", "recompute_old": False, "critic": False}


class SeedBatch:
    """Z runs of one config, one per seed.

    Attributes:
        trainers: one per seed, in the order of the seeds; their models are views of ``weights``.
        weights: name -> (Z, ...) the stacked weights, which the optimiser changes.
    """

    def __init__(
        self, config: TrainConfig, seeds: Sequence[int], model: TinyMoE, task: Task
    ) -> None:
        """Start all runs from copies of ``model``; ``config.seed`` is not used.

        Raises:
            ValueError: if there are no seeds or two are equal, if the config needs what is not
                batched, or mini-batches would not hold whole groups.
        """
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds is {list(seeds)}; expected at least one, all different.")
        for name, only in UNBATCHED.items():
            if getattr(config, name) != only:
                raise ValueError(
                    f"{name} is {getattr(config, name)}; a batch of seeds takes {only} only. Use "
                    "separate runs."
                )
        if config.prompts % config.mini_batches:
            raise ValueError(
                f"mini_batches is {config.mini_batches}; a batch of seeds needs whole groups in "
                f"each: a divisor of prompts = {config.prompts}."
            )
        self.config, self.task = config, task
        self.trainers = [
            Trainer(replace(config, seed=seed), copy.deepcopy(model), task) for seed in seeds
        ]
        self.device = self.trainers[0].device
        stacked, _ = stack_module_state([one.model for one in self.trainers])
        self.weights: Weights = {name: w.detach().requires_grad_() for name, w in stacked.items()}
        for index, one in enumerate(self.trainers):
            for name, weight in one.model.named_parameters():
                weight.data = self.weights[name].data[index]
        self.optimizer = AdamW(
            self.weights.values(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.dice = [one.dice for one in self.trainers]

    def records(self) -> Iterator[list[Record]]:
        """Train to the end; per rollout, each seed's records."""
        for _ in range(self.config.rollouts):
            yield from zip(*self.next_rollout(), strict=True)

    def next_rollout(self) -> list[list[Record]]:
        """One rollout and its updates for every seed; each seed's records, as a Trainer's."""
        rollouts = self.sampled_rollouts([one.training_prompts() for one in self.trainers])
        judged = [one.judged(own) for one, own in zip(self.trainers, rollouts, strict=True)]
        records: list[list[Record]] = [[] for _ in self.trainers]
        for _ in range(self.config.epochs):
            shuffled = [
                list(mini_batch_rows(own.group, self.config.mini_batches, one.order))
                for one, own in zip(self.trainers, rollouts, strict=True)
            ]
            for rows in zip(*shuffled, strict=True):
                # In the order of the groups, which are whole: every seed has the same layout.
                ordered = [own.sort().values for own in rows]
                batches = [own.rows(index) for own, index in zip(rollouts, ordered, strict=True)]
                advantages = [found[0][index] for found, index in zip(judged, ordered, strict=True)]
                updates = self.one_update(batches, advantages)
                for one, mine, found, update in zip(
                    self.trainers, records, judged, updates, strict=True
                ):
                    one.update += 1
                    index = {"rollout": one.rollout + 1, "update": one.update}
                    mine.append({**index, **found[2], **update})
        for one, mine in zip(self.trainers, records, strict=True):
            one.rollout += 1
            if one.evaluates():
                mine[-1].update(one.held_out_metrics())
        return records

    def one_update(self, batches: list[Rollout], advantages: list[Tensor]) -> list[Record]:
        """One step of every model on its own mini-batch, all of one layout.

        Raises:
            ValueError: if the mini-batches differ in shape.
        """
        scores = self.scores(batches)
        parts = [
            one.loss(batch, advantage, score)
            for one, batch, advantage, score in zip(
                self.trainers, batches, advantages, scores, strict=True
            )
        ]
        self.optimizer.zero_grad()
        # No model enters another one's loss, so the gradient of the sum is each one's own.
        torch.stack([loss for loss, _ in parts]).sum().backward()
        norms = self.step()
        return [
            one.about_update(batch, score, result, norm)
            for one, batch, score, (_, result), norm in zip(
                self.trainers, batches, scores, parts, norms, strict=True
            )
        ]

    def step(self) -> Tensor:
        """Bound each model's gradient and step; (Z,) norms before that.

        A model whose gradient is not finite stays as it is, with its means, as in a Trainer.
        """
        grads = [w.grad for w in self.weights.values() if w.grad is not None]
        norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
        usable = torch.isfinite(norms)
        factor = (self.config.max_grad_norm / (norms + 1e-6)).clamp(max=1).where(usable, 0.0)
        for grad in grads:
            shape = (-1, *[1] * (grad.dim() - 1))
            grad.mul_(factor.view(shape)).nan_to_num_(0.0, 0.0, 0.0)
        held = self.optimizer.parameters
        kept = [weight.detach().clone() for weight in held]
        means = {i: {n: s[n].clone() for n in MEANS} for i, s in self.optimizer.state.items()}
        self.optimizer.step()
        with torch.no_grad():
            for index, (weight, before) in enumerate(zip(held, kept, strict=True)):
                on = usable.view(-1, *[1] * (weight.dim() - 1))
                weight.copy_(weight.where(on, before))
                for name in MEANS:
                    mean = self.optimizer.state[index][name]
                    old = means[index][name] if index in means else torch.zeros_like(mean)
                    mean.copy_(mean.where(on, old))
        found: Tensor = norms
        return found

    def scores(self, batches: list[Rollout]) -> list[AnswerScore]:
        """``sampler.answer_log_probs`` of every model on its own batch, padding included."""
        first = batches[0]
        if any(
            own.prompts.shape != first.prompts.shape or not torch.equal(own.group, first.group)
            for own in batches
        ):
            raise ValueError("batches differ in their prompts or groups; expected one layout.")
        width = max(own.tokens.shape[1] for own in batches)
        tokens = torch.stack([right_padded(own.tokens, width) for own in batches])
        prompts = torch.stack([own.prompts for own in batches])
        group, shape = first.group, (first.prompts.shape[0], first.prompts.shape[1] - 1)
        template, config = self.trainers[0].model, self.trainers[0].model.config
        inside = torch.ones(len(group), width, dtype=torch.bool, device=self.device)

        def one_pass(
            weights: Weights, prompts: Tensor, tokens: Tensor
        ) -> tuple[Tensor, Tensor, Tensor]:
            context = PromptsWithAnswers(*shape, group, inside, fixed_shapes=True)
            inputs = torch.cat([prompts[group, -1:], tokens[:, :-1]], dim=1)
            flat = torch.cat([prompts[:, :-1].flatten(), inputs.flatten()])
            found = functional_call(template, weights, (flat, context))
            return found.logits, found.routes, found.router_logits

        logits, routes, router_logits = torch.vmap(one_pass)(self.weights, prompts, tokens)
        log_probs = (logits / self.config.temperature).log_softmax(dim=-1)
        chosen = log_probs.gather(-1, tokens.flatten(1)[..., None])[..., 0]
        entropy, silent = entropy_of(log_probs.detach()), shape[0] * shape[1]
        scores = []
        for index, own in enumerate(batches):
            mask, length = own.mask, own.mask.shape[1]

            def cut(x: Tensor, length: int = length) -> Tensor:
                return x.view(len(group), width, *x.shape[1:])[:, :length]

            trace = None
            if not config.dense:
                answer = cut(routes[index, silent:]).where(mask[..., None, None], -1)
                prompt = routes[index, :silent].unflatten(0, shape)
                trace = RouteTrace(prompt, answer, config.routed_layers)
            scores.append(
                AnswerScore(
                    logp=cut(chosen[index]).where(mask, 0.0),
                    entropy=cut(entropy[index]).where(mask, 0.0),
                    routes=trace,
                    router_logits=cut(router_logits[index, silent:]),
                )
            )
        return scores

    @torch.no_grad()
    def sampled_rollouts(self, prompts: list[Tensor]) -> list[Rollout]:
        """``sampler.sampled_rollout`` of every model for its own prompts (P, T_prompt)."""
        shown = torch.stack(prompts).to(self.device)
        size, limit = self.config.group_size, self.task.max_new_tokens
        shape = (shown.shape[1], shown.shape[2] - 1)
        group = torch.arange(shape[0], device=self.device).repeat_interleave(size)
        template, temperature = self.trainers[0].model, self.config.temperature
        draws = torch.stack(
            [torch.rand(limit, len(group), generator=d, device=self.device) for d in self.dice]
        )

        def one_sample(weights: Weights, prompts: Tensor, draws: Tensor) -> tuple[Tensor, ...]:
            read = Sequences(*shape, fixed_shapes=True)
            of_prompt = functional_call(template, weights, (prompts[:, :-1].flatten(), read))
            cache, current = AnswerCache(read, size, limit), prompts[group, -1]
            tokens, logp, routes = [], [], []
            for draw in draws:
                step = functional_call(template, weights, (current, cache))
                log_probs = (step.logits / temperature).log_softmax(dim=-1)
                # The first token at which the cumulative probability passes the draw.
                upto = log_probs.exp().cumsum(dim=-1)
                current = (upto[:, :-1] <= draw[:, None] * upto[:, -1:]).sum(dim=-1)
                tokens.append(current)
                logp.append(log_probs.gather(1, current[:, None])[:, 0])
                routes.append(step.routes)
                cache.step += 1
            return (*(torch.stack(x, dim=1) for x in (tokens, logp, routes)), of_prompt.routes)

        tokens, logp, routes, of_prompts = torch.vmap(one_sample)(self.weights, shown, draws)
        if not torch.isfinite(logp).all():
            raise DivergedError(
                "a policy's log-probs are not finite: training has diverged. Use a lower lr."
            )
        config, found = template.config, []
        for index in range(len(prompts)):
            mask, finished = masked_after_end(tokens[index])
            own = tokens[index].where(mask, PAD)
            trace = RouteTrace(
                of_prompts[index].unflatten(0, shape),
                routes[index].where(mask[..., None, None], -1),
                config.routed_layers,
            )
            found.append(
                Rollout(
                    prompts=shown[index],
                    tokens=own,
                    mask=mask,
                    logp_old=logp[index].where(mask, 0.0),
                    rewards=self.task.rewards(shown[index][group], own, mask, finished),
                    group=group,
                    finished=finished,
                    routes=None if config.dense else trace,
                )
            )
        return found


def right_padded(tokens: Tensor, width: int) -> Tensor:
    """(B, T) as (B, width), with padding tokens on the right."""
    return torch.nn.functional.pad(tokens, (0, width - tokens.shape[1]), value=PAD)
