"""Whole jobs on S3: simulated drivers and workers, a real client, a real server, real faults."""

import json

import pytest

from laminar_core.driver.events import CheckpointCompleted, GenerationStarted
from laminar_core.errors import ConfigurationError, StorageUnavailable
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.objectstore.request_counts import RequestCounts
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.jobs import Job
from laminar_core.testing.scenarios import stateless_job, windows_job
from laminar_core.testing.simulation import JOB, Simulation
from tests.cli.command_line import CommandLine
from tests.objectstore.fault_proxy import Effect, Fault
from tests.objectstore.s3_stores import open_through

FOR_EVER = 100_000


@pytest.fixture
def cli(monkeypatch, capsys) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def simulate(objects: ObjectStore) -> tuple[Job, Simulation]:
    """A job of windows that checkpoints all the time."""
    job = windows_job(2, pace=300)
    checkpoint = CoordinatorConfig(interval_ms=20, tolerable_failures=None)
    return job, Simulation(job.plan, checkpoint=checkpoint, objects=objects)


def restored(simulation: Simulation) -> list[int | None]:
    started = [event for event in simulation.events if isinstance(event, GenerationStarted)]
    return [event.restored_checkpoint_id for event in started]


class TestJobs:
    def test_workers_and_drivers_are_killed_and_the_output_is_exact(self, s3_server, cli):
        objects = S3ObjectStore(s3_server.uri())
        job, simulation = simulate(objects)
        simulation.when(CheckpointCompleted, lambda: simulation.kill_worker(0), number=2)
        simulation.when(CheckpointCompleted, simulation.kill_driver, number=4)
        assert simulation.run_to_end().outcome == "finished"
        job.check()
        assert any(restored(simulation)), "nothing was ever restored"
        self.check_command_line(cli, objects.uri)

    def check_command_line(self, cli: CommandLine, uri: str) -> None:
        """The objects of the job in the bucket are found, shown and whole."""
        listed = json.loads(cli("checkpoints", "list", "--store", uri, "--json").out)
        assert len(listed) > 3
        newest = listed[-1]["checkpoint_id"]
        shown = json.loads(cli("checkpoints", "show", "--store", uri, "--json", newest).out)
        assert (shown["job"], shown["checkpoint_id"]) == (JOB, newest)
        verified = json.loads(cli("checkpoints", "verify", "--store", uri, "--all", "--json").out)
        assert [report["ok"] for report in verified] == [True] * len(listed)
        second = listed[1]["checkpoint_id"]
        assert "offset" in cli("checkpoints", "read", "--store", uri, second).out

    def test_every_third_write_goes_wrong_and_no_checkpoint_is_lost(self, s3_server, proxy):
        """Goal: what passes is not noticed, and no winner takes itself for a loser."""
        often = {"last": FOR_EVER, "every": 12}
        proxy.script(
            Fault("PutObject", Effect.LOSE_ANSWER, first=1, **often),
            Fault("PutObject", Effect.REFUSE_AFTERWARDS, 500, "InternalError", first=4, **often),
            Fault("PutObject", Effect.REFUSE, 503, "SlowDown", first=7, **often),
            Fault("PutObject", Effect.REFUSE, 409, "ConditionalRequestConflict", first=10, **often),
        )
        objects = open_through(s3_server, proxy)
        job, simulation = simulate(objects)
        result = simulation.run()
        job.check()
        assert (result.outcome, result.generations) == ("finished", 1)
        assert objects.counts.retries > 10
        assert {record.outcome for record in simulation.store.attempts.history()} == {"completed"}

    def test_a_store_that_is_gone_for_a_while_costs_checkpoints_and_no_row(self, s3_server, proxy):
        objects = open_through(s3_server, proxy, "retry_budget_ms=0")
        proxy.script(Fault("PutObject", Effect.RESET, first=40, last=60))
        job, simulation = simulate(objects)
        for _ in range(10):
            try:
                assert simulation.run().outcome == "finished"
            except StorageUnavailable:
                continue
            break
        job.check()

    def test_a_server_that_ignores_conditions_gets_no_job(self, s3_server, proxy):
        proxy.script(Fault("PutObject", Effect.IGNORE_CONDITIONS, last=FOR_EVER))
        _, simulation = simulate(open_through(s3_server, proxy))
        with pytest.raises(ConfigurationError, match="not safe for checkpoints"):
            simulation.run()
        assert not [event for event in simulation.events if isinstance(event, GenerationStarted)]


def test_what_a_checkpoint_costs_in_requests():
    """The table of docs/storage.md. Each of the two workers writes one file per checkpoint."""

    def run(interval_ms: int) -> tuple[int, RequestCounts]:
        objects = CountedObjectStore(MemoryObjectStore())
        checkpoint = CoordinatorConfig(interval_ms=interval_ms)
        simulation = Simulation(stateless_job(2).plan, checkpoint=checkpoint, objects=objects)
        return simulation.run(scrub_bytes_per_second=0).checkpoints, objects.counts

    (few, start_and_end), (many, all_of_it) = run(1_000), run(20)
    checkpoints, cost = many - few, all_of_it - start_and_end
    assert checkpoints > 1
    assert cost.puts == checkpoints * (4 + 2)
    assert cost.lists == checkpoints * 5, "one of them looks for what the manifest names"
    # The newest audit link, and the claim, read back before each record that counts.
    assert cost.gets == checkpoints * (1 + 6)
    assert (cost.heads, cost.deletes) == (0, 0)
    assert start_and_end.puts - few * 6 == 17
    assert start_and_end.lists - few * 5 == 27
    assert start_and_end.gets - few * 7 == 32 + 2 * 2


class TestCommandLine:
    """One line that says what to do, and an exit code that says whose turn it is."""

    def test_a_store_without_a_job(self, s3_server, cli):
        answer = cli("checkpoints", "list", "--store", s3_server.uri())
        assert answer.code == ConfigurationError.exit_code
        assert "has no jobs" in answer.err

    @pytest.mark.parametrize(
        ("uri", "said"),
        [
            ("s3://no-such-bucket?endpoint_url={}", "404 NoSuchBucket"),
            ("s3://bucket?endpoint={}", "'endpoint' is not a parameter; there are: endpoint_url,"),
            ("s3://bucket?secret_key={}", "profile of ~/.aws"),
            ("s3://bucket?endpoint_url={}&profile=nobodys", "nobodys"),
        ],
    )
    def test_a_mistake_in_the_uri(self, s3_server, cli, uri, said):
        answer = cli("checkpoints", "list", "--store", uri.format(s3_server.endpoint))
        assert answer.code == ConfigurationError.exit_code
        assert said in answer.err
        assert answer.err.count("\n") == 1

    def test_a_server_that_does_not_answer(self, s3_server, proxy, cli):
        proxy.script(Fault("*", Effect.RESET, last=FOR_EVER))
        uri = s3_server.uri("retry_budget_ms=0", endpoint=proxy.endpoint)
        answer = cli("checkpoints", "list", "--store", uri)
        assert answer.code == StorageUnavailable.exit_code
        assert "check the network and the server" in answer.err
