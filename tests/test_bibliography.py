"""The bibliography is complete, and every arXiv number in the project is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gspo_edu.bibliography import Source, source, sources

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("gspo_edu", "lessons", "exercises", "docs", "benchmarks", "tests/data")
SUFFIXES = {".py", ".md", ".ipynb", ".js", ".json", ".toml", ".cff"}
NUMBER = re.compile(
    r"arxiv(?:\.org/(?:abs|pdf|html)/|[\s\"':.*_]{1,6})(\d{4}\.\d{4,5})(?!\d)", re.IGNORECASE
)


def cited_numbers(text: str) -> set[str]:
    return set(NUMBER.findall(" ".join(text.split())))


def cited_in_project() -> dict[str, str]:
    """{arXiv number: one of the files that cite it}."""
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {
        number: path.relative_to(ROOT).as_posix()
        for path in files
        if path.suffix in SUFFIXES and path.name != "bibliography.json"
        for number in cited_numbers(path.read_text(encoding="utf-8", errors="ignore"))
    }


def test_the_search_for_numbers_finds_the_usual_spellings() -> None:
    spellings = (
        "arXiv 2507.18071, arXiv:2507.18072; https://arxiv.org/abs/2507.18073 and\narXiv\n"
        "2507.18074, https://arxiv.org/pdf/2507.18075v2, 2507.18076, arXiv 2507.180777"
    )
    assert cited_numbers(spellings) == {f"2507.1807{digit}" for digit in range(1, 6)}


def test_each_cited_number_is_in_the_bibliography() -> None:
    cited = cited_in_project()
    assert len(cited) >= 10, "the search found almost nothing, so it is broken"
    known = {entry.arxiv for entry in sources().values()}
    unknown = {number: path for number, path in cited.items() if number not in known}
    assert not unknown, f"not in bibliography.json: {unknown}"


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("gspo", "2507.18071"),
        ("ppo", "1707.06347"),
        ("grpo", "2402.03300"),
        ("deepseek_r1", "2501.12948"),
        ("instructgpt", "2203.02155"),
        ("dr_grpo", "2503.20783"),
        ("dapo", "2503.14476"),
        ("cispo", "2506.13585"),
        ("qwen3", "2505.09388"),
    ],
)
def test_the_numbers_of_the_main_papers(key: str, number: str) -> None:
    assert source(key).arxiv == number
    assert source(key).url == f"https://arxiv.org/abs/{number}"


@pytest.mark.parametrize("entry", sources().values(), ids=lambda entry: entry.key)
def test_every_entry_is_whole(entry: Source) -> None:
    assert entry.title.strip()
    assert entry.authors.strip()
    assert entry.url.startswith("https://")
    if entry.arxiv is not None:
        assert re.fullmatch(r"\d{4}\.\d{4,5}", entry.arxiv)
        assert entry.year == 2000 + int(entry.arxiv[:2]), "arXiv numbers begin with year and month"
        assert 1 <= int(entry.arxiv[2:4]) <= 12


def test_no_paper_is_listed_twice() -> None:
    entries = list(sources().values())
    assert len({entry.url for entry in entries}) == len(entries)


def test_a_source_reads_well() -> None:
    assert str(source("gspo")) == (
        "Zheng et al. (2025). Group Sequence Policy Optimization. arXiv 2507.18071"
    )
    assert 'href="https://arxiv.org/abs/2507.18071"' in source("gspo")._repr_html_()


def test_an_unknown_key_names_the_close_ones() -> None:
    with pytest.raises(KeyError, match=r"'grop'.*grpo"):
        source("grop")
