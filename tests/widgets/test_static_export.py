"""What nbconvert shows where no kernel runs."""

import re

import pytest

pytest.importorskip("anywidget")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
nbconvert = pytest.importorskip("nbconvert")
pytest.importorskip("ipykernel")

from gspo_edu.widgets import OneAnswer, static_outputs  # noqa: E402

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
    assert {WIDGET_VIEW, "image/png", "text/plain"} == set(output.data)
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
