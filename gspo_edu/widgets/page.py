"""One widget as one HTML page that opens from disk, without kernel and without network."""

from __future__ import annotations

import html
import json

from gspo_edu.widgets.assets import script, styles
from gspo_edu.widgets.base import LessonWidget

# The part of a Jupyter widget's model that our widgets use, on an object that holds the state.
MODEL = """function modelOf(state) {
  const listeners = new Map(Object.keys(state).map((name) => [`change:${name}`, new Set()]));
  return {
    get: (name) => state[name],
    set(name, value) {
      state[name] = value;
      for (const listener of listeners.get(`change:${name}`)) listener();
    },
    save_changes() {},
    on: (event, listener) => listeners.get(event).add(listener),
    off: (event, listener) => listeners.get(event).delete(listener),
  };
}
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; padding: 12px; background: light-dark(#ffffff, #0f1115);
  font: 16px/1.5 system-ui, sans-serif; }}
main {{ max-width: 1080px; margin: 0 auto; }}
{css}</style>
</head>
<body>
{still}
<main id="widget"></main>
<script type="application/json" id="state">{state}</script>
<script type="module">
{script}
const state = JSON.parse(document.getElementById("state").textContent);
{model}const model = modelOf(state);
globalThis.widgetState = state;
render({{ model, el: document.getElementById("widget") }});
</script>
</body>
</html>
"""


def without_script(widget: LessonWidget) -> str:
    """The element that says the widget's words where JavaScript is switched off."""
    said = f"JavaScript is switched off here, so the widget stands still. {widget.words()}"
    return f"<noscript><p>{html.escape(said)}</p></noscript>"


def embedded_state(widget: LessonWidget) -> str:
    """The widget's settings as JSON that can stand inside a script element."""
    # "</script>" would end the element.
    return json.dumps(widget.settings()).replace("<", "\\u003c")


def to_html(widget: LessonWidget, *, title: str | None = None) -> str:
    """A complete page that shows ``widget`` in its present state and works by itself.

    Write it to a file and open that in any browser; nothing is fetched.
    """
    return PAGE.format(
        title=html.escape(title or widget.title),
        still=without_script(widget),
        css=styles(),
        state=embedded_state(widget),
        model=MODEL,
        script=script(widget.name),
    )
