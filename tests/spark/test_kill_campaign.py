"""A sample of the kill campaign, and what decides whom it hits and how it counts."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from laminar_core.runtime.clock import ManualClock
from laminar_core.state.manifest import Heartbeat
from tests.spark.kill_campaign.attack import points_of
from tests.spark.kill_campaign.campaign import Campaign
from tests.spark.kill_campaign.cells import (
    DAGSTER_KINDS,
    STREAM_KINDS,
    Act,
    Cell,
    Kind,
    Phase,
    all_cells,
    in_order,
    rounds,
)
from tests.spark.kill_campaign.figures import Figures
from tests.spark.kill_campaign.pauses import Pauses, point_of
from tests.spark.kill_campaign.watching import Sensor, name_of
from tests.storage.stores import claim, open_job

SAMPLE = (
    Cell(Kind.WORKER, Phase.CUT, Act.KILL),
    Cell(Kind.JVM, Phase.COMMIT, Act.KILL),
    Cell(Kind.DAEMON, Phase.RETENTION, Act.STOP),
    Cell(Kind.DRIVER, Phase.RESTORE, Act.KILL),
)


@pytest.mark.spark
def test_a_sample_of_the_campaign(tmp_path: Path) -> None:
    """Goal: each kind of process of a stream dies once, and in the end the output is exact.

    The whole is ``make kill-campaign``.
    """
    campaign = Campaign(tmp_path, seed=1, say=lambda _: None)
    campaign.round(SAMPLE)
    figures = campaign.figures
    assert figures.failures == []
    assert figures.rounds_exact == 1
    assert dict(figures.attacks) == dict.fromkeys(SAMPLE, 1)
    assert figures.ended_by == {
        "the driver itself": 2,
        "SIGCONT": 1,
        "recovery by the sensor": 1,
    }
    assert set(figures.decisions) == {"leave", "recover"}
    assert figures.decisions["recover"] == 1


def test_every_kind_is_attacked_in_every_phase_in_both_ways_before_any_cell_comes_again() -> None:
    kinds = (*STREAM_KINDS, *DAGSTER_KINDS)
    assert set(kinds) == set(Kind)
    count = len(Kind) * len(Phase) * len(Act)
    first, second = (list(islice(in_order(seed, kinds), count)) for seed in (1, 2))
    assert set(first) == set(second) == set(all_cells(kinds))
    assert first != second
    assert first == list(islice(in_order(1, kinds), count))


def test_a_round_is_about_the_stream_or_about_dagster_and_all_cells_come() -> None:
    some = list(islice(rounds(1, tuple(Kind)), 9))
    assert [len({cell.kind.is_of_dagster for cell in cells}) for cells in some] == [1] * 9
    assert {cell for cells in some for cell in cells} == set(all_cells(tuple(Kind)))
    only = list(islice(rounds(1, (Kind.JVM,)), 2))
    assert {cell.kind for cells in only for cell in cells} == {Kind.JVM}


@pytest.mark.parametrize("cell", all_cells(tuple(Kind)), ids=str)
def test_every_phase_but_an_undisturbed_run_is_a_point_in_the_code(cell: Cell) -> None:
    assert bool(points_of(cell)) == (cell.phase is not Phase.RUN)


@pytest.mark.parametrize(
    ("role", "operation", "key", "point"),
    [
        ("driver", "put_if_absent", "job/generations/0000000002.json", "claim"),
        ("driver", "put_if_absent", "job/generations/0000000002.base.json", "base"),
        ("driver", "put_if_absent", "job/generations/0000000002.base.copy.json", None),
        ("driver", "put_if_absent", "job/generations/0000000002.end.json", "end"),
        ("driver", "put", "job/generations/0000000002.heartbeat.json", None),
        ("driver", "get", "job/generations/0000000002.json", None),
        ("driver", "put_if_absent", "job/commits/0000000007.json", "commit"),
        ("driver", "delete", "job/shared/0000000007-x.arrow", "deletion"),
        ("driver", "put_if_absent", "job/checkpoints/0000000007/manifest.json", None),
        ("worker", "put_if_absent", "job/checkpoints/0000000007/x/0/0.arrow", "snapshot"),
        ("worker", "put", "job/shared/0000000007-x.arrow", "snapshot"),
        ("worker", "get", "job/shared/0000000007-x.arrow", "restore"),
        ("worker", "get", "job/generations/0000000002.json", None),
    ],
)
def test_a_point_is_a_call_of_the_store(role, operation, key, point) -> None:
    assert point_of(role, operation, key) == point


def test_only_the_trigger_of_a_stop_is_the_point_of_a_stop() -> None:
    key = "job/checkpoints/0000000007/trigger.json"
    found = [
        point_of("driver", "put_if_absent", key, json.dumps({"kind": kind}).encode())
        for kind in ("periodic", "stop", "final")
    ]
    assert found == [None, "stop-trigger", None]


def test_a_point_that_is_armed_anew_forgets_who_came_before(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path / "pauses")
    (pauses.folder / "reached").write_text("17")
    assert pauses.reached_by() == 17
    pauses.arm("commit")
    assert pauses.reached_by() is None
    assert [path.name for path in pauses.folder.iterdir()] == ["armed-commit"]
    pauses.release()
    assert [path.name for path in pauses.folder.iterdir()] == ["released"]


def test_the_figures_count_by_kind_phase_and_act() -> None:
    cells = [SAMPLE[0], SAMPLE[0], SAMPLE[2]]
    figures = Figures(3, attacks=Counter(cells), recovery_ms=[1_000, 9_000, 2_000])
    told = figures.as_json(duration_ms=90_000)
    assert (told["attacks"], told["kills"], told["stops"], told["minutes"]) == (3, 2, 1, 1.5)
    assert told["by_kind_and_phase"] == {
        "worker": {"cut": {"kill": 2}},
        "python-daemon": {"retention": {"stop": 1}},
    }
    assert told["recovery_s"] == {"p50": 2.0, "p90": 2.0, "max": 9.0}
    json.dumps(told)


@pytest.mark.parametrize("beats", [False, True])
def test_a_driver_that_stands_still_is_taken_over_in_whatever_phase(beats) -> None:
    """Goal: without waiting, also in a start that has given no sign of life yet."""
    store = open_job()
    generation = claim(store)
    if beats:
        store.beat(generation, Heartbeat(sequence=1, at_ms=1))
    sensor = Sensor(store, ManualClock())
    assert name_of(sensor.look()[1]) == "leave"
    assert name_of(sensor.look_until_silent()) == "take-over"
    sensor.begin_anew()
    assert name_of(sensor.look()[1]) == "leave"
    assert set(sensor.decisions) == {"leave", "take-over"}
