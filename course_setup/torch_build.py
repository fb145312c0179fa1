"""Which build of PyTorch to install: for the CPU unless asked otherwise.

On Linux the plain `pip install torch` brings gigabytes of GPU libraries. There, what pip is
configured to offer is taken if it is a CPU build, and PyTorch's own CPU index otherwise.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from course_setup.processes import ROOT, Stop, child_variables, python_of, say

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
WINDOWS_GPU_INDEX = "https://download.pytorch.org/whl/cu130"
# A bigger wheel carries GPU code (CPU builds have 100 to 250 MB, GPU builds 500 and more).
CPU_WHEEL_LIMIT_MB = 400
GPU_REQUIREMENTS = re.compile(r"nvidia|cuda|triton|pytorch-triton|rocm|intel")


def pinned_version() -> str:
    """The version in constraints.txt, e.g. '2.13.0'."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = re.search(r"^torch==(\S+)", text, re.MULTILINE)
    if found is None:
        raise Stop("constraints.txt has no line 'torch==…': restore that file.")
    return found.group(1)


def installed_version(site_packages: Path) -> str | None:
    """'2.13.0+cpu', say, or None."""
    found = [path.name for path in site_packages.glob("torch-*.dist-info")]
    return found[0].removeprefix("torch-").removesuffix(".dist-info") if found else None


def arguments(env: Path, site_packages: Path, gpu: bool) -> list[str]:
    """What `pip install` needs for the right build of PyTorch; [] when that is there already."""
    version, there = pinned_version(), installed_version(site_packages)
    wanted = f"torch=={version}"
    if there and there.partition("+")[0] == version and not (gpu and there.endswith("+cpu")):
        return []
    system = platform.system()
    if gpu:
        index = ["--index-url", WINDOWS_GPU_INDEX] if system == "Windows" else []
        return ["--no-deps", *(["--force-reinstall"] if there else []), *index, wanted]
    if system != "Linux" or offers_cpu_build(env, wanted):
        return ["--no-deps", wanted]
    say(f"Taking PyTorch's CPU build from {CPU_INDEX} (the GPU build comes with --gpu).")
    return ["--no-deps", "--index-url", CPU_INDEX, f"{wanted}+cpu"]


def offers_cpu_build(env: Path, wanted: str) -> bool:
    """Whether pip, as it is configured here, would choose a CPU build. Fetches no GPU build."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [str(python_of(env)), "-m", "pip", "install", "--dry-run", "--no-deps"]
        command += ["--ignore-installed", "--progress-bar", "off", "--report", str(report), wanted]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**child_variables(env), "TMPDIR": folder},
            encoding="utf-8",
            errors="replace",
        )
        with process:
            for line in process.stdout or ():
                verdict = cpu_build_in_line(line)
                if verdict is not None:
                    process.kill()  # before it fetches the whole wheel only to describe it
                    return verdict
        try:
            return cpu_build_in_report(json.loads(report.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return False


def cpu_build_in_line(line: str) -> bool | None:
    """What one line of pip's output says about the chosen wheel of PyTorch; None if nothing."""
    wheel = r"(?:^|[/ ])torch-([^-\s]+)-\S+\.whl(?:#\S+)?(?: \(([\d.]+) (kB|MB|GB)\))?\s*$"
    found = re.search(wheel, line)
    if not found:
        return None
    version, size, unit = found.groups()
    if "+" in version or "%2B" in version:
        return version.endswith("cpu")
    if size and float(size) * {"kB": 0.001, "MB": 1, "GB": 1000}[unit] > CPU_WHEEL_LIMIT_MB:
        return False
    return None


def cpu_build_in_report(report: dict[str, Any]) -> bool:
    """Whether the PyTorch in a report of `pip install --report` needs no GPU libraries."""
    for item in report["install"]:
        wheel = item["metadata"]
        if wheel["name"] == "torch":
            build = wheel["version"].partition("+")[2]
            needs = wheel.get("requires_dist", [])
            return build in ("", "cpu") and not any(map(GPU_REQUIREMENTS.match, needs))
    return False
