"""What all widgets have in common: a static picture, words, and checks of their settings."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from traitlets import TraitError

from gspo_edu.plots import png
from gspo_edu.widgets.assets import styles
from gspo_edu.widgets.pictures import DPI, WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The ranges that each objective is published with, {objective: (clip_low, clip_high)}. They are the
# defaults of gspo_edu.objectives, repeated because importing those would import torch.
CLIP_RANGES = {"ppo": (0.2, 0.2), "grpo": (0.2, 0.27), "gspo": (3e-4, 4e-4)}

# The widget's settings in a stored output: pages without a kernel mount the widget from them.
STATE = "application/vnd.gspo-edu.widget+json"


class Numbers(traitlets.List[float]):
    """A list of floats that also takes tuples, NumPy arrays and tensors."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trait=traitlets.Float(), **kwargs)

    def validate(self, obj: Any, value: Any) -> Any:
        if hasattr(value, "tolist"):
            value = value.tolist()
        return super().validate(obj, value)


class LessonWidget(anywidget.AnyWidget):
    """A widget that also has a picture for pages without a kernel and a sentence in words.

    A subclass names its script in ``name``, loads it into ``_esm``, and gives ``words`` and
    ``picture``.
    """

    name: str
    title: str
    _css = styles()

    def __init__(self, **settings: Any) -> None:
        unknown = sorted(set(settings) - set(self.trait_names()))
        if unknown:
            known = ", ".join(self.settings())
            raise TypeError(f"{type(self).__name__} has no setting {unknown[0]!r}; it has {known}.")
        super().__init__(**settings)

    def words(self) -> str:
        """What the widget shows now, in one or two sentences."""
        raise NotImplementedError

    def picture(self) -> Figure:
        """The widget's state as a matplotlib figure, ``pictures.WIDTH`` pixels wide."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """{trait: value} of everything that the browser side reads."""
        general = set(anywidget.AnyWidget.class_trait_names())
        names = {name for name in self.trait_names(sync=True) if not name.startswith("_")}
        return {name: getattr(self, name) for name in sorted(names - general)}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        # A front end with widgets prefers the live view; all others take picture or words.
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        image = base64.b64encode(png(self.picture(), dpi=2 * DPI)).decode("ascii")
        data = data | {"text/plain": self.words(), "image/png": image}
        # One string is one line of a stored notebook, however long the record of a run is.
        data[STATE] = {"widget": self.name, "state": json.dumps(self.settings())}
        alt = {"alt": self.words(), "width": WIDTH}
        return data, metadata | {"image/png": alt}


def check(valid: bool, owner: LessonWidget, trait: str, given: object, expected: str) -> None:
    """Refuse a setting.

    Raises:
        TraitError: naming the setting, what was given and what was expected, unless ``valid``.
    """
    if not valid:
        raise TraitError(f"{type(owner).__name__}: {trait} is {given}; expected {expected}.")


def check_clip_bound(owner: LessonWidget, trait: str, value: float) -> float:
    """``value`` of clip_low or clip_high, or TraitError."""
    low = trait.endswith("low")
    valid = math.isfinite(value) and 0 < value < (1 if low else math.inf)
    expected = "a number between 0 and 1" if low else "a positive number"
    check(valid, owner, trait, value, f"{expected}, the distance of the bound from 1")
    return value
