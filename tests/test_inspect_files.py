"""`gspo-edu inspect` reads one run from every format alike, and says what is wrong with a file."""

from __future__ import annotations

import io
import json
import math
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from recorded_runs import FORMATS, arrays_of, parquet_table, recorded, write
from safetensors.torch import save_file

from gspo_edu import cli
from gspo_edu.inspection import columns
from gspo_edu.inspection.columns import RunFileError
from gspo_edu.inspection.numbers import measure
from gspo_edu.inspection.reading import read_run
from gspo_edu.moe.routes import drift
from gspo_edu.route_split import changed_tokens


def full_run() -> dict[str, list[Any]]:
    """A run with every column, an environment's tokens, an empty answer and an unknown expert."""
    dice = np.random.default_rng(1)
    run = recorded(24)
    lengths = [len(row) for row in run["logp"]]
    run["mask"] = [[int(t % 7 != 3) for t in range(length)] for length in lengths]
    run["mask"][5] = [0] * lengths[5]
    run["logp_rollout"] = [(np.array(row) - 0.001).tolist() for row in run["logp_old"]]
    run["advantages"] = dice.standard_normal(24).tolist()
    run["finished"] = (dice.random(24) < 0.8).tolist()
    run["update"] = [1 + row // 6 for row in range(24)]
    for name in ("routes", "routes_reference"):
        experts = [
            dice.permuted(np.tile(np.arange(6), (n, 3, 1)), axis=2)[..., :2] for n in lengths
        ]
        experts[2][-1] = -1
        run[name] = [row.tolist() for row in experts]
    return run


@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_gives_the_same_run(ending: str, tmp_path: Path) -> None:
    run = full_run()
    settings = {"level": "sequence", "clip_low": 0.1, "clip_high": 0.2, "max_length": 60}
    found = read_run(write(run, tmp_path / f"run.{ending}", **settings))
    kept = [np.array(mask, bool) for mask in run["mask"]]
    assert found.settings == settings
    assert found.lengths.tolist() == [int(mask.sum()) for mask in kept]
    for name in ("logp", "logp_old", "logp_rollout"):
        wanted = [np.array(row)[mask] for row, mask in zip(run[name], kept, strict=True)]
        np.testing.assert_allclose(getattr(found, name), np.concatenate(wanted), rtol=1e-6)
    for name in ("rewards", "advantages", "finished", "update", "group"):
        assert getattr(found, name).tolist() == run[name]
    both = [
        torch.tensor(np.concatenate([np.array(r)[m] for r, m in zip(run[name], kept, strict=True)]))
        for name in ("routes", "routes_reference")
    ]
    assert found.routes is not None
    assert found.routes.share() == pytest.approx(drift(*both).item())
    assert found.routes.changed_tokens == changed_tokens(*both).sum()


def test_parts_of_a_folder_follow_each_other(tmp_path: Path) -> None:
    whole, parts = recorded(24), tmp_path / "run"
    parts.mkdir()
    for first in (0, 8, 16):
        part = {name: values[first : first + 8] for name, values in whole.items()}
        write(part, parts / f"update-{first:03d}.parquet")
    (parts / ".update-999.parquet.123").write_text("half")  # a crash leaves such files
    one = read_run(write(whole, tmp_path / "run.parquet"))
    many = read_run(parts)
    for name in ("lengths", "logp", "logp_old", "rewards", "group"):
        np.testing.assert_array_equal(getattr(many, name), getattr(one, name))


def test_groups_may_be_text(tmp_path: Path) -> None:
    run = recorded(16)
    run["group"] = [f"prompt-{g}" for g in run["group"]]
    for ending in ("parquet", "jsonl", "npz"):
        found = read_run(write(run, tmp_path / f"run.{ending}"))
        assert found.group is not None
        assert found.group.tolist() == [0] * 8 + [1] * 8


def test_large_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(full_run(), tmp_path / "run.parquet")
    whole = read_run(path)
    monkeypatch.setattr("gspo_edu.inspection.rows.LEAVES_AT_ONCE", 1000)
    monkeypatch.setattr("gspo_edu.inspection.parts.ROUTE_SLOTS_AT_ONCE", 100)
    parts = read_run(path)
    np.testing.assert_array_equal(parts.logp, whole.logp)
    assert parts.routes is not None
    assert whole.routes is not None
    assert parts.routes.share() == pytest.approx(whole.routes.share())


def test_json_may_hold_whole_numbers_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = [
        '{"logp": [0, -1], "logp_old": [-1, -1.5], "rewards": 1, "group": 7, "mask": [true, true]}',
        "",
        '{"logp": [-0.5], "logp_old": [-1], "rewards": 0.5, "group": 7, "mask": [true]}',
    ]
    path.write_text("\n".join(lines))
    found = read_run(path)
    assert found.lengths.tolist() == [2, 1]
    assert found.logp.tolist() == [0, -1, -0.5]


def test_bfloat16_tensors_are_read(tmp_path: Path) -> None:
    tensors = {name: torch.from_numpy(array) for name, array in arrays_of(recorded(8)).items()}
    wanted = tensors["logp"].bfloat16()
    save_file({**tensors, "logp": wanted}, tmp_path / "run.safetensors")
    found = read_run(tmp_path / "run.safetensors")
    mask = tensors["mask"].bool()
    np.testing.assert_array_equal(found.logp, wanted.float()[mask].numpy())


# Broken files: what is broken, in which format, and the words that the error needs.


def without(name: str) -> dict[str, list[Any]]:
    run = recorded(16)
    del run[name]
    return run


def changed(name: str, row: int, value: Any) -> dict[str, list[Any]]:
    run = recorded(16)
    run[name] = [*run[name][:row], value, *run[name][row + 1 :]]
    return run


def one_number(name: str, row: int, place: int, value: float | None) -> dict[str, list[Any]]:
    run = recorded(16)
    run[name][row][place] = value
    return run


BROKEN = {
    "missing logp": (without("logp_old"), "column logp_old is missing"),
    "missing group": (without("group"), "column group is missing"),
    "ragged": (changed("logp_old", 3, [-1.0, -2.0]), "logp_old, {row3}: has 2 entries"),
    "NaN": (one_number("logp", 4, 2, math.nan), "logp, {row4}, response token 2: nan"),
    "minus infinity": (one_number("logp", 4, 2, -math.inf), "logp, {row4}, response token 2: -inf"),
    "stand-in for it": (one_number("logp", 4, 2, -1e30), "logp, {row4}, response token 2: -1e+30"),
    "stand-in in logp_old": (
        one_number("logp_old", 4, 2, -9999.0),
        "logp, {row4}, response token 2: -",
    ),
    "null token": (one_number("logp", 4, 2, None), "logp, {row4}: holds null at position 2"),
    "null list": (changed("logp", 4, None), "logp, {row4}: missing (null)"),
    "probabilities": (one_number("logp", 6, 1, 0.7), "logp, {row6}, response token 1: 0.7"),
    "reward null": (changed("rewards", 5, None), "rewards, {row5}: missing"),
    "reward infinite": (changed("rewards", 5, math.inf), "rewards, {row5}: inf"),
    "reward immense": (changed("rewards", 5, 1e300), "rewards, {row5}: 1e+300"),
    "reward text": ({**recorded(16), "rewards": ["good"] * 16}, "rewards is of type string"),
    "ids as log-probs": (
        {**recorded(16), "logp": [[{"id": 3}]] * 16},
        "logp is of type list<",
    ),
    "advantage per token": (
        {**recorded(16), "advantages": [[0.5, 0.5]] * 16},
        "One advantage per token",
    ),
    "group of one": (changed("group", 9, 99), "group, {row9}: this group has one answer"),
    "empty answers only": (
        {**recorded(4), "mask": [[0] * len(row) for row in recorded(4)["logp"]]},
        "4 answers with 0 response tokens",
    ),
    "additive mask": (
        {**recorded(4), "mask": [[0] * (len(r) - 1) + [-10000] for r in recorded(4)["logp"]]},
        "mask, {row0}: holds -10000",
    ),
    "reference routes alone": (
        {**recorded(4), "routes_reference": [[[[1, 2]]] * len(r) for r in recorded(4)["logp"]]},
        "column routes is missing",
    ),
    "routes alone": (
        {**recorded(4), "routes": [[[[1, 2]]] * len(r) for r in recorded(4)["logp"]]},
        "column routes_reference is missing",
    ),
}


def error_of(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says: one sentence or two, exit status 2, no traceback."""
    assert cli.main(["inspect", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gspo-edu: {path}: ")
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_rows(
    fault: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, words = BROKEN[fault]
    path = tmp_path / f"run.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table(run) if "logp" in fault else loose_table(run), path)
    else:
        write(run, path)
    # Rows are counted from 0, lines from 1.
    for row in range(16):
        words = words.replace(
            f"{{row{row}}}", f"row {row}" if ending == "parquet" else f"line {row + 1}"
        )
    assert words in error_of(path, capsys)


def loose_table(run: dict[str, list[Any]]) -> pa.Table:
    """``parquet_table``, or whatever types Arrow finds."""
    try:
        return parquet_table(run)
    except (pa.ArrowException, TypeError):
        return pa.table(run)


ARRAYS: dict[str, tuple[Any, str]] = {
    "missing column": (lambda a: a.pop("logp_old"), "column logp_old is missing"),
    "no mask": (lambda a: a.pop("mask"), "add mask (B, T) or lengths (B,)"),
    "mask of other shape": (
        lambda a: a.update(mask=a["mask"][:, :-1]),
        "array mask has shape (16, {t1}); expected (16, {t})",
    ),
    "rewards of other shape": (
        lambda a: a.update(rewards=a["rewards"][:-1]),
        "array rewards has shape (15,); expected (16,)",
    ),
    "NaN": (lambda a: a["logp"].__setitem__((3, 2), np.nan), "logp, row 3, response token 2: nan"),
    "wrong type": (
        lambda a: a.update(logp=np.nan_to_num(a["logp"]).astype(np.int64)),
        "array logp is of type int64; expected floating-point numbers. Are these token ids?",
    ),
    "lengths too long": (
        lambda a: a.update(lengths=np.full(16, 999)),
        "array lengths does not fit logp of shape (16, {t}): row 0",
    ),
    "flat without lengths": (
        lambda a: a.update({n: a[n].reshape(-1) for n in ("logp", "logp_old", "mask")}),
        "lengths is missing",
    ),
    "no layers": (
        lambda a: a.update(
            {n: np.zeros((*a["logp"].shape, 0, 2), np.int32) for n in columns.OF_ROUTES}
        ),
        "has shape (16, {t}, 0, 2); expected (16, {t}, 'N', 'K')",
    ),
    "token ids as routes": (
        lambda a: a.update(
            {n: np.full((*a["logp"].shape, 1, 2), 65536, np.int32) for n in columns.OF_ROUTES}
        ),
        "routes hold the expert 65536",
    ),
    "group of fractions": (
        lambda a: a.update(group=a["rewards"] + 0.5),
        "array group is of type float64; expected integers or text",
    ),
    "three axes": (
        lambda a: a.update({n: a[n][None] for n in ("logp", "logp_old", "mask")}),
        "expected (B, T), or (tokens,)",
    ),
}


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("fault", ARRAYS)
def test_broken_arrays(
    fault: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks, words = ARRAYS[fault]
    arrays = arrays_of(recorded(16))
    width = arrays["logp"].shape[1]
    breaks(arrays)
    path = tmp_path / f"run.{ending}"
    if ending == "npz":
        np.savez(path, **arrays)
    else:
        whole = {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in arrays.items()}
        save_file(whole, path)
    assert words.replace("{t}", str(width)).replace("{t1}", str(width - 1)) in error_of(
        path, capsys
    )


def test_ragged_arrays_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ragged = np.array([np.zeros(3), np.zeros(2)], dtype=object)
    np.savez(tmp_path / "run.npz", logp=ragged, logp_old=ragged)
    assert "array logp holds Python objects" in error_of(tmp_path / "run.npz", capsys)


@pytest.mark.parametrize("ending", FORMATS)
def test_empty_and_cut_files(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"run.{ending}"
    whole = write(recorded(16), path).read_bytes()
    words = {"parquet": "no whole Parquet", "jsonl": "ends in the middle"}.get(ending, "no whole")
    path.write_bytes(whole[: len(whole) // 2])
    assert words in error_of(path, capsys)
    path.write_bytes(b"")
    assert "empty" in (said := error_of(path, capsys)) or "no line" in said


def test_a_damaged_page_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(recorded(16), tmp_path / "run.parquet")
    whole = bytearray(path.read_bytes())
    middle = len(whole) // 8
    whole[middle : middle + 400] = b"\xff" * 400
    path.write_bytes(whole)
    error_of(path, capsys)


@pytest.mark.parametrize("ending", FORMATS)
def test_damaged_files_are_read_or_refused_in_words(ending: str, tmp_path: Path) -> None:
    dice = random.Random(0)
    path = tmp_path / f"run.{ending}"
    whole = write(full_run(), path).read_bytes()
    said = []
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(dice.choice((1, 3, 30))):
            near_an_end = dice.choice((dice.randrange(400), len(whole) - 1 - dice.randrange(400)))
            place = dice.choice((near_an_end, dice.randrange(len(whole))))
            damaged[place] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            measure(read_run(path))
        except RunFileError as error:
            said.append(str(error))
    assert len(said) > 10
    assert all(text.startswith(f"{path}: ") for text in said)


def test_too_much_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(columns, "MOST_TOKENS", 100)
    for ending in FORMATS:
        path = write(recorded(16), tmp_path / f"run.{ending}")
        assert "inspect reads up to 100: write every k-th update" in error_of(path, capsys)


def test_a_header_that_promises_too_much_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = io.BytesIO()
    promised = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(header, promised)
    with zipfile.ZipFile(tmp_path / "run.npz", "w") as archive:
        for name in ("logp.npy", "logp_old.npy"):
            archive.writestr(name, header.getvalue())
    assert "array logp of shape (1000000, 1000000) takes 4,000 GB" in error_of(
        tmp_path / "run.npz", capsys
    )


def test_an_impossible_shape_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = io.BytesIO()
    promised = {"descr": "<f4", "fortran_order": False, "shape": (-1, 5)}
    np.lib.format.write_array_header_1_0(header, promised)
    with zipfile.ZipFile(tmp_path / "run.npz", "w") as archive:
        archive.writestr("logp.npy", header.getvalue())
    assert "array logp has the impossible shape (-1, 5)" in error_of(tmp_path / "run.npz", capsys)


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in error_of(tmp_path / "none.parquet", capsys)
    (tmp_path / "run.csv").write_text("logp\n")
    assert "its name ends in .csv; expected .parquet" in error_of(tmp_path / "run.csv", capsys)
    (tmp_path / "run").mkdir()
    assert "holds no .parquet file" in error_of(tmp_path / "run", capsys)
    (tmp_path / "run.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "no text in UTF-8" in error_of(tmp_path / "run.jsonl", capsys)
    (tmp_path / "run.jsonl").write_text("[1, 2]\n")
    assert "line 1 holds list" in error_of(tmp_path / "run.jsonl", capsys)


def test_a_later_line_of_another_kind_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(recorded(8), tmp_path / "run.jsonl")
    lines = path.read_text().splitlines()
    lines[4] = json.dumps({**json.loads(lines[4]), "rewards": "good"})
    path.write_text("\n".join(lines) + "\n")
    assert 'rewards, line 5: holds "good"; expected a number' in error_of(path, capsys)
    lines[4] = "{nonsense}"
    path.write_text("\n".join(lines) + "\n")
    assert "line 5 is no JSON" in error_of(path, capsys)


def test_parts_of_two_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(recorded(8), tmp_path / "a.parquet")
    write(without("rewards"), tmp_path / "b.parquet")
    assert "b.parquet has other columns" in error_of(tmp_path, capsys)
    write(changed("rewards", 3, math.nan), tmp_path / "b.parquet")
    assert "rewards, row 3 of b.parquet" in error_of(tmp_path, capsys)


def test_missing_rewards_do_no_harm_beside_advantages(tmp_path: Path) -> None:
    run = {**changed("rewards", 5, None), "advantages": [0.5, -0.5] * 8}
    found = read_run(write(run, tmp_path / "run.parquet"))
    assert found.rewards is not None
    assert np.isnan(found.rewards[5])


def test_settings_of_the_wrong_kind(tmp_path: Path) -> None:
    for ending in ("parquet", "jsonl", "npz"):
        path = write(recorded(8), tmp_path / f"run.{ending}", clip_low="narrow")
        with pytest.raises(RunFileError, match="setting clip_low is 'narrow'; expected float"):
            read_run(path)


@pytest.mark.parametrize("value", [math.inf, math.nan, -1e300])
@pytest.mark.parametrize("name", ["clip_high", "max_length"])
def test_settings_without_bounds(
    name: str, value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(recorded(8), tmp_path / "run.parquet", **{name: value})
    assert f"setting {name} is {value}; expected a number of up to" in error_of(path, capsys)


def test_settings_of_an_npz_are_one_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.npz"
    np.savez(path, gspo_edu=np.arange(3), **arrays_of(recorded(8)))
    assert "array gspo_edu has shape (3,); expected one JSON text" in error_of(path, capsys)


@pytest.mark.parametrize("ending", FORMATS)
def test_rewards_may_be_true_and_false(ending: str, tmp_path: Path) -> None:
    run = recorded(16)
    run["rewards"] = [reward > 0.5 for reward in run["rewards"]]
    found = read_run(write(run, tmp_path / f"run.{ending}"))
    assert found.rewards is not None
    assert found.rewards.tolist() == run["rewards"]


def test_a_folder_may_be_the_present_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / "inner").mkdir(parents=True)
    write(recorded(16), tmp_path / "run" / "a.parquet")
    for place, name in (("run", "."), ("run/inner", "..")):
        monkeypatch.chdir(tmp_path / place)
        assert cli.main(["inspect", name]) == 0
        assert capsys.readouterr().out.startswith("run: 16 answers")
        (tmp_path / "run-inspect.png").unlink()
