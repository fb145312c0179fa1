"""Training and sampling in two processes, which know each other by files only.

    trainer                                  sampler process
    weights-000000.safetensors  ---------->  reads them, samples rollout 0
    trains on rollout 0         <----------  rollout-000000.safetensors
    weights-000001.safetensors  ---------->  ...

With ``lag`` k, rollout n is sampled with the weights that n - k rollouts have made (the initial
ones while n < k). So the sampler works up to k rollouts ahead while the trainer trains: that is the
gain, and stale answers are its price. Which weights serve which rollout follows from the numbers
in the files' names, never from who was faster: the same seed gives the same numbers.

A file is written under another name and then renamed, so that nobody reads half of one. Whoever
waits for a file also looks whether the other process lives, and gives up in words after a time.

    with RemoteSampler(config, folder) as sampler:
        for records in train_with(trainer, sampler):
            ...

The sampler process is ``python -m gspo_edu.remote_sampler FOLDER``. On two machines the folder lies
on a disk that both see. Not here on purpose: going on after an interruption, and weights that
travel piece by piece.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from gspo_edu.batch import Rollout
from gspo_edu.checkpoint import load_tensors, save_tensors
from gspo_edu.config import TrainConfig, config_from_mapping
from gspo_edu.engines import engine_copy
from gspo_edu.moe.config import ModelConfig
from gspo_edu.moe.model import TinyMoE
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.records import Record
from gspo_edu.run_files import write_json
from gspo_edu.sampler import sampled_rollout
from gspo_edu.tasks import make_task
from gspo_edu.tasks.base import prompts_of_split
from gspo_edu.trainer import DICE_OFFSET, Trainer

JOB, LOG = "job.json", "sampler.log"
PAUSE = 0.005  # seconds between two looks for a file
TRACE = ("prompt", "answer")


class RemoteSamplerError(RuntimeError):
    """The other process died, or did not answer in time."""


def weights_file(folder: Path, number: int) -> Path:
    """Weights after ``number`` rollouts."""
    return folder / f"weights-{number:06}.safetensors"


def rollout_file(folder: Path, number: int) -> Path:
    """Rollout ``number``, from 0."""
    return folder / f"rollout-{number:06}.safetensors"


def save_rollout(path: Path, rollout: Rollout) -> None:
    """Write a rollout with its routes as one safetensors file."""
    fields = {f.name: getattr(rollout, f.name) for f in dataclasses.fields(rollout)}
    tensors = {name: value for name, value in fields.items() if isinstance(value, Tensor)}
    meta: dict[str, Any] = {}
    if rollout.routes is not None:
        tensors |= {f"routes.{part}": getattr(rollout.routes, part) for part in TRACE}
        meta["layers"] = list(rollout.routes.layers)
    save_tensors(path, tensors, meta)


def load_rollout(path: Path) -> Rollout:
    """The rollout that ``save_rollout`` wrote.

    Raises:
        CheckpointError: if the file is missing or damaged.
    """
    tensors, meta = load_tensors(path)
    routes = None
    if "layers" in meta:
        prompt, answer = (tensors.pop(f"routes.{part}") for part in TRACE)
        routes = RouteTrace(prompt, answer, tuple(meta["layers"]))
    return Rollout(**tensors, routes=routes)


class RolloutStream:
    """Makes rollout after rollout from whatever weights it is given, in any process.

    Its prompts and samples depend on the config's seed alone.
    """

    def __init__(self, config: TrainConfig) -> None:
        """Start with rollout 0."""
        self.config = config
        self.task = make_task(config.task, config.task_size)
        self.order = torch.Generator().manual_seed(config.seed)
        self.dice = torch.Generator().manual_seed(config.seed + DICE_OFFSET)

    def next_rollout(self, model: TinyMoE) -> Rollout:
        """Sample with ``model`` in the arithmetic of the config's engine."""
        config = self.config
        return sampled_rollout(
            engine_copy(model, config.engine),
            self.task,
            prompts_of_split(self.task, config.prompts, self.order, held_out=False),
            config.group_size,
            temperature=config.temperature,
            generator=self.dice,
        )


class RemoteSampler:
    """The trainer's end: starts the sampler process, gives it weights and takes rollouts.

    Attributes:
        config: what the process samples by.
        sent, taken: how many weights and rollouts so far.
    """

    def __init__(self, config: TrainConfig, folder: Path, *, timeout: float = 60.0) -> None:
        """Start the process.

        Args:
            config: ``rollouts``, ``lag``, ``engine``, task, prompts, seed and the like count.
            folder: new or empty; the two processes exchange their files here.
            timeout: seconds after which a rollout that does not come is an error.

        Raises:
            ValueError: if the folder holds anything, the timeout is not positive, or the config
                asks for a pool of prompts.
        """
        if config.prompt_pool is not None:
            raise ValueError(
                f"prompt_pool is {config.prompt_pool}; expected none, since a sampler process "
                "draws new prompts."
            )
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout}; expected a positive number of seconds.")
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty; expected a folder for this exchange alone.")
        self.config, self.folder, self.timeout = config, folder, timeout
        self.sent = self.taken = 0
        write_json(folder / JOB, dataclasses.asdict(config))
        command = [sys.executable, "-m", "gspo_edu.remote_sampler", str(folder)]
        with (folder / LOG).open("wb") as log:
            # The pipe says nothing: its end tells the sampler that the trainer is gone.
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )

    def send(self, model: TinyMoE) -> None:
        """Write the policy's weights for the sampler."""
        meta = {"model": dataclasses.asdict(model.config)}
        save_tensors(weights_file(self.folder, self.sent), dict(model.named_parameters()), meta)
        self.sent += 1

    def next_rollout(self) -> Rollout:
        """Wait for the next rollout.

        Raises:
            RemoteSamplerError: if the sampler has ended or does not answer in time.
        """
        path = rollout_file(self.folder, self.taken)
        wait_for(path, self.timeout, self.trouble)
        rollout = load_rollout(path)
        path.unlink()
        self.taken += 1
        return rollout

    def trouble(self) -> str:
        """Why nothing more will come; empty while the sampler lives."""
        status = self.process.poll()
        if status is None:
            return ""
        said = (self.folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        last = f": {said[-1]}" if said else ""
        return f"the sampler process has ended with status {status}{last}"

    def close(self) -> None:
        """End the process, at once if it does not go by itself."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> RemoteSampler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def wait_for(path: Path, timeout: float, trouble: Callable[[], str]) -> None:
    """Return once ``path`` is there.

    Raises:
        RemoteSamplerError: if ``trouble`` has something to say, or after ``timeout`` seconds.
    """
    end = time.monotonic() + timeout
    while not path.exists():
        # A last look: the file may have come just before its author ended.
        if (reason := trouble()) and not path.exists():
            raise RemoteSamplerError(f"{path.name} will not come: {reason}")
        if time.monotonic() > end:
            raise RemoteSamplerError(f"{path.name} did not come within {timeout:g} seconds.")
        time.sleep(PAUSE)


def train_with(trainer: Trainer, sampler: RemoteSampler) -> Iterator[list[Record]]:
    """Train to the end on what the sampler sends; yields the records of each rollout.

    Raises:
        ValueError: if trainer and sampler have different configs, or the trainer is not on the CPU,
            where the rollouts come from.
        RemoteSamplerError: as ``RemoteSampler.next_rollout``.
    """
    if trainer.config != sampler.config:
        given, own = dataclasses.asdict(trainer.config), dataclasses.asdict(sampler.config)
        name = next(name for name in own if own[name] != given[name])
        raise ValueError(
            f"{name} is {given[name]!r} for the trainer and {own[name]!r} for the sampler; "
            "expected one config for both."
        )
    if trainer.device.type != "cpu":
        raise ValueError(f"device is {trainer.device}; rollouts of a sampler process need the cpu.")
    while trainer.rollout < trainer.config.rollouts:
        sampler.send(trainer.model)
        yield trainer.train_on(sampler.next_rollout())


def sample_for(folder: Path) -> None:
    """What the sampler process does: all rollouts of the job in ``folder``, in order."""
    config = config_from_mapping(json.loads((folder / JOB).read_text(encoding="utf-8")), JOB)
    torch.set_num_threads(config.threads)
    stream = RolloutStream(config)
    model: TinyMoE | None = None
    held = -1
    for number in range(config.rollouts):
        wanted = max(0, number - config.lag)
        if wanted != held:
            path = weights_file(folder, wanted)
            wait_for(path, float("inf"), lambda: "")
            weights, meta = load_tensors(path)
            model = model or TinyMoE(ModelConfig(**meta["model"]))
            model.load_state_dict(weights)
            held = wanted
            path.unlink()
        assert model is not None
        save_rollout(rollout_file(folder, number), stream.next_rollout(model))


def end_with_the_trainer() -> None:
    """End this process when the one that started it closes the pipe, however that comes about."""
    # Not through sys.stdin, whose lock a thread would hold when the interpreter ends.
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_trainer, daemon=True).start()
    sample_for(Path(sys.argv[1]))
    # The trainer still reads; it ends this process by closing the pipe.
    threading.Event().wait()
