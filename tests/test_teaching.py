"""The teacher's guide names what there is, and its numbers follow from the package."""

from __future__ import annotations

import importlib
import math
import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from gspo_edu.checks import exercises

widgets = pytest.importorskip("gspo_edu.widgets", reason="pip install -e '.[lab]'")

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from misconceptions import MISCONCEPTIONS, Misconception  # noqa: E402

tables = importlib.import_module("teaching_tables")
GUIDE = (ROOT / "docs/teaching.md").read_text(encoding="utf-8")
TEXTS = tables.lesson_texts()
PLANNED = re.compile(r"^\|(?: (\d) \|)? (\d+)–(\d+) \|(.*)\|(.*)\|(.*)\|(.*)\|$", re.M)
LESSONS = set(TEXTS)


def asked(name: str) -> bool:
    """Whether a lesson asks for that prediction."""
    return re.search(rf'predict\(\s*"{re.escape(name)}"', TEXTS[name.split()[0]]) is not None


def headings(lesson: str) -> set[str]:
    """Titles of a lesson's sections."""
    return set(re.findall(r"^## (.+)$", TEXTS[lesson], re.M))


def plans() -> dict[str, list[tuple[int, int]]]:
    """Begin and end of every row of each plan, in order."""
    found: dict[str, list[tuple[int, int]]] = {}
    place = ""
    for line in GUIDE.splitlines():
        place = line.lstrip("# ") if line.startswith("#") else place
        row = PLANNED.match(line)
        if row:
            key = f"{place} {row[1] or ''}"
            found.setdefault(key, []).append((int(row[2]), int(row[3])))
    return found


def test_the_tables_are_up_to_date() -> None:
    stored = tables.PAGE.read_text(encoding="utf-8")
    assert stored == tables.page(), "python docs/teaching_tables.py writes them anew"


@pytest.mark.parametrize("one", MISCONCEPTIONS, ids=lambda one: one.belief)
def test_the_course_asks_what_reveals_a_misconception(one: Misconception) -> None:
    kind, _, name = one.question.partition(" ")
    if kind == "prediction":
        assert asked(name)
    else:
        assert kind == "exercise"
        assert name in {item.name for exercise in exercises().values() for item in exercise.items}


@pytest.mark.parametrize(
    ("belief", "expected"),
    [
        ("Clipping caps", [2.0 * -0.4, 2]),
        ("The sequence ratio is", [(1.2 * 0.9 * 1.1) ** 0.25, 1.2 * 0.9 * 1.1]),
        ("Two answers per prompt", [0.18**2 + 0.82**2, 0.18**8 + 0.82**8]),
        ("n or n − 1", [0.625 / math.sqrt(0.171875), 0.625 / math.sqrt(0.6875 / 3)]),
        ("The sampled KL", [0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)]),
        ("The group may", [0.25 / math.sqrt(0.1875), 0.75 / math.sqrt(0.1875), 1]),
        ("A geometric mean", [2 ** (5 / 200)]),
        ("Three seeds", [4.30265 / math.sqrt(3) / (2.36462 / math.sqrt(8))]),
        ("Replay copies", [1 / (1 + math.exp(0.2)), 1 / (1 + math.exp(0.9))]),
        ("A clip fraction", [0.36 * 4 / 3]),
        ("A range near 0", [0.5]),
    ],
)
def test_numbers_of_misconceptions_by_another_way(belief: str, expected: list[float]) -> None:
    [one] = [one for one in MISCONCEPTIONS if one.belief.startswith(belief)]
    said = [float(number) for number in re.findall(r"[-+]?\d+(?:\.\d+)?", one.settled())]
    for number in expected:
        assert any(math.isclose(number, shown, rel_tol=5e-3) for shown in said), (number, said)


def test_every_plan_fills_ninety_minutes_without_gaps() -> None:
    found = plans()
    assert len(found) == 1 + 3 + 5
    for rows in found.values():
        assert rows[0][0] == 0
        assert rows[-1][1] == 90
        assert all(before[1] == after[0] for before, after in pairwise(rows))


def test_the_plans_name_sections_widgets_and_predictions_that_exist() -> None:
    votes = 0
    for row in PLANNED.finditer(GUIDE):
        lesson, project, widget, vote = (cell.strip() for cell in row.groups()[3:])
        assert lesson in LESSONS | {""}
        for title in re.findall(r"\*(.+?)\*", project):
            assert lesson, f"{title} stands in no lesson's row"
            assert title in headings(lesson)
        for name in re.findall(r"`(\w+)`", widget):
            assert hasattr(widgets, name)
            assert f"{name}(" in TEXTS[lesson]
        for name in re.findall(r"`(.+?)`", vote):
            assert asked(name)
            votes += 1
    assert votes > 30


def test_the_answers_to_what_learners_ask_stand_where_the_guide_says() -> None:
    rows = re.findall(r"^\| .+\? \| (\d\d) \| (.+) \|$", GUIDE, re.M)
    assert len(rows) > 15
    for lesson, places in rows:
        titles = re.findall(r"\*(.+?)\*", places)
        assert titles
        assert set(titles) <= headings(lesson)


def test_the_guide_covers_every_lesson_and_exercise() -> None:
    page = tables.page()
    for lesson in LESSONS:
        assert f"\n| {lesson} | " in GUIDE
        assert f"\nLesson {lesson}:\n" in page
    for number, exercise in exercises().items():
        assert f"| {number} {exercise.title} |" in page


def test_what_hosts_are_told_fits_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lowest = dict(line.split(">=") for line in project["dependencies"])
    old = re.search(r"PyTorch on the host is older than (\S+) or NumPy older than (\d+)", GUIDE)
    assert old is not None
    assert (old[1], f"{old[2]}.0") == (lowest["torch"], lowest["numpy"])
    (install,) = re.findall(r"^!pip install .*$", GUIDE, re.M)
    assert "anywidget" in install
    assert "gspo-edu @" in install
    extras = set(re.findall(r"gspo-edu\[([a-z,]+)\]", GUIDE))
    named = {extra for group in extras for extra in group.split(",")}
    assert named <= set(project["optional-dependencies"])


def test_the_hub_is_told_the_course_and_variables_that_grading_uses() -> None:
    build = (ROOT / "exercises/build.py").read_text(encoding="utf-8")
    (course,) = set(re.findall(r'c\.CourseDirectory\.course_id = "(.+)"', GUIDE))
    assert f'c.CourseDirectory.course_id = "{course}"' in build
    assert 'os.environ.setdefault("GSPO_EDU_CLASS_SEED"' in build, "the teacher's own stays"
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "gspo_edu").rglob("*.py"))
    for variable in set(re.findall(r"GSPO_EDU_\w+", GUIDE)):
        assert f'"{variable}"' in code, variable
