"""What nbconvert shows where no kernel runs."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("anywidget")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
nbconvert = pytest.importorskip("nbconvert")
pytest.importorskip("ipykernel")

from gspo_edu.widgets import OneAnswer, static_outputs  # noqa: E402
from gspo_edu.widgets.base import STATE  # noqa: E402

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def executed():
    cells = ["from gspo_edu.widgets import OneAnswer", "OneAnswer()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return notebook


def html(notebook):
    return nbconvert.HTMLExporter().from_notebook_node(notebook)[0]


def test_stored_notebook_shows_the_picture(executed):
    (output,) = executed.cells[1].outputs
    assert output.metadata["image/png"]["alt"] == OneAnswer().words()
    assert {WIDGET_VIEW, STATE, "image/png", "text/plain"} == set(output.data)
    assert output.data[STATE]["widget"] == "one_answer"
    assert json.loads(output.data[STATE]["state"]) == OneAnswer().settings()
    assert output.data["text/plain"] == OneAnswer().words()

    stored = nbformat.from_dict(executed)
    assert static_outputs(stored) == 1
    nbformat.validate(stored)
    page = html(stored)
    (image,) = re.findall(r"<img [^>]*>", page)
    assert 'src="data:image/png;base64,' in re.sub(r"\s", " ", image)
    assert WIDGET_VIEW not in page


def test_without_widget_state_the_picture_is_preferred(executed):
    # As `nbconvert --execute --ExecutePreprocessor.store_widget_state=False` leaves it.
    notebook = nbformat.from_dict(executed)
    notebook.metadata.pop("widgets", None)
    page = html(notebook)
    assert re.search(r"<img [^>]*data:image/png", page)
    assert WIDGET_VIEW not in page


class Images(HTMLParser):
    """The stored pictures of a page with their alternative texts, and its number of slides."""

    def __init__(self, page):
        super().__init__()
        self.alts = {}
        self.slides = 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        kind, _, data = given.get("src", "").partition("base64,")
        if tag == "img" and kind == "data:image/png;":
            self.alts["".join(data.split())] = given["alt"]
        self.slides += tag == "section"


def png_of(output):
    return "".join(output.data["image/png"].split())


@pytest.mark.parametrize(
    ("exporter", "settings"),
    [("HTMLExporter", {}), ("HTMLExporter", {"template_name": "classic"}), ("SlidesExporter", {})],
    ids=["html", "classic", "slides"],
)
@pytest.mark.parametrize("lesson", ["06_who_gets_the_gradient", "08_the_experiment"])
def test_a_lessons_page_and_slides_show_the_picture(lesson, exporter, settings):
    notebook = nbformat.read(LESSONS / f"{lesson}.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    starts = ("Gradient weights of", "Study stormy")
    (widget,) = [
        output
        for output in outputs
        if "image/png" in output.get("data", {}) and output.data["text/plain"].startswith(starts)
    ]
    page = getattr(nbconvert, exporter)(**settings).from_notebook_node(notebook)[0]
    assert "widget-view+json" not in page
    found = Images(page)
    assert png_of(widget) in found.alts
    assert (found.slides > 0) == (exporter == "SlidesExporter")
    if settings:  # the other templates of nbconvert leave out the alternative texts of pictures
        assert found.alts[png_of(widget)] == widget.data["text/plain"]
        assert all(found.alts.values())


@pytest.mark.parametrize("exporter", ["HTMLExporter", "SlidesExporter"])
def test_saved_by_a_reader_no_box_is_empty(executed, exporter):
    """As JupyterLab saves it: the view's id is there, its state is not."""
    notebook = nbformat.from_dict(executed)
    notebook.metadata.pop("widgets", None)
    (output,) = notebook.cells[1].outputs
    output.data[WIDGET_VIEW] = {"model_id": "x"}
    page = getattr(nbconvert, exporter)().from_notebook_node(notebook)[0]
    assert list(Images(page).alts) == [png_of(output)]
    assert WIDGET_VIEW not in page
