"""The loop: sample a rollout, turn rewards into advantages, take a few clipped gradient steps.

Left out on purpose: learning-rate schedules, mixed precision, dynamic sampling. What is here is
what the PPO, GRPO and GSPO papers need, in the order in which an answer meets it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gspo_edu import metrics
from gspo_edu.adamw import AdamW
from gspo_edu.advantages import check_rewards, group_advantages
from gspo_edu.batch import Rollout, mini_batch_rows
from gspo_edu.config import TrainConfig
from gspo_edu.critic import Critic
from gspo_edu.engines import Engine, engine_metrics
from gspo_edu.moe.experts import load_balancing_loss
from gspo_edu.moe.model import TinyMoE
from gspo_edu.moe.routes import RouteTrace, drift
from gspo_edu.objectives import OBJECTIVES
from gspo_edu.objectives.gspo import RangeWarning
from gspo_edu.objectives.surrogate import ObjectiveResult
from gspo_edu.records import (
    Record,
    about_held_out,
    live_routes,
    plain,
    ratio_metrics,
    rollout_metrics,
)
from gspo_edu.sampler import AnswerScore, answer_log_probs, layout_of, sampled_rollout
from gspo_edu.tasks.base import Task, distinct_held_out_prompts, prompts_of_split
from gspo_edu.trained_state import load_trained_tensors, trained_tensors

EVAL_SEED = 20_250_724
EVAL_ANSWERS = 4  # per held-out prompt
# Added to the seed of prompts and shuffles, so that neighbouring seeds share no random numbers.
DICE_OFFSET = 1_000_003


class Trainer:
    """A policy, its optimiser, and the random state that decides what comes next.

    Attributes:
        rollout: rollouts finished so far.
        update: gradient updates made so far.
        critic: PPO's second model; None where the group is the baseline.
        engine: what samples; ordinarily the model itself.
        initial_held_out: held-out metrics of the policy that training started from.
    """

    def __init__(
        self, config: TrainConfig, model: TinyMoE, task: Task, *, fixed_shapes: bool | None = None
    ) -> None:
        """Start from ``model``, which is trained in place.

        ``fixed_shapes`` is explained in ``sampler.wants_fixed_shapes``.
        """
        torch.set_num_threads(config.threads)
        self.config, self.task, self.fixed_shapes = config, task, fixed_shapes
        self.device = torch_device(config.device)
        self.model = model.to(self.device)
        self.reference = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = AdamW(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.critic = Critic(config, self.model) if config.critic else None
        self.engine = Engine(config.engine, config.lag)
        # Prompts and shuffles are drawn on the CPU, so that they are the same on every device.
        self.order = torch.Generator().manual_seed(config.seed)
        self.dice = torch.Generator(self.device).manual_seed(config.seed + DICE_OFFSET)
        self.rollout = self.update = 0
        self.initial_held_out = self.held_out_metrics()

    def records(self) -> Iterator[Record]:
        """Train to the end, one record per update."""
        while self.rollout < self.config.rollouts:
            yield from self.next_rollout()

    def next_rollout(self) -> list[Record]:
        """Sample one rollout, make its updates and return their records."""
        config = self.config
        rollout = sampled_rollout(
            self.engine.serving(self.model),
            self.task,
            self.training_prompts().to(self.device),
            config.group_size,
            temperature=config.temperature,
            generator=self.dice,
            fixed_shapes=self.fixed_shapes,
        )
        return self.train_on(rollout)

    def train_on(self, rollout: Rollout) -> list[Record]:
        """Make a rollout's updates, whoever sampled it, and return their records."""
        config = self.config
        advantages, targets, about_rollout = self.judged(rollout)
        if self.engine.differs:
            about_rollout |= self.about_engine(rollout, advantages)
        rollout = self.as_old_policy(rollout)
        records = []
        for _ in range(config.epochs):
            for rows in mini_batch_rows(rollout.group, config.mini_batches, self.order):
                batch = rollout.rows(rows)
                about_update = self.one_update(batch, advantages[rows])
                if self.critic is not None and targets is not None:
                    found = self.critic.one_update(batch, targets[rows], self.loss_mask(batch))
                    about_update |= {name: plain(value) for name, value in found.items()}
                self.update += 1
                index = {"rollout": self.rollout + 1, "update": self.update}
                records.append({**index, **about_rollout, **about_update})
        self.rollout += 1
        if self.evaluates():
            records[-1].update(self.held_out_metrics())
        return records

    def evaluates(self) -> bool:
        """Whether a held-out evaluation follows the rollout that has just ended."""
        every = self.config.eval_every
        last = self.rollout == self.config.rollouts
        return last or (every > 0 and self.rollout % every == 0)

    def judged(self, rollout: Rollout) -> tuple[Tensor, Tensor | None, Record]:
        """Advantages, (B,) from the group or (B, T) from the critic; the critic's targets; metrics.

        Without a critic there are no targets.
        """
        config, rewards = self.config, rollout.rewards
        check_rewards(rewards, rollout.group)
        if config.shuffle_rewards:
            order = torch.randperm(len(rewards), generator=self.order)
            rewards = rewards[order.to(rewards.device)]
        targets = None
        if self.critic is not None:
            mask = self.loss_mask(rollout)
            advantages, targets, about = self.critic.judged(rollout, rewards, mask)
        else:
            advantages = group_advantages(
                rewards,
                rollout.group,
                normalize=config.normalizes_advantages(),
                ddof=config.ddof,
                eps=config.advantage_eps,
            )
            signalless = metrics.signalless_group_fraction(rewards, rollout.group)
            about = {"signalless_group_fraction": signalless}
        return (
            advantages,
            targets,
            {
                **rollout_metrics(self.task, rollout),
                **{name: plain(value) for name, value in about.items()},
                "route_bytes": 0 if rollout.routes is None else rollout.routes.nbytes,
            },
        )

    def loss_mask(self, batch: Rollout) -> Tensor:
        """(B, T) bool, true on the response tokens that count in the losses."""
        return batch.mask & batch.finished[:, None] if self.config.mask_unfinished else batch.mask

    def training_prompts(self) -> Tensor:
        """Prompts of the next rollout: new ones, or others of the pool each time."""
        config = self.config
        if config.prompt_pool is None:
            return prompts_of_split(self.task, config.prompts, self.order, held_out=False)
        # The pool follows from the seed alone, so that a resumed run has the same one.
        fixed = torch.Generator().manual_seed(config.seed + 2 * DICE_OFFSET)
        pool = prompts_of_split(self.task, config.prompt_pool, fixed, held_out=False)
        return pool[torch.randperm(len(pool), generator=self.order)[: config.prompts]]

    def score(
        self, model: TinyMoE, batch: Rollout, replay: RouteTrace | None = None
    ) -> AnswerScore:
        """``answer_log_probs`` at the run's temperature and in its layout."""
        layout = layout_of(batch, self.fixed_shapes)
        temperature = self.config.temperature
        return answer_log_probs(model, batch, temperature=temperature, replay=replay, layout=layout)

    @torch.no_grad()
    def as_old_policy(self, rollout: Rollout) -> Rollout:
        """The rollout with the log-probs and routes that ratios and replay shall refer to."""
        config = self.config
        if not config.recompute_old and config.replay != "r2":
            return rollout
        return with_old(config, rollout, self.old_score(rollout))

    def old_score(self, rollout: Rollout) -> AnswerScore:
        """The trainer's own pass over a rollout; R3 replays the engine's routes here as well."""
        replay = None
        if self.config.replay == "r3" and rollout.routes is not None:
            replay = rollout.routes.check(self.model.config, rollout.mask, rollout.prompts)
        return self.score(self.model, rollout, replay)

    @torch.no_grad()
    def about_engine(self, rollout: Rollout, advantages: Tensor) -> Record:
        """How far the engine that sampled is from the model, before any update."""
        score, mask = self.old_score(rollout), self.loss_mask(rollout)
        replay = rollout.routes if self.config.replay == "r3" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RangeWarning)
            result = self.objective(score.logp, rollout.logp_old, advantages, mask)
        routes = live_routes(score.routes, score.router_logits, replay)
        found = engine_metrics(score.logp, routes, rollout, mask, result)
        return {name: plain(value) for name, value in found.items()}

    def one_update(self, batch: Rollout, advantages: Tensor) -> Record:
        """One clipped gradient step on a mini-batch, with what it did to the policy."""
        config, replay = self.config, None
        if config.replay != "none" and batch.routes is not None:
            replay = batch.routes.check(self.model.config, batch.mask, batch.prompts)
        score = self.score(self.model, batch, replay)
        logp_ref = self.reference_log_probs(batch) if config.beta else None
        with warnings.catch_warnings():
            # Once a run is enough: in the second update, the first in which ratios can differ.
            if self.update != 1:
                warnings.simplefilter("ignore", RangeWarning)
            result = self.objective(
                score.logp,
                batch.logp_old,
                advantages,
                self.loss_mask(batch),
                logp_ref,
                batch.logp_rollout,
            )
        loss = result.loss
        if config.balance and score.routes is not None:
            loss = loss + config.balance * load_balancing_loss(
                score.router_logits, score.routes.answer, self.loss_mask(batch)
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.max_grad_norm)
        if torch.isfinite(norm):
            self.optimizer.step()
        return self.about_update(batch, score, result, norm, replay, self.after(batch, replay))

    def objective(
        self,
        logp: Tensor,
        logp_old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        logp_ref: Tensor | None = None,
        logp_rollout: Tensor | None = None,
    ) -> ObjectiveResult:
        """The config's objective with its settings; ``logp_ref`` only if the KL term counts.

        With ``logp_rollout``, the engine's log-probs, the config's correction acts.
        """
        config, settings = self.config, dict[str, Any](self.config.given_objective_settings())
        if config.objective == "dr_grpo":
            settings["max_len"] = self.task.max_new_tokens
        if logp_ref is not None:
            settings |= {"beta": config.beta, "logp_ref": logp_ref}
        if logp_rollout is not None:
            settings |= {"correction": config.correction_settings(), "logp_rollout": logp_rollout}
        return OBJECTIVES[config.objective](logp, logp_old, advantages, mask, **settings)

    def about_update(
        self,
        batch: Rollout,
        score: AnswerScore,
        result: ObjectiveResult,
        norm: Tensor,
        replay: RouteTrace | None,
        after: Tensor | None,
    ) -> Record:
        """What an update that has just been made did to the policy.

        Args:
            batch: its answers.
            score: of them, before the update.
            result: of the objective.
            norm: of the gradient before it was bounded; not finite: the step was left out.
            replay: the routes that were replayed.
            after: what ``after`` found.
        """
        mask = self.loss_mask(batch)
        logp, live = score.logp.detach(), live_routes(score.routes, score.router_logits, replay)
        found: dict[str, Tensor | float | int] = {
            "answers": len(batch),
            "tokens": mask.sum(),
            "loss": result.loss.detach(),
            "grad_norm": norm,
            "update_skipped": int(not torch.isfinite(norm)),
            **{name: value for name, value in result.metrics.items() if value.dim() == 0},
            **ratio_metrics(logp, batch.logp_old, mask),
            "entropy": metrics.token_weighted_mean(score.entropy, mask),
        }
        if live is not None and batch.routes is not None:
            found["drift_per_rollout"] = drift(live, batch.routes.answer)
            if after is not None:
                found["drift_per_update"] = drift(after, live[: len(after)])
        return {name: plain(value) for name, value in found.items()}

    @torch.no_grad()
    def after(self, batch: Rollout, replay: RouteTrace | None) -> Tensor | None:
        """Live routes after an update of the answers on which its drift is measured, the first few.

        Only the weights differ from the pass before: what the update replayed is replayed again.
        """
        rows = torch.arange(min(self.config.drift_probe, len(batch)), device=self.device)
        if not len(rows) or batch.routes is None:
            return None
        probe = replace(batch, routes=replay).rows(rows)
        score = self.score(self.model, probe, probe.routes)
        return live_routes(score.routes, score.router_logits, probe.routes)

    @torch.no_grad()
    def reference_log_probs(self, batch: Rollout) -> Tensor:
        """(B, T) log-probs under the initial policy, whose routes are its own."""
        return self.score(self.reference, batch).logp

    def state(self) -> tuple[dict[str, Tensor], Record]:
        """Everything that decides how training goes on: tensors, and numbers for JSON."""
        tensors = trained_tensors(self.model, self.optimizer)
        if self.critic is not None:
            tensors |= trained_tensors(self.critic.model, self.critic.optimizer, "critic.")
        tensors |= self.engine.state()
        tensors["random.order"] = self.order.get_state()
        tensors["random.dice"] = self.dice.get_state()
        return tensors, {"rollout": self.rollout, "update": self.update}

    def load_state(self, tensors: dict[str, Tensor], meta: Record) -> None:
        """Go on from what ``state`` returned.

        Raises:
            KeyError, RuntimeError: if the state is of another model.
        """
        load_trained_tensors(self.model, self.optimizer, tensors)
        if self.critic is not None:
            load_trained_tensors(self.critic.model, self.critic.optimizer, tensors, "critic.")
        self.engine.load_state(tensors)
        self.order.set_state(tensors["random.order"])
        self.dice.set_state(tensors["random.dice"])
        self.rollout, self.update = meta["rollout"], meta["update"]

    def held_out_metrics(self) -> Record:
        """Reward on held-out prompts; the same prompts and random numbers every time."""
        prompts, dice = self.held_out()
        rollout = sampled_rollout(
            self.model,
            self.task,
            prompts,
            EVAL_ANSWERS,
            temperature=self.config.temperature,
            generator=dice,
            fixed_shapes=self.fixed_shapes,
        )
        return about_held_out(self.task, rollout)

    def held_out(self) -> tuple[Tensor, torch.Generator]:
        """The prompts of an evaluation, and its source of samples."""
        dice = torch.Generator(self.device).manual_seed(EVAL_SEED + DICE_OFFSET)
        order = torch.Generator().manual_seed(EVAL_SEED)
        prompts = distinct_held_out_prompts(self.task, self.config.eval_prompts, order)
        return prompts.to(self.device), dice


def with_old(config: TrainConfig, rollout: Rollout, score: AnswerScore) -> Rollout:
    """``rollout`` with what the config takes from the trainer's own pass instead of the sampler."""
    return replace(
        rollout,
        logp_old=score.logp if config.recompute_old else rollout.logp_old,
        logp_rollout=rollout.logp_old if config.recompute_old else None,
        routes=score.routes if config.replay == "r2" else rollout.routes,
    )


def torch_device(name: str) -> torch.device:
    """The device called ``name``; ``auto`` takes CUDA where there is some.

    Raises:
        ValueError: if the name is unknown or CUDA is asked for and absent.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device is {name!r}; expected auto, cpu or cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but torch finds no CUDA GPU here; use auto or cpu.")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
