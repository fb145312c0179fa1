"""Chromium and Jupyter for the browser tests, each with settings of its own."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("Playwright is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """open_page(width=..., color_scheme=...) → a page whose script errors fail the test."""
    contexts, errors = [], []

    def new(width=900, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield new
    for context in contexts:
        context.close()
    assert errors == []


# No question over the notebook, and no cell left out because it is not in view.
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@contextmanager
def jupyter(module, folder):
    """Run ``python -m module`` on the notebooks in ``folder``; gives address and token."""
    own = {
        name: str(folder / name.lower())
        for name in (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_RUNTIME_DIR",
            "JUPYTERLAB_SETTINGS_DIR",
            "JUPYTERLAB_WORKSPACES_DIR",
            "IPYTHONDIR",
        )
    }
    own["GSPO_EDU_PREDICTIONS"] = str(folder / "predictions.json")
    for name, values in SETTINGS.items():
        file = folder / f"jupyterlab_settings_dir/@jupyterlab/{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", module, "--no-browser", "--allow-root"]
    command += [
        f"--ServerApp.port={port}",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port_retries=0",
    ]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    log = folder / "log.txt"
    with log.open("w") as stream:
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | own, stdout=stream, stderr=subprocess.STDOUT
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/api/status?token={token}", server, log)
        yield address, token
    finally:
        server.terminate()
        server.wait(timeout=20)


def wait_for(address, server, log):
    for _ in range(300):
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def jupyter_with(tmp_path_factory):
    """jupyter_with(module, {name: notebook}) → (address, token) of a server with these files."""
    nbformat = pytest.importorskip("nbformat")
    running = []

    def start(module, notebooks):
        folder = tmp_path_factory.mktemp(module)
        for name, notebook in notebooks.items():
            nbformat.write(notebook, folder / name)
        server = jupyter(module, folder)
        running.append(server)
        return server.__enter__()

    yield start
    for server in running:
        server.__exit__(None, None, None)


ERROR = '[data-mime-type="application/vnd.jupyter.error"]'


class Notebook:
    """A notebook that is open in a page."""

    def __init__(self, page):
        self.page = page

    def run_all(self, timeout=400_000):
        """Run every cell as a reader does, and wait for the last, which has not run before."""
        cells = self.page.locator(".jp-Notebook .jp-CodeCell")
        cells.first.wait_for(state="attached")  # its code may be folded
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.page.wait_for_function(
            "(last) => /\\d/.test(last.querySelector('.jp-InputPrompt').textContent)"
            f" || document.querySelector({ERROR!r})",
            arg=cells.last.element_handle(),
            timeout=timeout,
        )
        assert self.page.locator(ERROR).all_inner_texts() == []

    def run_cell(self, index):
        """Run one cell as a reader does; the texts of its outputs."""
        cell = self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)
        cell.locator(".cm-content").click()
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function(
            "([node, before]) => ![before, '[*]:'].includes(node.innerText)",
            arg=[prompt.element_handle(), before],
        )
        self.page.keyboard.press("Escape")
        return cell.locator(".jp-OutputArea-output").all_inner_texts()


@pytest.fixture
def notebook_in():
    """notebook_in(page) → the notebook that the page shows."""
    return Notebook
