"""Milliseconds per frame while a widget is dragged in Chromium, and the size of its page.

    python benchmarks/widgets.py            seven widgets, 120 frames each
    python benchmarks/widgets.py --json     the last line is one JSON object

Each widget is opened as one HTML file from disk and its plot is dragged to and fro, one move per
frame. Chromium runs without its limit of 60 frames a second, so that a frame takes as long as it
takes: script, style, layout and painting. Needs Playwright and Chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from gspo_edu import widgets

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-frame-rate-limit", "--disable-gpu-vsync"]
# {label: (widget, which of its plots or sliders is dragged)}
WIDGETS: dict[str, tuple[Any, str]] = {
    "RatioClip": (widgets.RatioClip(), "svg.gspo-plot >> nth=0"),
    "OneAnswer": (widgets.OneAnswer(), "svg.gspo-plot >> nth=0"),
    "OneAnswer, 100 tokens": (widgets.OneAnswer([1.0] * 99 + [10.0]), "svg.gspo-plot >> nth=0"),
    "LengthSpread": (widgets.LengthSpread(), "svg.gspo-plot >> nth=1"),
    "GroupAdvantage": (widgets.GroupAdvantage(), "input[type=range] >> nth=0"),
    "GradientWeights": (widgets.GradientWeights(), "svg.gspo-plot >> nth=0"),
    "Routes": (widgets.Routes(), "svg.gspo-plot >> nth=0"),
    "TrainingReplay": (widgets.TrainingReplay(), "svg.gspo-plot >> nth=0"),
}
MOST_MS, MOST_BYTES = 16.0, 1_000_000
DRAG = """
(node, frames) => new Promise((done) => {
  const box = node.getBoundingClientRect();
  const times = [];
  const slider = node.type === "range";
  if (!slider) {
    node.setPointerCapture = () => {};
    node.hasPointerCapture = () => true;
  }
  const move = (type, share) => {
    if (slider) {
      node.value = Number(node.min) + share * (node.max - node.min);
      node.dispatchEvent(new Event("input"));
    } else {
      node.dispatchEvent(new PointerEvent(type, {
        pointerId: 1, bubbles: true, button: 0,
        clientX: box.left + box.width * (0.15 + 0.7 * share),
        clientY: box.top + 20 + Math.min(box.height, 130) * 0.6 * share,
      }));
    }
  };
  move("pointerdown", 0);
  const step = (time) => {
    times.push(time);
    if (times.length > frames) return done(times);
    move("pointermove", 0.5 - 0.5 * Math.cos(times.length / 9));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""


def frame_times(page: Any, file: Path, place: str, frames: int) -> list[float]:
    """Milliseconds from frame to frame, without the first ten."""
    page.goto(file.as_uri())
    page.wait_for_selector(".gspo-w")
    times = page.locator(place).evaluate(DRAG, frames + 10)
    return [after - before for before, after in pairwise(times)][10:]


def measure(frames: int) -> dict[str, dict[str, float]]:
    """{widget: its median, 95th percentile and page size}."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    found = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        for name, (widget, place) in WIDGETS.items():
            file = Path(folder) / "widget.html"
            file.write_text(widgets.to_html(widget), encoding="utf-8")
            times = sorted(frame_times(page, file, place, frames))
            found[name] = {
                "median_ms": statistics.median(times),
                "p95_ms": times[int(0.95 * len(times))],
                "bytes": file.stat().st_size,
            }
        browser.close()
    return found


def main() -> int:
    """Measure, print, and return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--frames", type=int, default=120, help="frames per widget")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    found = measure(args.frames)
    print(f"{'':<24} {'median ms':>9} {'95 %':>6} {'page kB':>8}")
    for name, row in found.items():
        print(f"{name:<24} {row['median_ms']:9.1f} {row['p95_ms']:6.1f} {row['bytes'] / 1000:8.0f}")
    if args.json:
        print(json.dumps(found))
    slow = [name for name, row in found.items() if row["median_ms"] > MOST_MS]
    large = [name for name, row in found.items() if row["bytes"] > MOST_BYTES]
    if slow or large:
        print(f"over {MOST_MS} ms: {slow}; over {MOST_BYTES} bytes: {large}", file=sys.stderr)
    return int(bool(slow or large))


if __name__ == "__main__":
    sys.exit(main())
