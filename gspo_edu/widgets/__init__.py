"""Widgets to drag: they draw in the browser, and a cell reads what the reader chose.

Constructor arguments are the traits; the browser and Python both read and write them:

- ``RatioClip(objective="ppo", *, clip_low, clip_high, ratio, advantage)``: "ppo", "grpo" or "gspo";
  read also ``surrogate``, ``slope``, ``clipped``, ``outside``. Lesson 02.
- ``OneAnswer(ratios, *, token, grpo_low, grpo_high, gspo_low, gspo_high)``: token ratios of one
  answer; read also ``product``, ``geometric_mean``, and the numbers of tokens
  ``clipped("grpo" | "gspo", advantage)`` and ``outside("grpo" | "gspo")``. Lesson 03.
- ``LengthSpread(*, sigma, length, clip_low, clip_high)``: read also ``spread`` (``mean``, ``std``,
  ``below``, ``above``, ``outside``, ``product_90``). Lesson 05.
- ``GroupAdvantage(rewards, *, ddof, normalize, low, high)``: read also ``mean``, ``std``,
  ``advantages``. Lesson 00.
- ``GradientWeights(ratios, advantages, *, objective, answer, token, …)``: a group of answers and
  the settings of seven objectives; read ``weights()``, every token's weight under each. Lesson 06.
- ``Routes(record, *, update, replay, token, layer)``: one answer's experts after each update; read
  ``experts()``, ``gates()``, ``flips()``, ``drift``, ``ratios``. Lesson 07.
- ``TrainingReplay(study, *, arms, setting, rollout, seed)``: two arms of a stored study; read
  ``values(arm)``, ``curve(metric, arm)``. Lesson 08.

Name the widget and end the cell with it (``clip = RatioClip()`` then ``clip``); a later cell prints
``clip.ratio`` or ``clip.words()``, one sentence on the present state. Every default gives a good
start, every argument is checked, and the same arguments always give the same picture and words.

Tag a cell that shows a widget ``nbval-ignore-output``: the live view has a random model id. The
output also holds a PNG and that sentence, for pages without a kernel (GitHub, nbconvert). Call
``static_outputs(notebook)`` before a notebook is stored: it drops the live view from the outputs,
so that the picture shows and no empty box. ``to_html(widget)`` is one page that works from disk.

Tested in a browser: JupyterLab 4, Notebook 7, and the page from disk. VS Code was tried by hand,
one widget, in its browser version (code-server 4.139.1, Jupyter extension 2026.6.1, no Python
extension, no network): ``RatioClip`` follows mouse and keys, and a later cell reads the page's
number, once the extension finds anywidget's files in the kernel's environment. It asks the Python
extension for that folder; here it was told by hand. Where it finds them neither there nor on the
internet, as with a kernel on a Jupyter server offline, the output is a box with an error; a stored
notebook that is opened again shows the picture. VS Code on the desktop, the other widgets in it,
and Colab have not been tried.

The numbers come from ``static/math.js``, which is tested against the same reference file as the
Python code.
"""

try:
    import anywidget  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError(
        "gspo_edu.widgets needs the package anywidget; install it with `pip install anywidget`."
    ) from missing

from gspo_edu.widgets.base import LessonWidget
from gspo_edu.widgets.gradient_weights import GradientWeights
from gspo_edu.widgets.group_advantage import GroupAdvantage
from gspo_edu.widgets.length_spread import LengthSpread
from gspo_edu.widgets.one_answer import OneAnswer
from gspo_edu.widgets.page import to_html
from gspo_edu.widgets.ratio_clip import RatioClip
from gspo_edu.widgets.replay_record import replay_record
from gspo_edu.widgets.route_record import route_record
from gspo_edu.widgets.routes import Routes
from gspo_edu.widgets.stored import static_outputs
from gspo_edu.widgets.training_replay import TrainingReplay

# In the order in which a reader meets them.
WIDGETS: tuple[type[LessonWidget], ...] = (
    GroupAdvantage,
    RatioClip,
    OneAnswer,
    LengthSpread,
    GradientWeights,
    Routes,
    TrainingReplay,
)

__all__ = [
    "WIDGETS",
    "GradientWeights",
    "GroupAdvantage",
    "LengthSpread",
    "OneAnswer",
    "RatioClip",
    "Routes",
    "TrainingReplay",
    "replay_record",
    "route_record",
    "static_outputs",
    "to_html",
]
