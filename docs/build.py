"""Build the course as a static site: all lessons with their outputs, and widgets that live.

    python docs/build.py                     into docs/_site; open docs/_site/index.html
    python docs/build.py --out FOLDER 00 05  two lessons, elsewhere

Nothing is fetched, now or by a reader. A link that leads nowhere fails the build.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from course_site.pages import DOCS, Site

MARK = "gspo-edu-site.txt"


def emptied(folder: Path) -> None:
    """Remove an earlier site from ``folder``.

    Raises:
        SystemExit: if it holds anything else.
    """
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / MARK).is_file():
            sys.exit(f"{folder} is not empty and holds no site; give another folder")
        shutil.rmtree(folder)


def main() -> int:
    """Build what the command line names. Returns 1 if the site has a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("lesson", nargs="*", help="beginning of a name, such as 05; none: all")
    parser.add_argument("--out", type=Path, default=DOCS / "_site", help="default: docs/_site")
    args = parser.parse_args()
    began = time.perf_counter()
    site = Site(args.out, args.lesson)
    if not site.entries:
        parser.error(f"no lesson starts with {' or '.join(args.lesson)}")
    emptied(args.out)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / MARK).write_text("Made by docs/build.py, which may remove this folder.\n")
    faults = site.build()
    for fault in faults:
        print(fault, file=sys.stderr)
    files = [path for path in args.out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{args.out / 'index.html'}: {len(files)} files, {size:.1f} MB", end=", ")
    print(f"{time.perf_counter() - began:.1f} s, {len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
