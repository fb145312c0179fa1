"""``gspo-edu export``: a policy as a model folder that transformers opens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="the extra 'real' is not installed")

from gspo_edu.checkpoint import Card, load_policy, save_policy, shipped_policies  # noqa: E402
from gspo_edu.cli import main  # noqa: E402
from gspo_edu.moe.config import ModelConfig  # noqa: E402
from gspo_edu.moe.model import TinyMoE  # noqa: E402
from gspo_edu.tasks.base import SYMBOLS, VOCAB_SIZE  # noqa: E402

PROMPT = torch.tensor([[3, 1, 4, 1, 5, 10]])


@torch.no_grad()
def same_logits(folder: Path, model: TinyMoE) -> str:
    """Assert that the model in ``folder`` is ``model``; returns the name of its class."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    wanted = model(PROMPT).logits
    torch.testing.assert_close(theirs(PROMPT).logits, wanted, rtol=0, atol=1e-5)
    return type(theirs).__name__


def test_a_finished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "exported"
    small = ["--rollouts", "1", "--prompts", "4", "--group-size", "4", "--eval-prompts", "8"]
    assert main(["train", "--out", str(run), *small]) == 0
    assert main(["export", str(run), "--out", str(out)]) == 0
    model, _ = load_policy(run / "policy.safetensors")
    assert same_logits(out, model) == "Qwen3MoeForCausalLM"
    assert "clock_walk" in capsys.readouterr().out
    words = transformers.AutoTokenizer.from_pretrained(out)
    assert words("3 1 4 1 5 =").input_ids == PROMPT[0].tolist()
    assert (words.eos_token, words.pad_token) == (SYMBOLS[11], SYMBOLS[12])
    assert sorted(path.suffix for path in out.iterdir()) == [".json"] * 4 + [".safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exported", "run"]


def test_a_shipped_policy_into_an_empty_folder(tmp_path: Path) -> None:
    assert main(["export", "calm", "--out", str(tmp_path)]) == 0
    same_logits(tmp_path, load_policy(shipped_policies()["calm"])[0])


def test_a_dense_twin(tmp_path: Path) -> None:
    model = TinyMoE(ModelConfig(VOCAB_SIZE, dense=True))
    save_policy(tmp_path / "dense.safetensors", model, Card(model.config, "clock_walk", 3, "", 0.0))
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "dense.safetensors"), "--out", str(out)]) == 0
    assert same_logits(out, model) == "Qwen3ForCausalLM"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_an_empty_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert main(["export", "calm", "--out", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink()
    same_logits(tmp_path / "real", load_policy(shipped_policies()["calm"])[0])


def test_the_present_folder_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "calm", "--out", "."]) == 1
    assert "--out is the present folder" in capsys.readouterr().err


def test_what_cannot_be_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unfinished, text = tmp_path / "unfinished", tmp_path / "notes.txt"
    unfinished.mkdir()
    text.write_text("no weights")
    for given, said in {
        str(unfinished): "holds no finished run (policy.safetensors is missing)",
        str(text): "not a gspo-edu checkpoint",
        "stormier": "stormier does not exist; expected a run folder, a policy file, or one of",
    }.items():
        assert main(["export", given, "--out", str(tmp_path / "out")]) == 1
        assert said in capsys.readouterr().err
    (unfinished / "init.safetensors").touch()
    assert main(["export", str(unfinished), "--out", str(tmp_path / "out")]) == 1
    assert f"its start is {unfinished / 'init.safetensors'}" in capsys.readouterr().err
    assert main(["export", "calm", "--out", str(unfinished)]) == 1
    assert "is not empty; choose a new or empty folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_transformers(tmp_path: Path) -> None:
    code = "import sys; sys.modules['transformers'] = None; from gspo_edu.cli import main\n"
    code += f"sys.exit(main(['export', 'calm', '--out', {str(tmp_path / 'out')!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("gspo-edu: gspo_edu.moe.hf needs transformers.")
    assert not (tmp_path / "out").exists()
