"""Dagster starts a stream in Kubernetes with the same jobs, and shows what the launcher did."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration import StreamSpec, laminar_definitions
from laminar_core.protocol.types import Generation
from laminar_core.records.manifest import Heartbeat
from laminar_core.resources import KubernetesLauncher, laminar_resources
from laminar_core.resources.drivers.kubernetes_job import instance_of
from laminar_core.resources.names import asset_key, job_name
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.orchestration.started import line_of
from tests.resources.drivers.kubernetes_server import NAMESPACE, KubernetesServer, serving
from tests.store.stores import JOB, claimant, elsewhere, never


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[KubernetesServer, Path]]:
    server = KubernetesServer()
    with serving(server, tmp_path) as kubeconfig:
        yield server, kubeconfig


def start(tmp_path: Path, kubeconfig: Path, instance: dg.DagsterInstance):
    program = Path(__file__).parents[1] / "stream_stand_in.py"
    definitions = dg.Definitions.merge(
        laminar_definitions(StreamSpec(name=JOB, program=program, laminar=("laminar",))),
        dg.Definitions(
            resources=laminar_resources(
                str(tmp_path / "store"),
                launcher=KubernetesLauncher(image="streams:1", kubeconfig=str(kubeconfig)),
            )
        ),
    )
    config = {"start_from": "fresh", "reason": "first of all"}
    return definitions.resolve_job_def(job_name("start")).execute_in_process(
        instance=instance,
        run_config={"ops": {job_name("start"): {"config": config}}},
        raise_on_error=False,
    )


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield instance


def test_a_stream_starts_as_a_job_of_kubernetes(tmp_path, server, instance) -> None:
    kubernetes, kubeconfig = server
    name = f"{instance_of(JOB, str(tmp_path / 'store'))}-1"
    store = CheckpointStore.open(str(tmp_path / "store"), JOB)

    def run() -> None:
        """Its pod claims the stream at once."""
        owner = elsewhere().model_copy(update={"host_id": f"{name}/1"})
        store.objects.create()
        store.claims.claim(claimant(owner), wait_ms=never)
        store.generations.record_base(Generation(1), None)
        beat = Heartbeat(sequence=1, at_ms=7, progress={"rows_in": 3})
        store.generations.beat(Generation(1), beat)

    kubernetes.before_create = run
    assert start(tmp_path, kubeconfig, instance).success
    event = instance.get_latest_materialization_event(asset_key(JOB, "deployment"))
    assert event is not None
    assert event.asset_materialization is not None
    facts = {name: each.value for name, each in event.asset_materialization.metadata.items()}
    assert (facts["kubernetes_job"], facts["host"], facts["generation"]) == (name, name, 1)
    assert facts["kubernetes_result"] == "created"
    assert facts["log_command"] == f"kubectl logs --namespace {NAMESPACE} job/{name}"
    (job,) = kubernetes.jobs.values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = container["args"]
    assert words[:2] == ["laminar", "run"]
    assert words[words.index("--expect-generation") + 1] == "0"


def test_a_missing_right_ends_the_run_in_one_line(tmp_path, server, instance) -> None:
    kubernetes, kubeconfig = server
    kubernetes.forbidden = {("create", "jobs")}
    said = line_of(start(tmp_path, kubeconfig, instance))
    assert said.startswith(f"a right is missing in namespace {NAMESPACE}: give the service account")
