"""``dagster dev`` for a project of a page, and what its owner sees in a browser."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from examples.operations.browser import Shot, asset_page, browsing, why_no_browser
from examples.operations.client import DagsterClient
from examples.operations.server import free_port
from laminar_core.host.clock import SystemClock
from laminar_core.resources.drivers.session import session_members

WORKSPACE = """
load_from:
  - python_module: {module_name: shop.definitions, location_name: laminar}
"""
SETTINGS = "telemetry: {enabled: false}\nnux: {enabled: false}\n"
PATIENCE_MS = 400_000
_MATERIALIZED = """
query($key: AssetKeyInput!, $partitions: [String!]) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode { assetMaterializations(limit: 1, partitions: $partitions) { runId } }
  }
}"""
_PAYMENTS_OF_A_DAY = "86400"
"""One each second."""

FIRST_DAY = "2026-01-01"


class ServedProject:
    """A project in ``folder``, while Dagster serves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ui = DagsterClient(free_port())

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Run ``dagster dev``, if there is a browser to look at it; end all that it started."""
        if why_no_browser() is not None:
            yield
            return
        process = self._start()
        try:
            wait(lambda: self.ui.is_up() and bool(self.ui.ticks("automation")))
            yield
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            for pid in session_members(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

    def look(self) -> None:
        """Wait until the assets below the stream were run, and look at them."""
        if why_no_browser() is not None:
            return
        wait(lambda: self._is_there("daily_sales", FIRST_DAY) and self._is_there("all_sales"))
        with browsing(self.ui.port) as browser:
            page = asset_page("totals", "output", "lineage", lineageScope="neighbors")
            browser.take(Shot("downstream", page, ["daily_sales", "all_sales"]), self.folder)
            day = f"/assets/daily_sales?view=partitions&partition={FIRST_DAY}"
            browser.take(Shot("daily", day, [FIRST_DAY, _PAYMENTS_OF_A_DAY]), self.folder)

    def _is_there(self, asset: str, *partitions: str) -> bool:
        chosen = list(partitions) or None
        found = self.ui.query(_MATERIALIZED, key={"path": [asset]}, partitions=chosen)
        return bool(found["assetNodeOrError"].get("assetMaterializations"))

    def _start(self) -> "subprocess.Popen[bytes]":
        (self.folder / "workspace.yaml").write_text(WORKSPACE)
        home, store = self.folder / "home", self.folder / "store"
        (home / "dagster.yaml").write_text(SETTINGS)
        port = str(self.ui.port)
        with (self.folder / "dagster.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-p", port],
                cwd=self.folder,
                env={
                    **os.environ,
                    "DAGSTER_HOME": str(home),
                    "LAMINAR_STORE": str(store),
                    "PYTHONPATH": str(self.folder / "src"),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def wait(done: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + PATIENCE_MS
    while not done():
        assert clock.monotonic_ms() < deadline_ms
        clock.wait_ms(500)
