"""A launcher makes one Job per generation, whatever is there, is in the way, or dies meanwhile."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.resources import KubernetesLauncher
from laminar_core.resources.drivers.kubernetes_job import driver_job
from laminar_core.resources.drivers.kubernetes_launcher import KubernetesStart
from laminar_core.resources.drivers.launcher import Predecessor
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.resources.drivers.kubernetes_server import NAMESPACE, KubernetesServer, serving
from tests.store.stores import claimant, elsewhere, never, open_job

STORE_URI = "s3://bucket/prod"
COMMAND = ["laminar", "run", "payments.py", "--expect-generation", "0", "--reason", "a start"]


class Waiting:
    """A clock on which something happens during each wait; without that, time goes by."""

    def __init__(self, *happens: Callable[[], None]) -> None:
        self.happens, self.time_ms = list(happens), 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return self.time_ms

    def wait_ms(self, duration_ms: float) -> None:
        self.time_ms += duration_ms
        if self.happens:
            self.happens.pop(0)()


class World:
    """A namespace, a store, and one stream."""

    def __init__(self, server: KubernetesServer, kubeconfig: Path) -> None:
        self.server, self.kubeconfig = server, kubeconfig
        self.store: CheckpointStore = open_job()
        self.store.objects.create()

    def start(
        self,
        *happens: Callable[[], None],
        follows: int = 0,
        command: list[str] = COMMAND,
    ) -> KubernetesStart:
        return self.launcher().start(
            "payments",
            command,
            env={"LAMINAR_ACTOR": "ann"},
            log=logging.getLogger("test.kubernetes"),
            start_timeout_s=4,
            predecessor=Predecessor(self.store, STORE_URI, follows),
            clock=Waiting(*happens),
        )

    def launcher(self) -> KubernetesLauncher:
        return KubernetesLauncher(image="streams:1", kubeconfig=str(self.kubeconfig))

    def leave_behind(self) -> None:
        """The Job of an attempt whose run was killed before the driver ran."""
        options = self.launcher()._pod_options(NAMESPACE)
        job = driver_job("payments", STORE_URI, 0, COMMAND, {}, options)
        self.server.create(json.loads(json.dumps(job.body)))

    def fails(self, *happens: Callable[[], None], **how: Any) -> dg.Failure:
        with pytest.raises(dg.Failure) as caught:
            self.start(*happens, **how)
        return caught.value

    def name(self, generation: int = 1) -> str:
        return f"laminar-payments-5b75efcd-{generation}"

    def claim(self, host: str | None = None) -> Generation:
        """The pod of the newest Job claims the job, or somebody else."""
        number = (self.store.claims.last() or 0) + 1
        owner = elsewhere(number).model_copy(update={"host_id": f"{host or self.name(number)}/1"})
        generation = self.store.claims.claim(claimant(owner), wait_ms=never, take_over=True)
        self.store.generations.record_base(generation, None)
        return generation

    def run(self, host: str | None = None) -> None:
        """It claims the job, and its workers run."""
        beat = Heartbeat(sequence=1, at_ms=7, progress={"rows_in": 3})
        self.store.generations.beat(self.claim(host), beat)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[tuple[KubernetesServer, Path]]:
    server = KubernetesServer()
    with serving(server, tmp_path_factory.mktemp("kubernetes")) as kubeconfig:
        yield server, kubeconfig


@pytest.fixture
def world(shared) -> World:
    server, kubeconfig = shared
    vars(server).update(vars(KubernetesServer()))
    return World(server, kubeconfig)


def test_a_driver_whose_workers_run_is_left_alone(world: World) -> None:
    start = world.start(lambda: None, world.run)
    assert start.facts == {
        "kubernetes_result": "created",
        "kubernetes_ended_jobs": [],
        "kubernetes_job": world.name(),
        "kubernetes_namespace": NAMESPACE,
        "log_command": f"kubectl logs --namespace {NAMESPACE} job/{world.name()}",
    }
    assert world.server.acts == [("create", world.name())]


def test_its_events_are_those_of_the_store(world: World) -> None:
    events = world.start(world.run).events
    assert {name: event["time_ms"] for name, event in events.items()} == {
        "generation-started": 1_700_000_000_000,
        "workers-running": 7,
        "data-flowing": 7,
    }
    assert events["generation-started"]["restored_checkpoint_id"] is None


def test_a_job_that_is_over_at_once_has_been_started(world: World) -> None:
    def finish() -> None:
        world.store.generations.end(world.claim(), "finished", "")
        world.server.end_job(world.name(), "Complete")

    assert world.start(finish).events["finished"]["outcome"] == "finished"


def test_the_same_start_again_finds_its_job(world: World) -> None:
    world.leave_behind()
    world.server.add_pod(world.name(), "Running")
    start = world.start(world.run)
    assert start.facts["kubernetes_result"] == "adopted"
    assert world.server.acts == [("create", world.name())]


@pytest.mark.parametrize("condition", ["Failed", "Complete"])
def test_an_attempt_that_is_over_makes_room_for_the_next_one(world: World, condition: str) -> None:
    world.leave_behind()
    world.server.end_job(world.name(), condition)
    start = world.start(world.run, command=[*COMMAND, "--another"])
    assert start.facts["kubernetes_result"] == "replaced"


def test_an_attempt_whose_container_never_ran_makes_room(world: World) -> None:
    world.leave_behind()
    world.server.add_pod(world.name(), "Pending", waiting={"reason": "ImagePullBackOff"})
    start = world.start(world.run, command=[*COMMAND, "--another"])
    assert start.facts["kubernetes_result"] == "replaced"


def test_of_two_starts_the_first_is_left_alone(world: World) -> None:
    world.leave_behind()
    world.server.add_pod(world.name(), "Running")
    failure = world.fails(command=[*COMMAND, "--another"])
    assert "another start that follows generation 0 was faster" in str(failure.description)
    assert failure.metadata["kubernetes_job"].value == world.name()
    assert world.name() in world.server.jobs


def test_a_job_of_somebody_else_is_not_touched(world: World) -> None:
    world.server.create({"metadata": {"name": world.name(), "labels": {}}})
    assert "no launcher of Laminar made" in str(world.fails().description)
    assert list(world.server.jobs) == [world.name()]


def test_a_job_that_is_being_deleted_is_waited_for(world: World) -> None:
    world.leave_behind()
    world.server.jobs[world.name()]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    start = world.start(world.server.jobs.clear, world.run, command=[*COMMAND, "--another"])
    assert start.facts["kubernetes_result"] == "created"


def test_a_job_that_never_goes_is_not_waited_for_for_ever(world: World) -> None:
    world.leave_behind()
    world.server.jobs[world.name()]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert "is still being deleted" in str(world.fails().description)


def test_deleting_twice_is_no_error(world: World) -> None:
    """Somebody deletes the Job while the driver starts: the launcher finds nothing to delete."""
    failure = world.fails(world.server.jobs.clear)
    assert failure.description == "the driver gave up: somebody deleted its Job"


def test_an_earlier_generation_is_ended_once_the_new_one_runs(world: World) -> None:
    world.start(world.run)
    seen: list[list[str]] = []

    def run() -> None:
        seen.append(sorted(world.server.jobs))
        world.run()

    start = world.start(run, follows=1)
    assert seen == [[world.name(1), world.name(2)]]
    assert start.facts["kubernetes_ended_jobs"] == [world.name(1)]
    assert list(world.server.jobs) == [world.name(2)]


def test_a_driver_that_is_taken_over_is_ended_first(world: World) -> None:
    """It may hold the cores that the new one needs."""
    world.start(world.run)
    world.server.before_create = lambda: None if not world.server.jobs else pytest.fail("too late")
    start = world.start(world.run, follows=1, command=[*COMMAND, "--take-over"])
    assert start.facts["kubernetes_ended_jobs"] == [world.name(1)]


def test_jobs_of_other_streams_and_finished_ones_stay(world: World) -> None:
    world.start(world.run)
    world.server.end_job(world.name(1), "Failed")
    labels = {"app.kubernetes.io/managed-by": "laminar", "app.kubernetes.io/instance": "other"}
    world.server.create({"metadata": {"name": "other-1", "labels": labels}})
    assert world.start(world.run, follows=1).facts["kubernetes_ended_jobs"] == []
    assert "other-1" in world.server.jobs


def test_a_driver_that_runs_is_not_given_up_because_an_old_job_cannot_be_deleted(world) -> None:
    world.start(world.run)
    world.server.forbidden = {("delete", "jobs")}
    assert world.start(world.run, follows=1).facts["kubernetes_ended_jobs"] == []


def test_a_refusal_has_the_drivers_own_words(world: World) -> None:
    said = '{"event": "failed"}\nerror: no such path: data/missing\n'

    def refuse() -> None:
        ended = {"exitCode": 2, "reason": "Error", "message": said}
        world.server.add_pod(world.name(), "Failed", terminated=ended)

    failure = world.fails(refuse)
    assert failure.description == "the driver gave up with exit code 2: no such path: data/missing"
    assert failure.allow_retries is False
    assert (failure.metadata["exit_code"].value, failure.metadata["pod_reason"].value) == (
        2,
        "Error",
    )
    assert world.server.jobs == {}


def test_who_was_faster_elsewhere_is_not_taken_for_it(world: World) -> None:
    def refused() -> None:
        ended = {"exitCode": 2, "message": "error: generation 1 is not the newest"}
        world.server.add_pod(world.name(), "Failed", terminated=ended)

    failure = world.fails(lambda: world.run("laptop"), refused)
    assert failure.description == (
        "the driver gave up with exit code 2: generation 1 is not the newest"
    )


def test_a_generation_that_fails_on_its_way_up_is_not_the_one_to_wait_for(world: World) -> None:
    def fail() -> None:
        world.store.generations.end(world.claim(), "failed", "a worker died")

    start = world.start(fail, lambda: world.run(world.name(1)))
    assert start.events["generation-started"]["generation"] == 2


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({}, "it has no pod"),
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
            "its pod: Pending (ImagePullBackOff, no such image)",
        ),
    ],
)
def test_a_driver_that_does_not_come_up_is_deleted(world: World, container, words) -> None:
    def pend() -> None:
        if container:
            world.server.add_pod(world.name(), "Pending", **container)

    failure = world.fails(pend)
    said = str(failure.description)
    assert said.startswith("the driver did not run within 4 s (start_timeout of the stream)")
    assert said.endswith(f"it had claimed nothing; {words}")
    assert world.server.acts[-1] == ("delete", world.name())


def test_an_interrupt_before_it_runs_ends_it(world: World) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.start(interrupt)
    assert world.server.jobs == {}


@pytest.mark.parametrize(
    ("verb", "resource", "group"),
    [("create", "jobs", "batch"), ("get", "jobs", "batch"), ("list", "pods", "")],
)
def test_a_missing_right_is_named_in_one_line(world: World, verb, resource, group) -> None:
    world.server.forbidden = {(verb, resource)}
    failure = world.fails()
    assert failure.description == (
        f"a right is missing in namespace {NAMESPACE}: give the service account of Dagster's runs "
        f'the verb {verb} on {resource} (API group "{group}") by a Role: {resource} is forbidden: '
        f'User "sa" cannot {verb} it'
    )
    assert failure.metadata["kubernetes_problem"].value == "forbidden"
    assert failure.allow_retries is False


def test_a_server_that_fails_for_a_while_does_not_end_a_start(world: World) -> None:
    def fail() -> None:
        world.server.fails_with = 503

    def recover() -> None:
        world.server.fails_with = None

    assert "workers-running" in world.start(fail, recover, world.run).events


@pytest.mark.parametrize(("code", "problem"), [(503, "unavailable"), (401, "unauthorized")])
def test_what_cannot_be_created_is_said_in_one_line(world: World, code, problem) -> None:
    world.server.fails_with = code
    failure = world.fails()
    assert failure.metadata["kubernetes_problem"].value == problem
    assert "etcd has no leader" in str(failure.description)
    assert failure.allow_retries is (problem == "unavailable")


def test_without_a_cluster_one_line_says_what_to_set(world: World, tmp_path: Path) -> None:
    world.kubeconfig = tmp_path / "missing"
    said = str(world.fails().description)
    assert said.startswith("no cluster is known (")
    assert said.endswith("set kubeconfig and context of KubernetesLauncher")


def test_an_api_server_that_is_not_there_is_named(world: World, tmp_path: Path) -> None:
    gone = KubernetesServer()
    with serving(gone, tmp_path) as kubeconfig:
        world.kubeconfig = kubeconfig
    failure = world.fails()
    assert "cannot be reached" in str(failure.description)
    assert failure.allow_retries is True
