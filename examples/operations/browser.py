"""Dagster's UI in a headless Chromium of this machine: what users see and do."""

import importlib.util
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from examples.operations.client import LOCATION, REPOSITORY, UiError

if TYPE_CHECKING:
    from playwright.sync_api import Page

_SIZE = (1280, 800)
_PATIENCE_MS = 30_000
_QUIET_MS = 2_000
"""The page keeps a connection open, so it may never be quite quiet."""

_DRAWN_MS = 1_000
BYTES_MAX = 200_000
_WORKSPACE = f"/locations/{REPOSITORY}@{LOCATION}"


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of one page, once it shows ``texts``; what is clicked first are selectors."""

    name: str
    path: str
    texts: Sequence[str] = ()
    clicks: Sequence[str] = ()
    height: int = _SIZE[1]


def why_no_browser() -> str | None:
    """Return what is missing; None if nothing is."""
    if importlib.util.find_spec("playwright") is None:
        return "the package playwright is not installed: make setup"
    if _chromium() is None:
        return "there is no Chromium: apt-get install chromium"
    return None


@contextmanager
def browsing(port: int) -> Iterator["Browser"]:
    """Open the UI on a port of this machine.

    Raises:
        UiError: a page did not show in time what it has to show.
    """
    from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415 - for developers only

    width, height = _SIZE
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=_chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            page = chromium.new_page(
                base_url=f"http://127.0.0.1:{port}", viewport={"width": width, "height": height}
            )
            page.set_default_timeout(_PATIENCE_MS)
            yield Browser(page)
        except Error as error:
            raise UiError(f"the UI: {' '.join(error.message.split())}") from error
        finally:
            chromium.close()


@dataclass(frozen=True, slots=True)
class Browser:
    """One browser window."""

    page: "Page"

    def open(self, path: str, texts: Sequence[str] = (), clicks: Sequence[str] = ()) -> None:
        """Open a page, click, and wait until it shows the expected texts."""
        self.page.goto(path)
        self._settle()
        for selector in clicks:
            self.page.locator(selector).first.click()
            self._settle()
        for text in texts:
            self.page.get_by_text(text).first.wait_for()

    def take(self, shot: Shot, folder: Path) -> Path:
        """Take one screenshot."""
        self.page.set_viewport_size({"width": _SIZE[0], "height": shot.height})
        self.open(shot.path, shot.texts, shot.clicks)
        self.page.wait_for_timeout(_DRAWN_MS)
        path = folder / f"{shot.name}.png"
        self.page.screenshot(path=path)
        size = path.stat().st_size
        assert size <= BYTES_MAX, f"{path} has {size} bytes"
        return path

    def fill_in(self, job: str, config: str, said: str = "No errors") -> None:
        """Fill in the form of a job in its launchpad, and wait for what it says to that."""
        self.open(launchpad(job), [job])
        self.page.locator(".CodeMirror").first.wait_for()
        self.page.evaluate(
            "text => document.querySelector('.CodeMirror').CodeMirror.setValue(text)", config
        )
        self.page.get_by_text(said).first.wait_for()

    @property
    def may_launch(self) -> bool:
        """Whether the form can be launched; it waits for what makes it so, for a while."""
        from playwright.sync_api import TimeoutError as StaysGrey  # noqa: PLC0415

        try:
            button = self.page.get_by_role("button", name="Launch Run", disabled=False)
            button.wait_for(timeout=_QUIET_MS)
        except StaysGrey:
            return False
        return True

    def launch(self, job: str, config: str) -> None:
        """Fill in the form of a job in its launchpad, and click the button."""
        self.fill_in(job, config)
        self.page.get_by_role("button", name="Launch Run").click()
        self.page.wait_for_url("**/runs/*")

    def _settle(self) -> None:
        from playwright.sync_api import TimeoutError as NeverQuiet  # noqa: PLC0415

        try:
            self.page.wait_for_load_state("networkidle", timeout=_QUIET_MS)
        except NeverQuiet:
            return


def asset_page(stream: str, name: str, view: str = "overview", **chosen: str) -> str:
    """Return the address of an asset's page; ``chosen`` is, for example, a partition."""
    return f"/assets/{stream}/{name}?{urlencode({'view': view, **chosen})}"


def launchpad(job: str) -> str:
    """Return the address of a job's form."""
    return f"{_WORKSPACE}/jobs/{job}/playground"


def sensor_page(sensor: str) -> str:
    """Return the address of a sensor's ticks."""
    return f"{_WORKSPACE}/sensors/{sensor}"


def lineage(stream: str) -> str:
    """Return the address of a stream's assets."""
    return f"{_WORKSPACE}/asset-groups/{stream}/lineage"


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)
