"""A sampler in a process of its own: the same numbers, and words instead of hanging."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from gspo_edu.checkpoint import CheckpointError, load_policy, shipped_policies
from gspo_edu.moe.routes import RouteTrace
from gspo_edu.remote_sampler import (
    JOB,
    RemoteSampler,
    RemoteSamplerError,
    RolloutStream,
    load_rollout,
    rollout_file,
    save_rollout,
    train_with,
    wait_for,
    weights_file,
)
from gspo_edu.tasks import ClockWalk
from gspo_edu.trainer import Trainer


def trainer_of(config):
    return Trainer(config, load_policy(shipped_policies()["calm"])[0], ClockWalk())


def in_one_process(config):
    """What the two processes do, one after the other."""
    trainer, stream = trainer_of(config), RolloutStream(config)
    sent, records = [], []
    for number in range(config.rollouts):
        weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
        sent.append(weights)
        model = load_policy(shipped_policies()["calm"])[0]
        model.load_state_dict(sent[max(0, number - config.lag)])
        records += trainer.train_on(stream.next_rollout(model))
    return records


@pytest.mark.parametrize("lag", [0, 2])
def test_two_processes_give_the_numbers_of_one(quick, tmp_path, lag):
    config = quick(lag=lag, engine="bf16", rollouts=4, eval_every=0)
    with RemoteSampler(config, tmp_path / "exchange") as sampler:
        found = list(itertools.chain(*train_with(trainer_of(config), sampler)))
    assert found == in_one_process(config)
    assert sampler.process.poll() is not None, "the process ends with the exchange"
    assert (sampler.sent, sampler.taken) == (4, 4)


def test_neighbouring_seeds_share_no_random_numbers(quick):
    streams = [RolloutStream(quick(seed=seed)) for seed in (1, 2)]
    draws = [torch.rand(8, generator=g).tolist() for s in streams for g in (s.order, s.dice)]
    assert len({tuple(draw) for draw in draws}) == len(draws)


def test_the_sampler_works_ahead_as_far_as_the_lag_allows(quick, tmp_path):
    config = quick(lag=2, rollouts=6)
    trainer = trainer_of(config)
    with RemoteSampler(config, tmp_path / "exchange") as sampler:
        sampler.send(trainer.model)  # weights 0 serve the rollouts 0, 1 and 2
        wait_for(rollout_file(sampler.folder, 2), 60, sampler.trouble)
        time.sleep(0.3)
        assert not rollout_file(sampler.folder, 3).exists(), "that one needs weights 1"
        sampler.send(trainer.model)
        wait_for(rollout_file(sampler.folder, 3), 60, sampler.trouble)


def test_a_killed_sampler_is_an_error_in_words(quick, tmp_path):
    config = quick(lag=0)
    trainer = trainer_of(config)
    with RemoteSampler(config, tmp_path / "exchange") as sampler:
        sampler.send(trainer.model)
        sampler.next_rollout()
        sampler.process.kill()
        started = time.monotonic()
        with pytest.raises(RemoteSamplerError, match=r"rollout-000001.* will not come: .* ended"):
            sampler.next_rollout()
        assert time.monotonic() - started < 10


def test_a_sampler_that_fails_says_why(quick, tmp_path):
    config = quick()
    with RemoteSampler(config, tmp_path / "exchange") as sampler:
        weights_file(sampler.folder, 0).write_bytes(b"no weights")
        with pytest.raises(RemoteSamplerError, match=r"ended with status 1: .*CheckpointError"):
            sampler.next_rollout()


def test_a_sampler_that_waits_is_waited_for_only_so_long(quick, tmp_path):
    words = r"did not come within 0\.2 seconds"
    with (
        RemoteSampler(quick(), tmp_path / "exchange", timeout=0.2) as sampler,
        pytest.raises(RemoteSamplerError, match=words),
    ):
        sampler.next_rollout()  # nobody has sent any weights


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
def test_the_sampler_ends_when_its_trainer_is_killed(quick, tmp_path):
    """Nobody is left behind, whatever happens to the trainer."""
    script = (
        "import sys, time; from pathlib import Path; from gspo_edu.config import TrainConfig; "
        "from gspo_edu.remote_sampler import RemoteSampler; "
        "one = RemoteSampler(TrainConfig(), Path(sys.argv[1])); "
        "print(one.process.pid, flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "exchange")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    end = time.monotonic() + 30
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(pid)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not os.path.exists("/proc")


def test_folders_timeouts_and_pools_that_make_no_sense_are_refused(quick, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / JOB).write_text("{}")
    with pytest.raises(ValueError, match="is not empty; expected a folder for this exchange"):
        RemoteSampler(quick(), tmp_path / "full")
    with pytest.raises(ValueError, match="timeout is 0; expected a positive number"):
        RemoteSampler(quick(), tmp_path / "new", timeout=0)
    with pytest.raises(ValueError, match="prompt_pool is 9; expected none"):
        RemoteSampler(quick(prompt_pool=9), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_trainer_and_sampler_need_one_config(quick, tmp_path):
    with RemoteSampler(quick(temperature=0.5), tmp_path / "exchange") as sampler:
        exchange = train_with(trainer_of(quick(temperature=1.0)), sampler)
        with pytest.raises(ValueError, match=r"temperature is 1\.0 for the trainer and 0\.5 for"):
            next(exchange)


@pytest.mark.parametrize("routes", [True, False])
def test_a_rollout_comes_back_from_its_file(sampled, tmp_path, routes):
    rollout = sampled()
    if not routes:
        rollout = dataclasses.replace(rollout, routes=None)
    save_rollout(tmp_path / "rollout", rollout)
    again = load_rollout(tmp_path / "rollout")
    for field in dataclasses.fields(rollout):
        mine, its = getattr(rollout, field.name), getattr(again, field.name)
        if isinstance(mine, RouteTrace):
            assert torch.equal(mine.prompt, its.prompt)
            assert torch.equal(mine.answer, its.answer)
            assert mine.layers == its.layers
        else:
            assert mine is its is None or (mine.dtype == its.dtype and torch.equal(mine, its))


def test_a_damaged_rollout_is_refused(sampled, tmp_path):
    path = tmp_path / "rollout"
    save_rollout(path, sampled())
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        load_rollout(path)
