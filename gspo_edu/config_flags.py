"""Settings on the command line: one flag per field of ``TrainConfig``, and a file of settings."""

from __future__ import annotations

import argparse
import dataclasses
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

from gspo_edu.config import (
    COMMAND,
    PRESETS,
    TYPES,
    TrainConfig,
    config_from_mapping,
    preset_names,
    read_toml,
)


class UsageError(Exception):
    """The command line asks for something that cannot be done: exit status 2."""


def folder(word: str) -> Path:
    """The argparse type of a folder; an empty word would mean the current one."""
    if not word.strip():
        raise argparse.ArgumentTypeError("expected a folder, got nothing")
    return Path(word)


def add_config_flags(command: argparse.ArgumentParser) -> None:
    """One flag per field of TrainConfig, and --config."""
    group = command.add_argument_group(f"settings (see {COMMAND} config)")
    group.add_argument(
        "--config",
        metavar="FILE",
        help=f"TOML file with settings, or one that ships: {', '.join(preset_names())}",
    )
    for field in dataclasses.fields(TrainConfig):
        flag, kind = "--" + field.name.replace("_", "-"), TYPES[field.name]
        help_text = field.metadata["help"].replace("%", "%%")
        options = typing.get_args(kind)
        if kind is bool or bool in options:
            group.add_argument(
                flag,
                dest=field.name,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=help_text,
            )
        else:
            choices = options if typing.get_origin(kind) is Literal else None
            group.add_argument(
                flag,
                dest=field.name,
                type=str if choices else value_type(kind),
                choices=choices,
                default=argparse.SUPPRESS,
                help=help_text,
                metavar=None if choices else "X",
            )


def value_type(kind: Any) -> Any:
    """The argparse type of a field: a number, a string, or ``none`` where that is allowed."""
    if not isinstance(kind, types.UnionType):
        return kind
    (number,) = (k for k in typing.get_args(kind) if k is not types.NoneType)

    def number_or_none(word: str) -> Any:
        return None if word == "none" else number(word)

    number_or_none.__name__ = f"{number.__name__} or none"
    return number_or_none


def config_of(args: argparse.Namespace, **forced: Any) -> TrainConfig:
    """Defaults, then the config file, then flags, then ``forced``.

    Raises:
        UsageError: if a setting does not fit.
    """
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    flags = {name: value for name, value in vars(args).items() if name in names}
    try:
        from_file = {}
        if args.config is not None:
            shipped = PRESETS / f"{args.config}.toml"
            from_file = read_toml(shipped if shipped.exists() else Path(args.config))
        return config_from_mapping({**from_file, **flags, **forced}, "settings")
    except ValueError as error:
        raise UsageError(str(error)) from None


def default_folder(first: str, args: argparse.Namespace) -> Path:
    """runs/FIRST, with the preset and the flags that were given, such as runs/compare-dense."""
    words = [first] if args.config is None else [first, Path(args.config).stem]
    for field in dataclasses.fields(TrainConfig):
        if field.name in args and field.name not in ("objective", "seed"):
            value = getattr(args, field.name)
            words.append(field.name if value is True else f"{field.name}-{value}")
    return Path("runs") / re.sub(r"[^\w.-]+", "_", "-".join(words))
