"""Checkpoints: what comes back, what is refused, and that nothing is ever half-written."""

import dataclasses
import errno
import json
import os
import re
from pathlib import Path

import pytest
import torch

import gspo_edu
from gspo_edu.checkpoint import (
    Card,
    CheckpointError,
    load_card,
    load_policy,
    load_tensors,
    save_policy,
    save_tensors,
    shipped_policies,
)
from gspo_edu.config import TrainConfig
from gspo_edu.files import write_atomically
from gspo_edu.initial import check_start

PACKAGE = Path(gspo_edu.__file__).parent


def card_of(model):
    return Card(model.config, "clock_walk", 12, "gspo-edu train", 0.5)


@pytest.fixture
def policy_file(tiny, tmp_path):
    model = tiny()
    save_policy(tmp_path / "policy.safetensors", model, card_of(model))
    return tmp_path / "policy.safetensors"


@pytest.mark.parametrize(
    "shape", [{}, {"dense": True}, {"num_layers": 3, "mlp_only_layers": (1,)}], ids=str
)
def test_weights_and_card_come_back_exactly(tiny, tmp_path, shape):
    model, path = tiny(seed=4, **shape), tmp_path / "policy.safetensors"
    save_policy(path, model, card_of(model))
    loaded, card = load_policy(path)
    assert card == load_card(path) == card_of(model)
    for (name, weight), (same, other) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert name == same
        assert torch.equal(weight, other)


def test_a_dense_model_in_a_file_has_no_routes_to_replay_either(tiny, tmp_path):
    model, path = tiny(dense=True), tmp_path / "policy.safetensors"
    save_policy(path, model, card_of(model))
    check_start(TrainConfig(init=str(path)))
    with pytest.raises(CheckpointError, match=r"no routes to replay, but replay is r2; expected"):
        check_start(TrainConfig(init=str(path), replay="r2"))


def test_a_card_is_read_without_the_weights(tiny, policy_file):
    data = policy_file.read_bytes()
    policy_file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert load_card(policy_file) == card_of(tiny())
    with pytest.raises(CheckpointError, match="damaged"):
        load_policy(policy_file)


def test_the_file_is_safetensors_with_a_json_card(policy_file):
    data = policy_file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert json.loads(header["__metadata__"]["meta"])["task"] == "clock_walk"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_truncated_files_are_refused(policy_file, share):
    data = policy_file.read_bytes()
    policy_file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CheckpointError, match=r"policy\.safetensors is damaged"):
        load_policy(policy_file)


def test_files_that_are_no_checkpoint_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(CheckpointError, match="does not exist"):
        load_policy(path)
    path.write_bytes(os.urandom(2000))
    with pytest.raises(CheckpointError, match="damaged"):
        load_policy(path)
    with pytest.raises(CheckpointError, match="damaged"):
        load_policy(tmp_path)
    save_tensors(path, {"a": torch.zeros(2)}, {"rollout": 1})
    with pytest.raises(CheckpointError, match="no valid policy card"):
        load_policy(path)
    assert load_tensors(path)[1] == {"rollout": 1}


def test_a_safetensors_file_of_somebody_else_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="not a gspo-edu checkpoint"):
        load_card(tmp_path / "x.safetensors")


def test_weights_must_fit_the_card(tiny, tmp_path):
    model, path = tiny(), tmp_path / "policy.safetensors"
    wrong = dataclasses.replace(model.config, num_experts=6)
    save_policy(path, model, dataclasses.replace(card_of(model), model=wrong))
    with pytest.raises(CheckpointError, match="does not fit its own card"):
        load_policy(path)


@pytest.mark.parametrize("stage", ["write", "os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, stage, error):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def failing(*args):
        raise error

    if stage == "write":
        real_open = Path.open
        monkeypatch.setattr(Path, "open", lambda self, mode: FullDisk(real_open(self, mode), error))
    else:
        monkeypatch.setattr(stage, failing)
    with pytest.raises(type(error)):
        write_atomically(path, b"new content")
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


class FullDisk:
    """A file on a disk that fills up after four bytes."""

    def __init__(self, file, error):
        self.file, self.error = file, error

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, data):
        self.file.write(data[:4])
        raise self.error


def test_no_code_of_the_package_pickles():
    words = re.compile(r"\bpickle\b|torch\.(save|load)\b|joblib\.(dump|load)|allow_pickle|np\.load")
    said = re.compile(r"No pickle|never pickle|np\.load\(\w+, allow_pickle=False\)")
    for path in PACKAGE.rglob("*.py"):
        assert not words.search(said.sub("", path.read_text(encoding="utf-8"))), path


def test_shipped_policies_have_small_complete_files():
    assert "calm" in shipped_policies()
    for name, path in shipped_policies().items():
        model, card = load_policy(path)
        assert card.command.startswith("gspo-edu train --init cold"), name
        assert 0 < card.held_out_reward < 1
        assert all(torch.isfinite(weight).all() for weight in model.parameters())
        assert path.stat().st_size < 4e6


def test_no_flipped_byte_goes_unnoticed(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {"a": torch.arange(3.0), "b": torch.ones((), dtype=torch.int16)}
    save_tensors(path, tensors, {"rollout": 12})
    data = path.read_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        try:
            loaded, meta = load_tensors(path)
        except CheckpointError as error:
            assert "x.safetensors is damaged" in str(error)  # noqa: PT017
            continue
        # What spaces and the name of the digest are replaced by changes no content.
        assert place < size, "a byte of the tensors"
        assert meta["rollout"] == 12
        assert loaded.keys() == tensors.keys()
        assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_files_of_before_the_digest_are_read(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors", {"meta": '{"rollout": 1}'})
    assert load_tensors(tmp_path / "x.safetensors")[1] == {"rollout": 1}


@pytest.mark.parametrize("meta", ["[]", "3", "null", "{"])
def test_meta_data_that_are_no_settings_are_refused(tmp_path, meta):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors", {"meta": meta})
    with pytest.raises(CheckpointError, match="not a gspo-edu checkpoint"):
        load_tensors(tmp_path / "x.safetensors")


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full") as caught:
        write_atomically(tmp_path / "file", b"content")
    assert caught.value.filename == str(tmp_path / "file")


@pytest.mark.parametrize("target", ["absent/file", "folder"])
def test_a_target_that_cannot_be_is_named_and_not_the_temporary_file(tmp_path, target):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"\w") as caught:
        write_atomically(tmp_path / target, b"content")
    assert caught.value.filename == str(tmp_path / target)
    assert str(caught.value).count("'") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
