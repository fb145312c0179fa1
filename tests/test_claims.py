"""The ledger is whole, cites what is in the bibliography, and takes its numbers from studies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gspo_edu import claims as module
from gspo_edu.bibliography import source
from gspo_edu.claims import (
    KINDS,
    METRICS,
    STATUS,
    Claim,
    Measurement,
    claim,
    claims,
    ledger,
    overview,
)
from gspo_edu.stored_studies import stored_study
from gspo_edu.study_cells import in_words
from gspo_edu.study_file import STUDIES, read_study

TEXTS = Path(__file__).resolve().parents[1] / "lessons/text"


@pytest.mark.parametrize("row", claims(), ids=lambda row: row.key)
def test_a_row_is_whole(row: Claim) -> None:
    assert row.claim.endswith(".")
    assert row.verdict.endswith((".", "?"))
    assert row.open.endswith(".")
    assert row.open in str(row)
    assert row.by
    assert row.status in STATUS
    assert row.evidence
    for entry in row.evidence:
        assert entry.kind in KINDS
        assert entry.side in ("for", "against")
        assert entry.where
        assert entry.says.endswith(".")
        if entry.source is None:
            assert entry.kind == "T"
            lesson = re.match(r"lesson (\d\d), section (\d+)$", entry.where)
            assert lesson, "what a lesson computes is named by lesson and section"
            (text,) = TEXTS.glob(f"{lesson[1]}_*.py")
            assert re.search(rf"^## {lesson[2]} · ", text.read_text(encoding="utf-8"), re.M)
        else:
            assert entry.kind in ("P", "I")
            source(entry.source)
            assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry.read)


def test_every_key_is_there_once() -> None:
    assert len({row.key for row in claims()}) == len(claims())


def test_all_that_the_course_must_weigh_is_there() -> None:
    wanted = {
        *("stable_on_moe", "clip_paradox", "ill_posed", "ten_percent", "replay_needless"),
        *("engine_mismatch", "dense_small", "best_of_family", "on_policy", "scales", "qwen3"),
        *("consistent_activations", "breakthrough", "cornerstone"),
    }
    assert wanted <= {row.key for row in claims()}


@pytest.mark.parametrize("row", claims(), ids=lambda row: row.key)
def test_what_is_measured_can_be_asked_of_the_study_file(row: Claim) -> None:
    for one in row.measured:
        study = read_study(STUDIES / f"{one.study}.toml")
        arms = {arm["name"] for arm in tomllib.loads(study.text)["arm"]}
        assert {one.first, one.second} <= arms
        assert one.setting in {in_words(cell.setting) for cell in study.cells}
        assert one.metric is None or one.metric in METRICS


def test_the_authors_word_alone_is_never_called_more_than_a_report() -> None:
    for row in claims():
        if {entry.kind for entry in row.evidence if entry.side == "for"} == {"P"}:
            assert row.status in ("reported", "argued", "opinion", "mixed"), row.key
        if row.status == "mixed":
            assert row.side("for"), row.key
            assert row.side("against"), row.key


def test_a_paired_difference_is_the_study_s_own() -> None:
    pair = stored_study("calm").pair("GSPO", "GRPO", "lr 0.001")
    text = str(Measurement("calm", "GSPO", "GRPO", "lr 0.001"))
    assert f"{pair.mean:+.3f}" in text
    assert f"above 0 on {pair.above} of 8 seeds" in text
    assert pair.verdict in text


def test_a_metric_is_the_mean_over_the_seeds() -> None:
    one = Measurement("calm", "GSPO", "GRPO", "lr 0.001", "clip_fraction_seq")
    first, second = one.means()
    study = stored_study("calm")
    assert first == pytest.approx(study.group("GSPO", "lr 0.001").means["clip"])
    assert second == pytest.approx(study.group("GRPO", "lr 0.001").means["clip"])
    assert f"{first / second:.2f} times as much" in str(one)
    with pytest.raises(ValueError, match="metric is None"):
        Measurement("calm", "GSPO", "GRPO", "lr 0.001").means()


def test_a_study_that_is_not_stored_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    row = claim("ten_percent")
    assert len(row.here) >= 2
    monkeypatch.setattr(module, "stored_names", list)
    assert row.here == []
    assert row.kinds == "P"
    assert "Measured here" not in row.parts


def test_what_was_not_read_at_the_source_says_so() -> None:
    shown = str(claim("stable_on_moe"))
    assert "known only through reading notes" in shown
    assert "read 2026" in shown
    paper = claim("ill_posed").evidence[0]
    assert "known only" not in str(paper)


def test_the_tables_show_every_claim() -> None:
    for shown in (overview()._repr_html_(), ledger()._repr_html_(), repr(overview())):
        for row in claims():
            assert row.claim.split("“")[0].split("'")[0].split(">")[0][:20] in shown
    assert overview()._repr_html_().count("<tr>") == len(claims()) + 1
    assert "<dd>" in claim("scales")._repr_html_()
    assert overview()[0] == claims()[0]
    assert len(overview()) == len(claims())


def test_an_unknown_key_names_the_close_ones() -> None:
    with pytest.raises(KeyError, match="clip_paradox"):
        claim("clip_paradoks")
