"""The UI as a person uses it: look at a checkpoint, fill in a form, click."""

from pathlib import Path

import pytest

from examples.operations.browser import (
    Shot,
    asset_page,
    browsing,
    why_no_browser,
)
from examples.operations.client import DagsterClient
from examples.operations.server import free_port, serving
from laminar_core.host.clock import SystemClock
from laminar_core.resources.names import checkpoint_key
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.pins import Pins
from tests.store.stores import JOB, claim, complete

pytestmark = [
    pytest.mark.early,
    pytest.mark.large,
    pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser())),
]

UP_MS_MAX = 60_000
ONE_CHOICE = "ops: {laminar_recover: {config: {restore: {newest: {}}}}}"
TWO_CHOICES = ONE_CHOICE.replace("newest: {}", "newest: {}, checkpoint: {number: 2}")
CONFIG = """
ops:
  laminar_pin:
    config: {checkpoint_id: 2, reason: before the upgrade}
"""


def test_a_checkpoint_is_looked_at_and_pinned_in_the_ui(tmp_path: Path) -> None:
    store = CheckpointStore.open(str(tmp_path / "store"), JOB)
    generation = claim(store)
    for checkpoint_id in (1, 2, 3):
        complete(store, checkpoint_id, generation)
    store.generations.end(generation, "stopped", "")
    ui, clock = DagsterClient(free_port()), SystemClock()
    with serving(tmp_path, "examples.operations.definitions", ui.port, clock):
        wait(lambda: ui.is_up() and "0000000003" in ui.partitions(checkpoint_key(JOB)))
        with browsing(ui.port) as browser:
            picture = browser.take(
                Shot(
                    "one",
                    asset_page(JOB, "checkpoint", "partitions", partition="0000000002"),
                    ["mode"],
                ),
                tmp_path,
            )
            assert picture.read_bytes().startswith(b"\x89PNG")
            browser.page.get_by_alt_text("alignment per channel").first.wait_for()
            browser.open(asset_page(JOB, "deployment"), ["stopped at checkpoint 3"])
            browser.fill_in("laminar_recover", TWO_CHOICES, "only specify a single field")
            assert not browser.may_launch
            browser.fill_in("laminar_recover", ONE_CHOICE)
            assert browser.may_launch
            browser.launch("laminar_pin", CONFIG)
            run_id = browser.page.url.rpartition("/")[2].partition("?")[0]
        wait(lambda: ui.run(run_id).is_over)
        assert ui.run(run_id).status == "SUCCESS", ui.why_failed(run_id)
    (stored,) = Pins(store).list()
    assert (stored.record.checkpoint_id, stored.record.reason) == (2, "before the upgrade")


def wait(done) -> None:
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + UP_MS_MAX
    while not done():
        assert clock.monotonic_ms() < deadline_ms
        clock.wait_ms(250)
