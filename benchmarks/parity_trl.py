"""TRL's own loss code, called with given log-probs, for the comparison in parity.py.

A real ``GRPOTrainer`` is built for each set of settings, so that TRL itself reads them; only its
forward pass is replaced by the log-probs that the comparison hands in.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

WORDS = [*"0123456789", "=", "end", "pad"]
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


def tokenizer() -> Any:
    """13 words, one token each."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="pad"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="end", pad_token="pad")


def smallest_model() -> Any:
    """Something for the trainer to hold; nothing is computed with it."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    small = {"hidden_size": 8, "intermediate_size": 8, "moe_intermediate_size": 8, "head_dim": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}
    experts = {"num_experts": 2, "num_experts_per_tok": 1}
    tokens = {"vocab_size": len(WORDS), "eos_token_id": 11, "pad_token_id": 12}
    config = Qwen3MoeConfig(**small, **heads, **experts, **tokens, bos_token_id=None)
    return Qwen3MoeForCausalLM(config).float()


def trainer(settings: Mapping[str, Any], **others: Any) -> Any:
    """A GRPOTrainer with these settings, as TRL itself makes it.

    Args:
        settings: for GRPOConfig.
        others: for GRPOTrainer, such as ``reward_funcs``.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from datasets import Dataset
    from transformers import PrinterCallback
    from transformers.utils.logging import set_verbosity_error
    from trl import GRPOConfig, GRPOTrainer

    set_verbosity_error()
    logging.getLogger("trl").setLevel(logging.ERROR)
    given = {"reward_funcs": lambda completions, **_: [0.0] * len(completions)} | others
    # A model for the KL would be read from disk; its log-probs are handed in instead.
    beta = settings.get("beta", 0.0)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
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
    made.current_gradient_accumulation_steps = made.args.gradient_accumulation_steps
    return made


def loss(
    settings: Mapping[str, Any],
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    logp_ref: Tensor | None = None,
    tokens: int | None = None,
    tool_mask: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """What TRL's ``_compute_loss`` makes of given log-probs, and what it would log.

    Args:
        settings: for GRPOConfig.
        logp, logp_old, logp_ref: (B, T).
        advantages: (B,).
        mask: (B, T), 1 on the completion's tokens.
        tokens: of the whole generation batch; those of this batch unless given.
        tool_mask: (B, T), 0 on tokens that a tool wrote.
    """
    made = trainer(settings)
    made._get_per_token_logps_and_entropies = lambda *_, **__: (logp, torch.zeros_like(mask), None)
    inside = mask.long()
    batch = {
        "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.long),
        "completion_ids": torch.zeros_like(inside),
        "completion_mask": inside,
        "advantages": advantages,
        "old_per_token_logps": logp_old,
        "ref_per_token_logps": logp_ref,
        "num_items_in_batch": torch.as_tensor(int(inside.sum()) if tokens is None else tokens),
    }
    if tool_mask is not None:
        batch["tool_mask"] = tool_mask.long()
    found = made.compute_loss(made.model, batch)
    return found, {name: values[-1] for name, values in made._metrics["train"].items()}
