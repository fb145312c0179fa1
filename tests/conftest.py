"""What several test files need: small models, the shipped policy, and a quick run's settings."""

import pytest
import torch

from gspo_edu.checkpoint import load_policy, shipped_policies
from gspo_edu.config import TrainConfig
from gspo_edu.moe import ModelConfig, TinyMoE
from gspo_edu.sampler import sampled_rollout
from gspo_edu.tasks import ClockWalk
from gspo_edu.tasks.base import VOCAB_SIZE, prompts_of_split


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def dice():
    return torch.Generator().manual_seed(3)


@pytest.fixture
def tiny():
    """Builds a model that runs in milliseconds; keywords change its shape."""

    def build(seed=0, **changes):
        sizes = {"width": 16, "num_heads": 2, "head_dim": 8, "num_experts": 4, "expert_width": 8}
        config = ModelConfig(VOCAB_SIZE, **{**sizes, **changes})
        return TinyMoE(config, torch.Generator().manual_seed(seed))

    return build


@pytest.fixture
def calm():
    """The shipped policy of the calm setting, freshly loaded."""
    return load_policy(shipped_policies()["calm"])[0]


@pytest.fixture
def walk():
    return ClockWalk()


@pytest.fixture
def sampled(calm, walk, dice):
    """Builds a rollout of the shipped policy."""

    def build(model=calm, prompts=4, group_size=4, temperature=1.0):
        shown = prompts_of_split(walk, prompts, dice, held_out=False)
        return sampled_rollout(
            model, walk, shown, group_size, temperature=temperature, generator=dice
        )

    return build


@pytest.fixture(scope="session")
def quick():
    """Builds the config of a run that takes a fraction of a second."""

    def build(**changes):
        small = {
            "rollouts": 3,
            "prompts": 4,
            "group_size": 4,
            "mini_batches": 2,
            "eval_every": 2,
            "eval_prompts": 4,
            "drift_probe": 4,
            "device": "cpu",
        }
        return TrainConfig(**{**small, **changes})

    return build
