"""The course's vocabulary as a tokenizer of transformers (needs the extra ``real``)."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from gspo_edu.tasks.base import END, PAD, SYMBOLS


def tokenizer() -> Any:
    """The course's 13 symbols, one token each, with the course's numbers."""
    vocabulary = {word: number for number, word in enumerate(SYMBOLS)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=SYMBOLS[PAD]))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=SYMBOLS[END], pad_token=SYMBOLS[PAD]
    )
