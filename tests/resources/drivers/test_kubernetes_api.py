"""The official client, against a server that answers like the API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_core.resources.drivers.kubernetes_api import Cluster
from laminar_core.resources.drivers.kubernetes_errors import KubernetesError, KubernetesProblem
from laminar_core.resources.drivers.kubernetes_facts import PodFacts
from tests.resources.drivers.kubernetes_server import NAMESPACE, KubernetesServer, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[KubernetesServer, Path]]:
    server = KubernetesServer()
    with serving(server, tmp_path) as kubeconfig:
        yield server, kubeconfig


@pytest.fixture
def cluster(server) -> Cluster:
    return Cluster.open(None, None, str(server[1]))


def test_the_namespace_is_the_one_of_the_context_or_the_given_one(server, cluster) -> None:
    assert cluster.namespace == NAMESPACE
    assert Cluster.open("other", None, str(server[1])).namespace == "other"


def test_a_job_is_deleted_once_and_never_one_that_took_its_name(server, cluster) -> None:
    def create() -> None:
        cluster.create_job({"metadata": {"name": "driver-1", "labels": {}}})

    create()
    first = cluster.find_job("driver-1")
    assert first is not None
    assert cluster.delete_job(first)
    assert not cluster.delete_job(first)
    create()
    assert not cluster.delete_job(first)
    assert "driver-1" in server[0].jobs
    with pytest.raises(KubernetesError) as caught:
        create()
    assert caught.value.problem is KubernetesProblem.CONFLICT


@pytest.mark.parametrize(
    ("phase", "container", "facts"),
    [
        ("Running", {"running": {}}, PodFacts("driver-1-x", "Running")),
        (
            "Pending",
            {"waiting": {"reason": "ImagePullBackOff", "message": "no\nsuch"}},
            PodFacts("driver-1-x", "Pending", "ImagePullBackOff", "no"),
        ),
        (
            "Failed",
            {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            PodFacts("driver-1-x", "Failed", "OOMKilled", "", 137),
        ),
    ],
)
def test_a_pod_says_why_it_does_not_run(server, cluster, phase, container, facts) -> None:
    server[0].add_pod("driver-1", phase, **container)
    assert cluster.list_pods("driver-1") == [facts]
    assert cluster.list_pods("driver-2") == []


def test_a_pod_without_a_node_has_the_schedulers_reason(server, cluster) -> None:
    server[0].add_pod("driver-1", "Pending")
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "cpu"}
    server[0].pods[0]["status"]["conditions"] = [said]
    assert cluster.list_pods("driver-1") == [
        PodFacts("driver-1-x", "Pending", "Unschedulable", "cpu")
    ]
