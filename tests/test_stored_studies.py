"""Results that ship: made small without loss, whole, and of the study files that ship too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gspo_edu.run_lock import RunFolderError
from gspo_edu.stored_studies import (
    RESULTS,
    command_of,
    read_results,
    small_records,
    store_study,
    stored_names,
    stored_study,
)
from gspo_edu.study import run_study
from gspo_edu.study_figure import study_figure
from gspo_edu.study_file import STUDIES, read_study
from gspo_edu.study_summary import summary_text
from gspo_edu.study_table import UPDATES, read_description, read_table

SMALL = """
rollouts = 2
prompts = 4
group_size = 4
eval_prompts = 4
eval_every = 0
lr = ["tuned", 1e-3]
seed = [0, 1]

[[arm]]
name = "GRPO"
objective = "grpo"

[[arm]]
name = "CISPO"
objective = "cispo"

[tuning]
seed = [100]
lr = [1e-3]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that has just been run."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.toml").write_text(SMALL)
    run_study(read_study(folder / "small.toml"), folder / "out", jobs=1)
    return folder / "out"


@pytest.fixture(scope="module")
def kept(made: Path) -> Path:
    return store_study(made, made.parent / "kept")


def test_what_was_stored_reads_as_what_was_made(made: Path, kept: Path) -> None:
    study, updates = read_results(kept), read_table(made / UPDATES)
    assert len(study.updates) == len(updates) == 2 * 2 * 2 * 8
    for found, row in zip(study.updates, updates, strict=True):
        for name, value in row.items():
            if isinstance(value, float):
                assert found[name] == pytest.approx(value, rel=1e-4), name
            else:
                assert found[name] == value, name
    assert summary_text("small", study.runs, [("CISPO", "GRPO")]) in study.text
    study_figure(study.updates, study.runs)


def test_equal_records_are_stored_once(made: Path, kept: Path) -> None:
    stored = read_table(kept / UPDATES)
    assert len(stored) == 2 * 2 * 8  # the tuned rate is the common one
    assert len(read_table(made / UPDATES)) == 2 * len(stored)
    assert {row["run"] for row in stored} == {row["records"] for row in read_results(kept).runs}
    constant = read_description(kept / "study.json")["constant"]
    assert constant["answers"] == 4
    assert not constant.keys() & stored[0].keys()


def test_records_that_differ_in_one_digit_stay_apart() -> None:
    runs = [{"arm": a, "setting": "", "seed": 0, "run": a} for a in ("one", "two", "three")]
    values = {"one": 0.123456, "two": 0.12346, "three": 0.12347}
    rows = [
        {"arm": a, "setting": "", "seed": 0, "rollout": 1, "update": 1, "loss": value}
        for a, value in values.items()
    ]
    stored, same, _ = small_records(runs, rows)
    assert same == {"one": "one", "two": "one", "three": "three"}
    assert [row["loss"] for row in stored] == [0.12346, 0.12347]


def test_the_groups_and_pairs_can_be_asked_for(kept: Path) -> None:
    study = read_results(kept)
    assert study.settings == ["lr tuned", "lr 0.001"]
    assert study.group("GRPO").setting == "lr tuned"
    assert study.group("CISPO", "lr 0.001").values.keys() == {0, 1}
    assert study.pair("CISPO", "GRPO", "lr 0.001").settings == ("lr 0.001",) * 2
    assert len(study.means("GRPO", None, "entropy")) == 2
    with pytest.raises(ValueError, match="arm is 'GSPO'; expected one of GRPO; CISPO"):
        study.group("GSPO")
    with pytest.raises(ValueError, match=r"setting is 'lr 1'; expected one of lr tuned; lr 0\.001"):
        study.group("GRPO", "lr 1")
    with pytest.raises(ValueError, match=r"it has CISPO minus GRPO, at lr tuned; lr 0\.001"):
        study.pair("GRPO", "CISPO")
    with pytest.raises(ValueError, match="metric is 'joy'"):
        study.means("GRPO", None, "joy")
    with pytest.raises(ValueError, match="name is 'storm'; results are stored of answer_length"):
        stored_study("storm")


def test_an_unfinished_study_is_not_stored(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no finished study: study\.json is missing"):
        store_study(tmp_path, tmp_path / "kept")


def test_the_command_names_a_shipped_study() -> None:
    text = (STUDIES / "calm.toml").read_text(encoding="utf-8")
    assert command_of({"study": "calm", "file": text}) == "gspo-edu study calm"
    assert command_of({"study": "calm", "file": text + "#"}) == "gspo-edu study calm.toml"


@pytest.mark.parametrize("name", stored_names())
def test_stored_results_are_whole(name: str) -> None:
    study, folder = stored_study(name), RESULTS / name
    text = study.description["file"]
    assert text == (STUDIES / f"{name}.toml").read_text(encoding="utf-8"), "made by an older file"
    assert study.command == f"gspo-edu study {name}"
    planned = read_study(name)
    assert [(r["arm"], r["seed"]) for r in study.runs] == [(c.arm, c.seed) for c in planned.cells]
    assert {row["run"] for row in study.updates} == {row["run"] for row in study.runs}
    for run in study.runs:
        assert run["status"] in ("finished", "diverged")
    assert summary_text(name, study.runs, planned.pairs) in study.text
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_600_000


@pytest.mark.parametrize("name", stored_names())
def test_stored_results_name_no_machine(name: str) -> None:
    for path in (RESULTS / name).iterdir():
        if path.suffix != ".gz":
            words = path.read_text(encoding="utf-8")
            assert not re.search(r"(?<![\w.])(/[a-z]+/|[A-Z]:\\)", words), path
