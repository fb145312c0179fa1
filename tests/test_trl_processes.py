"""Two processes make the same updates as one, given the same answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl", reason="the extra 'real' is not installed")

SCRIPT = """
import sys

import torch
from safetensors.torch import save_file

from gspo_edu.trl_toy import paper_settings, toy_trainer, trained

torch.set_num_threads(1)
processes, target = int(sys.argv[1]), sys.argv[2]
rows = {"per_device_train_batch_size": 32 // processes, "steps_per_generation": 1}
trainer = toy_trainer(**paper_settings(**rows))


def answers_of(prompt_ids, *_, **__):
    found = []
    for place, prompt in enumerate(prompt_ids):
        number = sum(token * 11**i for i, token in enumerate(prompt))
        dice = torch.Generator().manual_seed(8 * number + place % 8)
        length = int(torch.randint(1, 9, (1,), generator=dice))
        found.append(torch.randint(0, 10, (length,), generator=dice).tolist() + [11])
    return found, None


trainer._generate_single_turn = answers_of
log = trained(trainer, 3)
assert trainer.accelerator.num_processes == processes
if trainer.accelerator.is_main_process:
    weights = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    rewards = torch.tensor([record["reward"] for record in log])
    norms = torch.tensor([record["grad_norm"] for record in log])
    save_file({**weights, "rewards": rewards, "norms": norms}, target)
if processes > 1:
    # A process that ends before the other, with the group alive, can abort in gloo's threads.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="torch's gloo launcher there is another")
def test_two_processes_make_the_same_updates(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    script = tmp_path / "updates.py"
    script.write_text(SCRIPT, encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    found = []
    for processes, words in ((1, []), (2, launch)):
        target = tmp_path / f"{processes}.safetensors"
        command = [sys.executable, *words, str(script), str(processes), str(target)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-6000:]
        found.append(load_file(target))
    one, two = found
    torch.testing.assert_close(two["rewards"], one["rewards"])
    torch.testing.assert_close(two["norms"], one["norms"], rtol=1e-4, atol=0)
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=1e-4, msg=name)
