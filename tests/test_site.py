"""The static site: built from two lessons, sound, and with nothing to fetch."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from script_modules import script_module

for needed in ("anywidget", "jinja2", "latex2mathml", "mdit_py_plugins", "pygments"):
    pytest.importorskip(needed)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from course_site import lesson, links, pages, text  # noqa: E402

from gspo_edu.widgets import WIDGETS, OneAnswer  # noqa: E402
from gspo_edu.widgets.base import STATE  # noqa: E402

TWO = ["02", "05"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert pages.Site(folder, TWO).build() == []
    return folder


def plain_text() -> text.Text:
    addresses = {"02": "02_ppo.html", "03": "03_grpo.html"}
    return text.Text(lambda link: link, addresses.get, "glossary.html")


def test_pages_are_there_and_small(site: Path) -> None:
    found = {path.stem for path in (site / "lessons").glob("*.html")}
    assert found == {"02_ppo", "05_gspo"}
    for path in site.rglob("*.html"):
        assert path.stat().st_size < 1e6, path
        assert "data:image" not in path.read_text(encoding="utf-8")
    assert {path.stem for path in (site / "widgets").glob("*.html")} >= {
        "index",
        "ratio_clip",
        "ratio_clip-one-file",
        "training_replay",
    }


def test_scripts_and_styles_fetch_nothing(site: Path) -> None:
    for path in [*site.rglob("*.js"), *site.rglob("*.css")]:
        if path.name != "search-index.js":
            code = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"https?://|\bfetch\(|XMLHttpRequest|@import", code), path


def test_every_picture_has_its_size_and_its_words(site: Path) -> None:
    page = (site / "lessons/05_gspo.html").read_text(encoding="utf-8")
    images = re.findall(r"<img [^>]*>", page)
    assert len(images) == 6
    for image in images:
        assert re.search(r'src="pictures/05_gspo-\d\d-\d\.png" width="\d+" height="\d+"', image)
        assert len(re.findall(r'alt="([^"]+)"', image)[0]) > 20


def test_stored_state_of_each_widget_is_on_its_page(site: Path) -> None:
    page = (site / "lessons/05_gspo.html").read_text(encoding="utf-8")
    mounts = re.findall(r'data-widget="(\w+)"><script type="application/json">(.*?)</script>', page)
    assert [name for name, _ in mounts] == ["one_answer", "length_spread"]
    assert json.loads(mounts[0][1]) == OneAnswer([3.0] + [1.0] * 9).settings()
    for name in ("one_answer", "length_spread"):
        assert f'src="../assets/{name}.js"' in page


@pytest.mark.parametrize("path", sorted((ROOT / "lessons").glob("*.ipynb")), ids=lambda p: p.stem)
def test_every_widget_of_a_lesson_is_stored_with_its_state(path: Path) -> None:
    shown = re.compile(r"^(?:\w+ = )?(" + "|".join(k.__name__ for k in WIDGETS) + r")\(", re.M)
    wanted, stored = 0, 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            stored += STATE in data
            wanted += "width" in output.get("metadata", {}).get("image/png", {})
            if STATE in data:
                assert shown.search(lesson.joined(cell["source"]))
    assert stored == wanted


def test_outcomes_are_hidden_until_there_is_a_prediction(site: Path) -> None:
    page = (site / "lessons/05_gspo.html").read_text(encoding="utf-8")
    notebook = json.loads((ROOT / "lessons/05_gspo.ipynb").read_text(encoding="utf-8"))
    asked = [c for c in notebook["cells"] if "predict" in c["metadata"].get("tags", [])]
    assert page.count('<form class="question"') == len(asked) > 5
    assert page.count('<details class="outcome">') == len(asked)
    for outcome in page.split('<details class="outcome">')[1:]:
        assert '<div class="verdict">' in outcome
    before, _, hidden = page.partition('<details class="outcome">')
    assert "1.044009" not in re.sub(r"<nav.*?</nav>", "", before)
    assert "1.044009, the fourth root of 1.188." in hidden


def test_question_and_verdict_are_read_from_what_was_printed() -> None:
    printed = "How far\nis it?\n  a) near\n  b) far,\n     or further\nNo prediction yet. Put …\n"
    block = lesson.question(printed, "guess")
    assert block.html == "How far is it?"
    assert block.options == [("a", "near"), ("b", "far, or further")]
    told = lesson.verdict(
        "No prediction yet, and that is fine. The answer is b. Far\nindeed.\n  Not a: it\n"
        "     is not.\n"
    )
    assert "<p>The answer is b. Far indeed.</p>" in told
    assert '<li data-option="a"><b>Not a:</b> it is not.</li>' in told


def test_search_leads_to_sections(site: Path) -> None:
    script = (site / "assets/search-index.js").read_text(encoding="utf-8")
    rows = json.loads(script.removeprefix("globalThis.searchIndex = ").rstrip(";\n"))
    assert len(script) < 500_000
    assert any(row[1] == "7 · Why the root?" for row in rows)
    for _, _, address, _ in rows:
        assert links.broken(address, site / "index.html", site.resolve(), parsed(site)) is None


def test_search_knows_questions_and_no_outcomes(tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": "## Roots\n\nBefore."},
        {
            "cell_type": "code",
            "source": "predict()",
            "tags": ["predict"],
            "out": "How far?\n  a) near\n",
        },
        {"cell_type": "markdown", "source": "Secret words and $$x = 17$$"},
        {"cell_type": "code", "source": "reconcile()", "tags": ["reconcile"], "out": "It is a.\n"},
        {"cell_type": "markdown", "source": "Afterwards."},
    ]
    for cell in cells:
        cell["metadata"] = {"tags": cell.pop("tags", [])}
        printed = cell.pop("out", None)
        cell["outputs"] = [{"output_type": "stream", "text": printed}] if printed else []
    path = tmp_path / "99_x.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    rendered = plain_text()
    lesson.read_lesson(path, rendered)
    ((_, title, said),) = rendered.sections
    assert title == "Roots"
    assert " ".join(said) == "Before. How far? near Afterwards."


def test_search_keeps_the_teachers_answers(site: Path) -> None:
    script = (site / "assets/search-index.js").read_text(encoding="utf-8")
    rows = json.loads(script.removeprefix("globalThis.searchIndex = ").rstrip(";\n"))
    teachers = [row for row in rows if row[2].startswith("docs/teaching-tables.html#")]
    assert len(teachers) > 5
    assert not any(said for *_, said in teachers)
    assert not any("\\" in said for page, *_, said in rows if page.startswith("0"))


def test_formulas_are_found_in_words() -> None:
    assert text.in_words(r"\frac{\pi_\theta(y)}{2} + \hat{A}^{3}") == "(πθ(y))/2+A\u0302^3"
    rendered = plain_text()
    rendered.html("# A\n\n$r = 1$\n\n$$s \\le \\varepsilon$$\n")
    assert rendered.sections[0][2] == ["r=1", "s≤ε"]


_parsed: dict[Path, dict[Path, Any]] = {}


def parsed(site: Path) -> dict[Path, Any]:
    if site not in _parsed:
        folder = site.resolve()
        _parsed[site] = {
            path: links.Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")
        }
    return _parsed[site]


def test_formulas_become_mathml() -> None:
    html = plain_text().html(
        "The ratio $\\frac{\\pi_\\theta}{2}$ and\n\n$$s = \\sum_{t=1}^L r_t$$\n"
    )
    assert html.count("<math ") == 2
    assert "<mfrac>" in html
    assert "\\" not in html
    assert "$" not in html
    spaced = '<mi>log</mi><mspace width="0.17em"></mspace><msub>'
    assert spaced in plain_text().html(r"$\log r_t$")
    assert "mspace" not in plain_text().html(r"$\log (r)$")
    with pytest.raises(ValueError, match=r"\\nonsense"):
        plain_text().html(r"$\nonsense{x}$")


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "lessons").glob("*.ipynb")))
def test_every_formula_of_the_lessons_is_known(name: str) -> None:
    cells = json.loads((ROOT / f"lessons/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "markdown":
            html = plain_text().html(lesson.joined(cell["source"]))
            assert "$" not in re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)


def test_terms_are_linked_once_and_lessons_each_time() -> None:
    html = plain_text().html(
        "The importance ratio of lessons 02 (importance ratios), 03 and 09.\n\n"
        "`advantage` is code; [an advantage](x.html) is linked; advantages; an advantage.\n"
    )
    assert html.count('href="glossary.html#term-importance-ratio"') == 1
    assert html.count('href="glossary.html#term-advantage"') == 1
    assert '<a href="02_ppo.html">lessons 02</a>' in html
    assert '<a href="03_grpo.html">03</a>' in html
    assert "and 09." in html


def test_headings_are_unique_places() -> None:
    page = plain_text()
    html = page.html("## Why?\n\n## Why?\n\nwords\n")
    assert 'id="why"' in html
    assert 'id="why-2"' in html
    assert [said for _, _, said in page.sections] == [[], ["words"]]


FAULTS = {
    '<a href="nowhere.html">x</a>': "leads to no file",
    '<a href="other.html#gone">x</a>': "leads to no place",
    '<a href="#gone">x</a>': "leads to no place",
    '<a href="../../etc">x</a>': "leads out of the site",
    '<script src="https://cdn.example/x.js"></script>': "fetches https://cdn.example/x.js",
    '<link rel="stylesheet" href="//cdn.example/x.css">': "fetches //cdn.example/x.css",
    '<img src="other.html">': "without alternative text",
    '<p id="a"></p><p id="a"></p>': "two elements have the id 'a'",
}


@pytest.mark.parametrize("html", FAULTS)
def test_faults_are_found(tmp_path: Path, html: str) -> None:
    (tmp_path / "other.html").write_text('<p id="there"></p>', encoding="utf-8")
    sound = (
        '<a href="other.html#there">x</a><a href="https://arxiv.org">x</a><img src="a.png" alt="a">'
    )
    (tmp_path / "a.png").write_bytes(b"")
    page = tmp_path / "index.html"
    page.write_text(sound, encoding="utf-8")
    assert links.faults(tmp_path) == []
    page.write_text(sound + html, encoding="utf-8")
    (found,) = links.faults(tmp_path)
    assert FAULTS[html] in found


@pytest.mark.parametrize("address", ["https://fonts.example/a.woff2", "gone.woff2"])
def test_a_style_that_loads_what_is_not_there_is_a_fault(tmp_path: Path, address: str) -> None:
    (tmp_path / "a.ttf").write_bytes(b"")
    style = tmp_path / "a.css"
    style.write_text('a { src: url("a.ttf") }', encoding="utf-8")
    assert links.faults(tmp_path) == []
    style.write_text(f"a {{ src: url({address}) }}", encoding="utf-8")
    assert links.faults(tmp_path) == [f"a.css: no such file as {address}"]


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    build = script_module("docs/build.py")
    monkeypatch.setattr(sys, "argv", ["build.py", "--out", str(tmp_path / "new"), "00"])
    assert build.main() == 0
    assert build.main() == 0  # over the earlier one
    assert "0 faults" in capsys.readouterr().out
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    monkeypatch.setattr(sys, "argv", ["build.py", "--out", str(tmp_path / "full")])
    with pytest.raises(SystemExit, match="holds no site"):
        build.main()
    assert (tmp_path / "full/mine.txt").read_text() == "mine"
