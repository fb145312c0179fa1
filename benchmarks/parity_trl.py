"""TRL's own loss code, called with given log-probs, for the comparison in parity.py.

A real ``GRPOTrainer`` is built for each set of settings, so that TRL itself reads them; only its
forward pass is replaced by the log-probs that the comparison hands in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gspo_edu.trl_toy import loss_of, quiet, tokenizer

PLAIN = {
    "use_cpu": True,
    "bf16": False,
    "activation_checkpointing": False,
    "router_aux_loss_coef": 0.0,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
}


def smallest_model() -> Any:
    """Something for the trainer to hold; nothing is computed with it."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    small = {"hidden_size": 8, "intermediate_size": 8, "moe_intermediate_size": 8, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}
    experts = {"num_experts": 2, "num_experts_per_tok": 1}
    tokens = {"vocab_size": 13, "eos_token_id": 11, "pad_token_id": 12}
    config = Qwen3MoeConfig(**small, **heads, **experts, **tokens, bos_token_id=None)
    return Qwen3MoeForCausalLM(config).float()


def trainer(settings: Mapping[str, Any], **others: Any) -> Any:
    """A GRPOTrainer with these settings, as TRL itself makes it.

    Args:
        settings: for GRPOConfig.
        others: for GRPOTrainer, such as ``reward_funcs``.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    given = {"reward_funcs": lambda completions, **_: [0.0] * len(completions)} | others
    # A model for the KL would be read from disk; its log-probs are handed in instead.
    beta = settings.get("beta", 0.0)
    with quiet(), tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(output_dir=folder, **{**PLAIN, **settings, "beta": 0.0})
        made = GRPOTrainer(
            model=smallest_model(),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["3 8 2 7 ="] * 8}),
            processing_class=tokenizer(),
            **given,
        )
    made.remove_callback(PrinterCallback)
    made.beta = beta
    made.model.train()
    return made


def loss(
    settings: Mapping[str, Any], *given: Tensor, **more: Any
) -> tuple[Tensor, dict[str, float]]:
    """TRL's loss under ``settings``, and what it would log; see ``gspo_edu.trl_toy.loss_of``."""
    return loss_of(trainer(settings), *given, **more)
