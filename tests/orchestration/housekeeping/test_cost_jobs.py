"""The report of costs as a Dagster run, over a store that is known to the byte."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.cost_jobs import build_cost_job
from laminar_core.orchestration.spec import PriceTable
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.records.record import JsonObject
from tests.orchestration.housekeeping_bench import SPEC, Bench, bench_at
from tests.retention.retention_jobs import HOUR_MS, START_MS

PRICED = SPEC.model_copy(update={"prices": PriceTable(currency="EUR", gb_month=2**30)})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path) as bench:
        bench.job.start()
        for _ in range(5):
            bench.job.complete()
        bench.clock.wait_ms(bench.job.clock_ms - START_MS)
        yield bench


def report(bench: Bench) -> dict:
    assert bench.run(build_cost_job(Group((PRICED,)), bench.clock)).success
    return bench.materialised("costs")[-1]


def test_bytes_are_those_in_the_store_by_kind(bench) -> None:
    objects = bench.store.objects
    key = bench.store.paths.inflight(CheckpointId(5), 0)
    objects.put(key, b"x" * 123)
    told = report(bench)
    sizes = {key: objects.size(key) for key in objects.list("")}
    rows = {row["kind"]: row for row in told["stored"]}
    shared = [size for key, size in sizes.items() if key.startswith(bench.store.paths.shared)]
    assert (rows["shared segments"]["objects"], rows["shared segments"]["bytes"]) == (
        len(shared),
        sum(shared),
    )
    assert (rows["in-flight"]["objects"], rows["in-flight"]["bytes"]) == (1, 123)
    assert rows["checkpoint files"]["objects"] == 5
    assert rows["records"]["bytes are"] == "counted"
    assert (told["stored_objects"], told["stored_bytes"]) == (len(sizes), sum(sizes.values()))
    assert told["storage_per_month"] == told["stored_bytes"]  # At a unit of money per byte.


def test_what_retention_would_save_is_what_it_then_deletes(bench) -> None:
    told = report(bench)
    assert [row["retention"] for row in told["checkpoints"]] == [
        *["keeps it"] * 3,
        *["deletes it"] * 2,
    ]
    assert told["retention_saves_bytes"] == sum(
        row["bytes of its own"] for row in told["checkpoints"][3:]
    )


def test_checkpoints_are_reported_by_age(bench) -> None:
    ages = {row["age"]: row["checkpoints"] for row in report(bench)["by_age"]}
    assert ages["younger than an hour"] == 2  # One each half hour, the last one now.
    assert ages["younger than a day"] == ages["all"] == 5


def test_without_counted_requests_it_says_so_and_gives_no_sum(bench) -> None:
    told = report(bench)
    assert {"cost_per_month", "cost_per_checkpoint", "requests"}.isdisjoint(told)
    assert "what requests cost is not known" in told["counted"]


def test_requests_are_those_of_the_heartbeat(bench) -> None:
    said = {"puts": 1000, "gets": 2000, "lists": 0, "bytes_up": 77}
    at_ms = START_MS + HOUR_MS
    progress: JsonObject = {"requests": dict(said)}
    bench.store.generations.beat(
        Generation(1), Heartbeat(sequence=1, at_ms=at_ms, progress=progress)
    )
    told = report(bench)
    (row,) = told["requests"]
    assert (row["generation"], row["puts"], row["gets"], row["hours"]) == (1, 1000, 2000, 1.0)
    hourly = PRICED.prices.put_per_1000 + 2 * PRICED.prices.get_per_1000
    assert told["requests_per_month"] == pytest.approx(730 * hourly)
    assert told["cost_per_checkpoint"] == pytest.approx(hourly / 2)
    assert told["cost_per_month"] == told["requests_per_month"] + told["storage_per_month"]
    assert told["currency"] == "EUR"


def test_it_counts_its_own_requests_and_changes_nothing(bench) -> None:
    before = bench.store.objects.list("")
    assert report(bench)["report_requests"] > 10
    assert bench.store.objects.list("") == before


def test_an_empty_store_fails_with_its_line(tmp_path) -> None:
    with bench_at(tmp_path) as bench:
        result = bench.run(build_cost_job(Group((SPEC,)), bench.clock))
        assert "has no job payments" in bench.failure(result)
