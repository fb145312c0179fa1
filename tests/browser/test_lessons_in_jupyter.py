"""The lessons with widgets in a real JupyterLab, and one of them in Notebook 7.

Each lesson is opened, all its cells run, and its widgets are moved by mouse and by keyboard; then a
cell reads what the reader chose, and the page must say the same.
"""

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("anywidget")
pytest.importorskip("jupyterlab")
pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LESSONS = Path(__file__).resolve().parents[2] / "lessons"
# {lesson: [(variable, slider that is moved by key, number on the page, the same from Python)]}
WIDGETS = {
    "02_ppo": [("clip", "ratio r", "objective", "format(w.surrogate, '+.2f')")],
    "05_gspo": [
        ("answer", "ratio of token", "mean", "format(w.geometric_mean, '.6f')"),
        ("lengths_and_spread", "σ: std", "outside", "format(w.spread.outside, '.1%')"),
    ],
    "06_who_gets_the_gradient": [
        (
            "gradients",
            "ratio of token",
            "ratio",
            "format(w.ratios[w.chosen()[0]][w.chosen()[1]], '.4g')",
        )
    ],
    "07_experts_and_drift": [("routes", "update", "drift", "format(w.drift, '.1%')")],
    "08_the_experiment": [
        ("replay", "rollout", "reward 0", "format(w.values('GRPO')['reward'], '.3f')")
    ],
}


def with_a_reader(lesson):
    """The stored lesson, and a last cell that prints its widgets' states and numbers."""
    notebook = nbformat.read(LESSONS / f"{lesson}.ipynb", as_version=4)
    numbers = ", ".join(
        f"(lambda w: [w.settings(), {number}])({name})" for name, _, _, number in WIDGETS[lesson]
    )
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps([{numbers}]))"))
    return notebook


@pytest.fixture(scope="module")
def lab(jupyter_with):
    return jupyter_with("jupyterlab", {f"{name}.ipynb": with_a_reader(name) for name in WIDGETS})


def shown(view, name):
    node = view.locator(f'[data-fact="{name}"], [data-value="{name}"]')
    return node.inner_text().replace("−", "-").replace("\u00a0", "")


def drag(page, view):
    """To and fro over the widget's first plot."""
    chart = view.locator("svg.gspo-plot").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    y = box["y"] + min(0.3 * box["height"], 60)
    page.mouse.move(box["x"] + 0.85 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], y - 25, steps=5)
    page.mouse.up()


def moved_and_read(page, notebook, widgets):
    """Move each widget by mouse, then by key; the page's numbers are those of Python each time."""
    views = [page.locator(".gspo-w").nth(i) for i in range(len(widgets))]
    states = []
    for view, (_, slider, *_) in zip(views, widgets, strict=True):
        drag(page, view)
        page.wait_for_timeout(600)  # the browser saves 50 ms after the hand rests
        view.get_by_label(slider).first.focus()
    for key in (None, "ArrowRight"):
        for view, (_, slider, *_) in zip(views, widgets, strict=True):
            if key:
                view.get_by_label(slider, exact=slider in ("update", "rollout")).first.focus()
                page.keyboard.press(key)
        page.wait_for_timeout(900)
        (output,) = notebook.run_cell(-1)
        found = json.loads(output)
        for view, (_, _, name, _), (_, number) in zip(views, widgets, found, strict=True):
            page_says = shown(view, name)
            # At a tie, such as 6.25 %, the two languages round to different sides.
            away = abs(float(page_says.rstrip("%")) - float(number.rstrip("%")))
            assert away < (0.11 if "%" in number else 1e-9)
        states.append([state for state, _ in found])
    for dragged, pressed in zip(*states, strict=True):
        assert dragged != pressed
    return states


def run_and_move(page, notebook, lesson):
    """Run all cells of a lesson that is open; then its widgets, by mouse and by key."""
    notebook.run_all()
    page.wait_for_function(
        f"document.querySelectorAll('.gspo-w').length === {len(WIDGETS[lesson])}", timeout=120_000
    )
    moved_and_read(page, notebook, WIDGETS[lesson])


@pytest.mark.parametrize("lesson", WIDGETS)
def test_lesson_runs_and_its_widgets_move(open_page, lab, notebook_in, lesson):
    address, token = lab
    page = open_page(width=1200)
    # A workspace of its own: the common one would open the lessons of earlier tests again, and the
    # cells of all of them would stand in the page.
    page.goto(f"{address}/lab/workspaces/{lesson}/tree/{lesson}.ipynb?token={token}")
    page.get_by_text("| Idle").wait_for(timeout=120_000)
    assert page.locator(".jp-NotebookPanel").count() == 1
    notebook = notebook_in(page)
    run_and_move(page, notebook, lesson)


def wait_for_kernel(page, kernels, seconds=120):
    """Until the page's kernel is idle and the page hears it; the page itself says neither."""
    for _ in range(2 * seconds):
        found = page.request.get(kernels).json()
        if found and found[0]["execution_state"] == "idle" and found[0]["connections"]:
            return
        page.wait_for_timeout(500)
    raise AssertionError(f"no idle kernel after {seconds} s: {found}")


def test_lesson_runs_in_notebook_7(browser, jupyter_with, notebook_in):
    if importlib.util.find_spec("notebook") is None:
        pytest.skip("Notebook 7 is not installed")
    lesson = "02_ppo"
    address, token = jupyter_with("notebook", {f"{lesson}.ipynb": with_a_reader(lesson)})
    # A page without the check for script errors: Notebook 7.6.5 makes one while it starts.
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    page = context.new_page()
    page.goto(f"{address}/notebooks/{lesson}.ipynb?token={token}")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(state="attached", timeout=120_000)
    opened = notebook_in(page)
    wait_for_kernel(page, f"{address}/api/kernels?token={token}")
    run_and_move(page, opened, lesson)
    context.close()
