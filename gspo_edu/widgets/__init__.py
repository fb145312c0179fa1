"""Widgets to drag: they draw in the browser, and a cell reads what the reader chose.

``RatioClip`` (ratio, range, slope), ``OneAnswer`` (token ratios of one answer), ``LengthSpread``
(how far the sequence ratio spreads) and ``GroupAdvantage`` (rewards to advantages). Their numbers
come from ``static/math.js``, which is tested against the same reference file as the Python code.

Where no kernel runs the cell shows a picture of the widget's state. ``to_html`` makes one page that
works from disk, and ``static_outputs`` prepares an executed notebook for storing.
"""

try:
    import anywidget  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError(
        "gspo_edu.widgets needs the package anywidget; install it with `pip install anywidget`."
    ) from missing

from gspo_edu.widgets.group_advantage import GroupAdvantage
from gspo_edu.widgets.length_spread import LengthSpread
from gspo_edu.widgets.one_answer import OneAnswer
from gspo_edu.widgets.page import to_html
from gspo_edu.widgets.ratio_clip import RatioClip
from gspo_edu.widgets.stored import static_outputs

__all__ = [
    "GroupAdvantage",
    "LengthSpread",
    "OneAnswer",
    "RatioClip",
    "static_outputs",
    "to_html",
]
