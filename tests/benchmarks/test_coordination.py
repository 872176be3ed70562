"""The coordinator completes the checkpoint of the benchmark, and gets every channel."""

from benchmarks.coordination import growth_of


def test_an_acknowledgement_grows_with_the_workers() -> None:
    few, many = (_acknowledgement_of(workers) for workers in (4, 40))
    assert few < many < 10 * few


def _acknowledgement_of(workers: int) -> float:
    found = {result.name: result.value for result in growth_of(workers)}
    assert found[f"coordinator_{workers}_workers"] > 0
    return found[f"coordinator_{workers}_workers_acknowledgement"]
