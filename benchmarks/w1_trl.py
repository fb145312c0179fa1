"""TRL's side of W1: GRPOTrainer on a Qwen3-MoE of the same shape, with its fastest settings.

Found to pay on a CPU: grouped_mm experts, sdpa attention, a static cache, no gradient
checkpointing, no auxiliary loss, fp32 (bf16 is on by default and slower here).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from itertools import pairwise
from typing import Any

from w1 import ANSWER, GROUP, KEYS, MINI_BATCHES, PROMPT, PROMPTS, SHAPE, VOCABULARY, peak_rss_mb


def reward(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
    """Share of neighbours in ascending order, as in w1.FixedLength."""
    assert all(len(ids) == ANSWER for ids in completion_ids)
    ascending = [[b >= a for a, b in pairwise(ids)] for ids in completion_ids]
    return [sum(found) / len(found) for found in ascending]


def tokenizer() -> Any:
    """14 words, one token each."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [*"0123456789", "=", "end", "pad", "unk"]
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="unk"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="end", pad_token="pad", unk_token="unk"
    )


def model() -> Any:
    """Qwen3-MoE of the same shape, randomly initialised."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=SHAPE["width"],
        num_hidden_layers=SHAPE["num_layers"],
        num_attention_heads=SHAPE["num_heads"],
        num_key_value_heads=SHAPE["num_heads"],
        head_dim=SHAPE["head_dim"],
        num_experts=SHAPE["num_experts"],
        num_experts_per_tok=SHAPE["top_k"],
        moe_intermediate_size=SHAPE["expert_width"],
        norm_topk_prob=True,
        output_router_logits=False,
        router_aux_loss_coef=0.0,
        max_position_embeddings=64,
        eos_token_id=11,
        pad_token_id=12,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    config._attn_implementation = "sdpa"
    config._experts_implementation = "grouped_mm"
    return Qwen3MoeForCausalLM(config).float()


def main() -> None:
    started = time.perf_counter()
    import random

    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    imports = time.perf_counter() - started
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dice = random.Random(0)
    rows = [" ".join(str(dice.randrange(10)) for _ in range(PROMPT)) for _ in range(4096)]
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        per_device_train_batch_size=PROMPTS * GROUP // MINI_BATCHES,
        gradient_accumulation_steps=1,
        steps_per_generation=MINI_BATCHES,
        num_generations=GROUP,
        max_completion_length=ANSWER,
        generation_kwargs={"min_new_tokens": ANSWER},
        cache_implementation="static",
        temperature=1.0,
        importance_sampling_level="sequence",
        loss_type="grpo",
        beta=0.0,
        epsilon=3e-4,
        epsilon_high=4e-4,
        router_aux_loss_coef=0.0,
        gradient_checkpointing=False,
        logging_steps=1_000_000,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        max_steps=1_000_000,
        dataloader_num_workers=0,
    )
    spent: dict[str, float] = {}

    class TakeTurns(TrainerCallback):  # type: ignore[misc]
        """Wait for the driver before each cycle of four steps, and report after it."""

        begun = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % MINI_BATCHES == 0:
                if not sys.stdin.readline():
                    os._exit(0)
                spent.clear()
                self.begun = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % MINI_BATCHES == 0:
                spent["seconds_per_cycle"] = time.perf_counter() - self.begun
                spent["update_seconds"] = spent["seconds_per_cycle"] - spent["scored"]
                shown = {key: spent[key] for key in KEYS}
                print(json.dumps({**shown, "peak_rss_mb": peak_rss_mb()}), flush=True)

    trainer = GRPOTrainer(
        model=model(),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": rows}),
        processing_class=tokenizer(),
        callbacks=[TakeTurns()],
    )

    def timed(name: str, function: Any) -> Any:
        def wrapper(*a: Any, **k: Any) -> Any:
            begun = time.perf_counter()
            result = function(*a, **k)
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - begun
            return result

        return wrapper

    trainer._generate = timed("generation_seconds", trainer._generate)
    scored = trainer._generate_and_score_completions
    logps = trainer._get_per_token_logps_and_entropies

    def generate_and_score(*a: Any, **k: Any) -> Any:
        trainer._get_per_token_logps_and_entropies = timed("old_logp_seconds", logps)
        try:
            return timed("scored", scored)(*a, **k)
        finally:
            trainer._get_per_token_logps_and_entropies = logps

    trainer._generate_and_score_completions = generate_and_score
    print(json.dumps({"import_seconds": imports}), flush=True)
    trainer.train()


if __name__ == "__main__":
    main()
