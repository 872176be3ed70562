"""A sample of the kill campaign, and what decides whom it hits and how it counts."""

import json
import signal
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from laminar_core.host.clock import ManualClock, SystemClock
from laminar_core.records.manifest import Heartbeat
from tests.spark.jobs_under_test import ROOT
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
from tests.spark.kill_campaign.interrupt import Interrupt, Interrupted
from tests.spark.kill_campaign.pauses import VARIABLE, Pauses, point_of
from tests.spark.kill_campaign.watching import Sensor, name_of
from tests.spark.processes import marked
from tests.store.stores import claim, open_job

pytestmark = pytest.mark.early

SAMPLE = (
    Cell(Kind.WORKER, Phase.CUT, Act.KILL),
    Cell(Kind.JVM, Phase.COMMIT, Act.KILL),
    Cell(Kind.DAEMON, Phase.RETENTION, Act.STOP),
    Cell(Kind.DRIVER, Phase.RESTORE, Act.KILL),
)


@pytest.mark.large
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


COMMAND = (sys.executable, "-u", "-m", "tests.spark.kill_campaign", "--kinds", "worker")


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_campaign_prints_its_figures_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    figures, folder = tmp_path / "build" / "figures.json", tmp_path / "rounds"
    variable = f"{VARIABLE}={folder / 'round-001' / 'pauses'}"
    command = [*COMMAND, "--folder", str(folder), "--figures", str(figures)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as campaign:
        while not marked(variable) and campaign.poll() is None:
            SystemClock().wait_ms(20)
        campaign.send_signal(number)
        told, said = campaign.communicate()
    assert campaign.returncode == 128 + number, said
    assert marked(variable) == []
    assert "round 1: interrupted, 0 attacks, " in said
    assert f"ended with {number.name}" in told
    assert "rounds: 1 begun, 0 finished, 0 failed" in told
    kept = json.loads(figures.read_text())
    assert (kept["ended_with"], kept["rounds"], kept["failures"]) == (number.name, 1, [])
    assert list(folder.iterdir()) == []


@pytest.mark.large
def test_a_campaign_of_no_time_prints_figures_too(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [*COMMAND, "--minutes", "0", "--figures", str(figures)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "attacks: 0 (0 kills, 0 stops)" in ended.stdout
    assert json.loads(figures.read_text())["attacks"] == 0


def test_a_round_that_cannot_even_begin_is_a_failure_and_the_campaign_goes_on(
    tmp_path: Path,
) -> None:
    for number in (1, 2):
        (tmp_path / f"round-{number:03}").touch()  # Where a folder has to be.
    said: list[str] = []
    campaign = Campaign(tmp_path, seed=1, say=said.append)
    goes_on = iter([True, True, False])
    figures = campaign.run(rounds(1, tuple(Kind)), lambda: next(goes_on))
    assert (figures.rounds, figures.rounds_finished, figures.rounds_exact) == (2, 2, 0)
    assert [line.split(" s")[0] for line in said if "attacks" in line] == [
        "round 1: FAILED, 0 attacks, 0",
        "round 2: FAILED, 0 attacks, 0",
    ]
    told = figures.as_text()
    assert "ended with its time" in told
    assert "output: exact in 0 of 2 finished rounds" in told
    assert "FAILED round 2, None: FileExistsError" in told


def test_an_interruption_is_seen_before_a_round_begins(tmp_path: Path) -> None:
    interrupt = Interrupt()
    interrupt.check()
    assert interrupt.exit_code == 0
    interrupt.number = signal.SIGINT
    with pytest.raises(Interrupted, match="SIGINT"):
        interrupt.check()
    campaign = Campaign(tmp_path, seed=1, say=lambda _: None, interrupt=interrupt)
    figures = campaign.run(rounds(1, tuple(Kind)), lambda: True)
    assert (figures.rounds, figures.ended_with) == (0, "SIGINT")
    assert interrupt.exit_code == 130


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
    figures = Figures(3, attacks=Counter(cells), recovery_ms=[1_000, 9_000], duration_ms=90_400)
    told = figures.as_json()
    assert (told["attacks"], told["kills"], told["stops"], told["seconds"]) == (3, 2, 1, 90)
    assert told["by_kind_and_phase"] == {
        "worker": {"cut": {"kill": 2}},
        "python-daemon": {"retention": {"stop": 1}},
    }
    assert told["recoveries"] == 2
    assert told["recovery_s"] == {"p50": 1.0, "p90": 1.0, "max": 9.0}
    json.dumps(told)


def test_the_figures_can_be_read() -> None:
    figures = Figures(
        3,
        attacks=Counter([SAMPLE[0], SAMPLE[0], SAMPLE[2]]),
        ended_by=Counter({"the driver itself": 2}),
        recovery_ms=[1_000, 9_000],
        rounds=3,
        rounds_exact=1,
        failures=["round 2, kill worker at cut: CampaignError: it was lost"],
        duration_ms=90_400,
        ended_with="SIGTERM",
    )
    assert figures.as_text().splitlines() == [
        "seed 3: 90 s, ended with SIGTERM",
        "attacks: 3 (2 kills, 1 stops)",
        "  kills+stops         start   restore       run       cut    commit retention      stop",
        "  driver                0+0       0+0       0+0       0+0       0+0       0+0       0+0",
        "  jvm                   0+0       0+0       0+0       0+0       0+0       0+0       0+0",
        "  python-daemon         0+0       0+0       0+0       0+0       0+0       0+1       0+0",
        "  worker                0+0       0+0       0+0       2+0       0+0       0+0       0+0",
        "  dagster-daemon        0+0       0+0       0+0       0+0       0+0       0+0       0+0",
        "  code-server           0+0       0+0       0+0       0+0       0+0       0+0       0+0",
        "recoveries: 2 of 3; p50 1.0 s, p90 1.0 s, max 9.0 s",
        "back by: 2 the driver itself",
        "decisions of the sensor: none",
        "rounds: 3 begun, 2 finished, 1 failed",
        "output: exact in 1 of 2 finished rounds",
        "FAILED round 2, kill worker at cut: CampaignError: it was lost",
    ]


@pytest.mark.parametrize("beats", [False, True])
def test_a_driver_that_stands_still_is_taken_over_in_whatever_phase(beats) -> None:
    """Goal: without waiting, also in a start that has given no sign of life yet."""
    store = open_job()
    generation = claim(store)
    if beats:
        store.generations.beat(generation, Heartbeat(sequence=1, at_ms=1))
    sensor = Sensor(store, ManualClock())
    assert name_of(sensor.look()[1]) == "leave"
    assert name_of(sensor.look_until_silent()) == "take-over"
    sensor.begin_anew()
    assert name_of(sensor.look()[1]) == "leave"
    assert set(sensor.decisions) == {"leave", "take-over"}
