"""The widgets in a real JupyterLab: moved by mouse and keyboard, their traits read by a cell."""

import json

import pytest

pytest.importorskip("anywidget")
pytest.importorskip("jupyterlab")
pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser

CELLS = [
    "import json\n"
    "from gspo_edu.widgets import GradientWeights, GroupAdvantage, LengthSpread\n"
    "from gspo_edu.widgets import OneAnswer, RatioClip\n"
    "ratio, answer, spread, group = RatioClip(), OneAnswer(), LengthSpread(), GroupAdvantage()\n"
    "weights = GradientWeights()",
    "ratio",
    "answer",
    "spread",
    "group",
    "weights",
    "widgets = (ratio, answer, spread, group, weights)\n"
    "print(json.dumps([dict(widget.settings(), words=widget.words()) for widget in widgets]))",
    "answer.ratios = [1.0] * 9 + [3.0]",
]
READ, SET = 6, 7


@pytest.fixture(scope="module")
def lab(jupyter_with):
    """Address of a notebook in a JupyterLab that has settings of its own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    address, token = jupyter_with("jupyterlab", {"widgets.ipynb": notebook})
    return f"{address}/lab/tree/widgets.ipynb?token={token}"


def fact(view, name):
    return view.locator(f'[data-fact="{name}"]').inner_text().replace("−", "-")


def drag(page, chart, start, end):
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*points[0])
    page.mouse.down()
    page.mouse.move(*points[1], steps=6)
    page.mouse.up()


def test_reader_moves_and_a_cell_reads(open_page, lab, notebook_in):
    page = open_page(width=1100)
    page.set_viewport_size({"width": 1100, "height": 5600})
    page.goto(lab)
    page.get_by_text("| Idle").wait_for()
    notebook = notebook_in(page)
    notebook.run_all()
    page.wait_for_function("document.querySelectorAll('.gspo-w').length === 5", timeout=60_000)
    unstacked = """[...document.querySelectorAll(".gspo-w dd")].filter((number) =>
      number.getBoundingClientRect().top <
      number.previousElementSibling.getBoundingClientRect().bottom).length"""
    assert page.evaluate(unstacked) == 0  # JupyterLab has a style of its own for such lists
    ratio, answer, spread, group, weights = (page.locator(".gspo-w").nth(i) for i in range(5))
    assert answer.locator('[data-fact="tokens"]').inner_text() == "10"  # the kernel moved it
    answer.get_by_role("button", name="1.2 · 0.9 · 1.0 · 1.1").click()

    drag(page, ratio.locator("svg.gspo-plot"), (0.7, 0.5), (0.25, 0.5))
    ratio.get_by_label("GSPO").check()
    drag(page, answer.locator("svg.gspo-plot"), (0.9, 0.3), (0.9, 0.1))
    drag(page, spread.locator("svg.gspo-plot").nth(1), (0.5, 0.5), (0.9, 0.5))

    weights.get_by_role("button", name="Add an answer").click()  # two traits at once
    weights.get_by_label("CISPO").check()
    drag(page, weights.locator("svg.gspo-plot"), (0.95, 0.2), (0.95, 0.1))

    active = ".jp-Notebook-cell.jp-mod-active"
    chosen = "(node) => [...document.querySelectorAll('.jp-Notebook-cell')].indexOf(node)"
    last = group.get_by_label("answer 2")
    last.click(position={"x": 2, "y": 12})
    place = page.locator(active).evaluate(chosen)
    for key in ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert page.locator(active).evaluate(chosen) == place  # the notebook did not take the keys

    page.wait_for_timeout(200)  # the browser saves 50 ms after the hand rests
    (output,) = notebook.run_cell(READ)
    state = json.loads(output)
    assert (state[0]["objective"], state[0]["clip_low"]) == ("gspo", 3e-4)
    assert 0.998 < state[0]["ratio"] < 0.9997
    assert state[1]["ratios"][:3] == [1.2, 0.9, 1.0]
    assert state[1]["ratios"][3] > 1.27
    assert state[1]["token"] == 4
    assert state[2]["length"] > 1000
    assert state[3]["rewards"] == pytest.approx([1, 0.02, 1, 0])
    words = [one["words"] for one in state]
    assert f"the objective is {float(fact(ratio, 'objective')):g} on" in words[0]
    assert f"s = {fact(answer, 'mean')}" in words[1]
    assert f"{fact(spread, 'outside')} of answers".replace("\u00a0", "") in words[2]
    assert f"mean {fact(group, 'mean')}, std {fact(group, 'std')}" in words[3]

    assert [len(row) for row in state[4]["ratios"]] == [3, 2, 1, 4, 1]
    assert state[4]["ratios"][4][0] > 1.2
    assert (state[4]["objective"], state[4]["advantages"][4]) == ("cispo", 1)
    assert f"Token 1 of answer 5 (ratio {float(fact(weights, 'ratio')):g}, A = +1.00)" in words[4]

    notebook.run_cell(SET)
    page.wait_for_function(
        "[...document.querySelectorAll('[data-fact=mean]')].some(n => n.innerText === '1.116123')"
    )
