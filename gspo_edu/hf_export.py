"""``gspo-edu export RUN --out DIR``: policy and tokenizer as a model folder of transformers.

``AutoModelForCausalLM.from_pretrained(DIR)`` and ``AutoTokenizer.from_pretrained(DIR)`` open it;
``gspo_edu.moe.hf.from_qwen3_moe`` takes such a model back.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from gspo_edu.run_files import INIT, POLICY


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of ``gspo-edu export``; nothing heavy is imported for them."""
    command.add_argument(
        "run", metavar="RUN", help="run folder, policy file, or the name of a shipped policy"
    )
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")


def run(args: argparse.Namespace) -> int:
    """Run ``gspo-edu export``; returns the exit status.

    Raises:
        ValueError: if there is no policy, or ``--out`` is not free, or transformers is missing.
    """
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise ValueError(f"{args.out} is not empty; choose a new or empty folder for --out.")
    if args.out.resolve() == Path.cwd():
        raise ValueError("--out is the present folder, which is replaced as a whole; name another.")
    source = policy_file(args.run)
    print(export_policy(source, args.out))
    return 0


def policy_file(word: str) -> Path:
    """The checkpoint that ``word`` means.

    Raises:
        ValueError: if it means none.
    """
    from gspo_edu.checkpoint import shipped_policies

    shipped, path = shipped_policies(), Path(word)
    if path.is_dir():
        if not (path / POLICY).exists():
            start = f"; its start is {path / INIT}" if (path / INIT).exists() else ""
            raise ValueError(f"{path} holds no finished run ({POLICY} is missing{start}).")
        return path / POLICY
    if path.exists():
        return path
    if word not in shipped:
        raise ValueError(
            f"{word} does not exist; expected a run folder, a policy file, or one of the shipped "
            f"policies: {', '.join(shipped)}."
        )
    return shipped[word]


def export_policy(source: Path, out: Path) -> str:
    """Write the policy in ``source`` to the folder ``out``, whole or not at all.

    Returns:
        What was written, in a sentence.

    Raises:
        CheckpointError: if ``source`` is no policy.
        ValueError: if transformers is missing.
    """
    from gspo_edu.checkpoint import load_policy

    model, card = load_policy(source)
    try:
        from gspo_edu.moe.hf import to_qwen3, to_qwen3_moe
    except ImportError as error:
        raise ValueError(str(error)) from None
    from gspo_edu.hf_tokenizer import tokenizer

    theirs = to_qwen3_moe(model) if model.config.routed_layers else to_qwen3(model)
    place = out.resolve()  # where a link leads
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        theirs.save_pretrained(unfinished)
        tokenizer().save_pretrained(unfinished)
        if place.exists():
            place.rmdir()
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    weights = sum(weight.numel() for weight in model.parameters())
    return (
        f"{source} ({card.task}) is in {out} as a {type(theirs).__name__} of {weights:,} weights "
        f"in float32. Open it with AutoModelForCausalLM.from_pretrained({str(out)!r})."
    )
