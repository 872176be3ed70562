"""A worker's connections are opened, counted and closed."""

from benchmarks.connections import connections_of


def test_each_peer_costs_three_open_files() -> None:
    few, many = (_files_of(workers) for workers in (4, 44))
    assert round((many - few) / 40) == 3, "descriptors of other tests may close meanwhile"


def _files_of(workers: int) -> float:
    found = {result.name: result.value for result in connections_of(workers)}
    assert found[f"connections_{workers}_workers_handshake"] > 0
    return found[f"connections_{workers}_workers_open_files"]
