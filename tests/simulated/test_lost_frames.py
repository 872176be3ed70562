"""A connection between two workers that breaks costs no restart, whatever it carried."""

from dataclasses import replace

import pytest

from laminar_core.driver.deadlines import Deadlines
from laminar_core.driver.events import CheckpointFailed, GenerationFailed
from laminar_core.driver.options import JobResult
from laminar_core.errors import BrokenLink, JobFailedError
from laminar_core.link.wire import FrameKind, decode_header
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import SCENARIOS, mesh_job, windows_job
from laminar_core.testing.simulation import Simulation

CONFIG = CoordinatorConfig(interval_ms=40, timeout_ms=600_000)


class Loss:
    """Loses some frames of the first generation, and breaks their connection or not."""

    def __init__(
        self, simulation: Simulation, kinds: set[FrameKind], count: int, after: int, *, breaks: bool
    ) -> None:
        self._network, self._send = simulation.network, simulation.network.send
        self._kinds, self._count, self._after, self._breaks = kinds, count, after, breaks
        self.lost: list[FrameKind] = []
        self._seen = 0
        simulation.network.send = self.send

    def send(self, sender: str, endpoint: str, message: object) -> None:
        if isinstance(message, tuple):
            header = decode_header(message[0])
            self._seen += header.kind in self._kinds
            chosen = header.kind in self._kinds and self._seen > self._after
            if chosen and len(self.lost) < self._count and header.generation == 1:
                self.lost.append(header.kind)
                if self._breaks:
                    self._network.connect_again(endpoint)
                return
        self._send(sender, endpoint, message)


def failures(simulation: Simulation) -> list[GenerationFailed]:
    return [event for event in simulation.events if isinstance(event, GenerationFailed)]


def run(
    job: Job, kinds: set[FrameKind], count: int = 1, after: int = 0, *, breaks: bool = True
) -> tuple[Simulation, JobResult, Loss]:
    simulation = Simulation(job.plan, seed=3, checkpoint=CONFIG)
    loss = Loss(simulation, kinds, count, after, breaks=breaks)
    return simulation, simulation.run(), loss


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        (FrameKind.BATCH, 0),
        (FrameKind.BATCH, 5),
        (FrameKind.WATERMARK, 2),
        (FrameKind.BARRIER, 1),
        (FrameKind.END, 0),
        (FrameKind.END, 1),
    ],
)
@pytest.mark.parametrize("build", [windows_job, mesh_job])
def test_a_lost_frame_is_sent_again(build, kind: FrameKind, after: int) -> None:
    job = build(2)
    simulation, result, loss = run(job, {kind}, after=after)
    assert loss.lost == [kind]
    job.check(result.rows_late)
    assert (result.outcome, failures(simulation)) == ("finished", [])


@pytest.mark.parametrize("helper", [FrameKind.MARK, FrameKind.RESEND, FrameKind.ROLL_CALL])
def test_what_mends_a_connection_may_be_lost_as_well(helper: FrameKind) -> None:
    """Goal: a mark that is lost is repeated, and so are questions and answers."""
    job = mesh_job(2)
    simulation, result, loss = run(job, {FrameKind.BATCH, helper}, count=12, after=8)
    assert helper in loss.lost
    job.check(result.rows_late)
    assert (result.outcome, failures(simulation)) == ("finished", [])


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("lasts_ms", [1_000, 25_000])
def test_a_connection_that_is_silent_for_less_than_the_limit_costs_nothing(
    lasts_ms: float,
    both: bool,  # noqa: FBT001 - a case
) -> None:
    """Both ends believe in it for eight seconds, and what is sent meanwhile is lost."""
    job = mesh_job(2)
    simulation = Simulation(job.plan, seed=5, checkpoint=CONFIG)
    for way in [(0, 1), (1, 0)][: 1 + both]:
        simulation.world.at_turn(60, lambda way=way: simulation.silence_link(*way, lasts_ms))
    result = simulation.run()
    job.check(result.rows_late)
    assert (result.outcome, failures(simulation)) == ("finished", [])


def test_a_connection_that_stays_away_names_both_workers_and_their_hosts() -> None:
    job = mesh_job(3)
    simulation = Simulation(job.plan, parallelism=3, seed=5, checkpoint=CONFIG)
    simulation.world.at_turn(60, lambda: simulation.silence_link(2, 0, 60_000))
    result = simulation.run()
    job.check(result.rows_late)
    (failure,) = failures(simulation)
    assert failure.code == "link-broken"
    assert failure.links == (BrokenLink(2, "host-2", 0, "host-0"),)


def test_how_long_it_may_stay_away_is_an_option() -> None:
    job = mesh_job(2)
    simulation = Simulation(job.plan, seed=5, checkpoint=CONFIG)
    simulation.options = replace(simulation.options, deadlines=Deadlines(link_ms=120_000))
    simulation.world.at_turn(60, lambda: simulation.silence_link(1, 0, 100_000))
    result = simulation.run()
    job.check(result.rows_late)
    assert failures(simulation) == []


@pytest.mark.parametrize("count", [1, 4, 30])
def test_lost_credit_costs_nothing(count: int) -> None:
    """The next credit makes good for it, and the last one is repeated over the new connection."""
    job = mesh_job(2)
    simulation, result, loss = run(job, {FrameKind.CREDIT}, count, after=3)
    assert len(loss.lost) == count
    job.check(result.rows_late)
    assert (result.outcome, failures(simulation)) == ("finished", [])
    assert not any(isinstance(event, CheckpointFailed) for event in simulation.events)


@pytest.mark.parametrize("kind", [FrameKind.BATCH, FrameKind.BARRIER])
def test_a_frame_that_is_lost_on_a_whole_connection_is_a_fault_of_laminar(kind) -> None:
    """A restart would only hide it, so the job ends and keeps the evidence."""
    with pytest.raises(JobFailedError, match="expected frame") as caught:
        run(mesh_job(2), {kind}, after=1, breaks=False)
    assert caught.value.code == "out-of-order"


@pytest.mark.sampled(16)
@pytest.mark.parametrize("reorders", [0, 3])
@pytest.mark.parametrize("seed", range(len(SCENARIOS)))
def test_connections_break_at_any_time_and_the_output_is_exact(seed: int, reorders: int) -> None:
    """Goal: no loss hangs, repeats or drops a row. Method: three breaks at seeded moments."""
    job = SCENARIOS[list(SCENARIOS)[seed]](2)
    config = CoordinatorConfig(interval_ms=30, alignment_timeout_ms=(None, 0, 10)[seed % 3])
    simulation = Simulation(job.plan, seed=seed, checkpoint=config, reorders=reorders)
    for turn in (30 + 7 * seed, 90 + 5 * seed, 200 + seed):
        pair = (0, 1) if turn % 2 else (1, 0)
        simulation.world.at_turn(turn, lambda pair=pair: simulation.break_link(*pair))
    result = simulation.run_to_end()
    assert result.outcome == "finished"
    job.check(result.rows_late)
    assert failures(simulation) == []
