"""A Job of one start: its own name, nothing secret in it, and an end that nobody asked for."""

import signal
import subprocess
import sys
from typing import Any

import pytest

from laminar_core.resources.drivers.kubernetes_job import (
    ON_SIGTERM_KILL,
    DriverJob,
    PodOptions,
    driver_job,
    instance_of,
)

OPTIONS = PodOptions("streams", "streams:1", "laminar-driver", "1", "2Gi", ("s3",))
ON_KUBERNETES = ["laminar", "run", "p.py", "--master", "k8s://https://kubernetes.default.svc"]


def job(command: list[str] = ON_KUBERNETES, *, follows: int = 7, **changes: Any) -> DriverJob:
    env = {"LAMINAR_ACTOR": "ann", "LAMINAR_RUN_ID": "r1", "AWS_SECRET_ACCESS_KEY": "hidden"}
    options = PodOptions(**{**{n: getattr(OPTIONS, n) for n in OPTIONS.__slots__}, **changes})
    return driver_job("payments", "s3://b/prod", follows, command, env, options)


def pod(found: DriverJob) -> dict[str, Any]:
    return found.body["spec"]["template"]["spec"]


def test_each_generation_of_a_stream_in_a_store_has_a_name_of_its_own() -> None:
    assert (job().name, job(follows=8).name) == (f"{job().instance}-8", f"{job().instance}-9")
    names = {instance_of("a_b", "s"), instance_of("A_B", "s"), instance_of("a_b", "t")}
    assert len(names) == 3
    assert len(f"{instance_of('x' * 200, 's')}-9999999999-abcde") <= 63


def test_its_host_name_is_its_name_by_which_its_claim_is_known() -> None:
    assert pod(job())["hostname"] == job().name


def test_no_secret_of_the_starter_is_in_the_object() -> None:
    assert "hidden" not in str(job().body)
    (container,) = pod(job())["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "s3"}}]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert (env["LAMINAR_ACTOR"], env["LAMINAR_RUN_ID"]) == ("ann", "r1")


def test_it_is_never_repeated_by_kubernetes() -> None:
    assert (job().body["spec"]["backoffLimit"], pod(job())["restartPolicy"]) == (0, "Never")


def test_the_digest_is_that_of_the_command_and_the_image() -> None:
    assert job().digest == job().digest
    digests = {job().digest, job([*ON_KUBERNETES, "-x"]).digest, job(image="streams:2").digest}
    assert len(digests) == 3


def test_executors_find_the_driver_and_go_with_it() -> None:
    (container,) = pod(job())["containers"]
    assert container["args"][len(ON_KUBERNETES) :] == [
        *("--conf", "spark.driver.host=$(POD_IP)"),
        *("--conf", "spark.kubernetes.driver.pod.name=$(POD_NAME)"),
        *("--conf", "spark.kubernetes.namespace=streams"),
        *("--conf", "spark.kubernetes.container.image=streams:1"),
    ]


def test_settings_of_the_stream_win() -> None:
    own = [*ON_KUBERNETES, "--conf", "spark.kubernetes.container.image=executors:1"]
    (container,) = pod(job(own))["containers"]
    assert "spark.kubernetes.container.image=streams:1" not in container["args"]


def test_a_stream_on_a_local_spark_gets_no_settings_of_kubernetes() -> None:
    (container,) = pod(job(["laminar", "run", "p.py"]))["containers"]
    assert container["args"] == ["laminar", "run", "p.py"]


def test_kubernetes_puts_nothing_in_the_place_of_a_users_dollar() -> None:
    (container,) = pod(job(["laminar", "--set", "p=a$(HOME)$$"]))["containers"]
    assert container["args"][2] == "p=a$$(HOME)$$$$"


def test_the_pod_can_be_changed() -> None:
    found = pod(job(pod_spec={"nodeSelector": {"disk": "ssd"}, "securityContext": None}))
    assert (found["nodeSelector"], "securityContext" in found) == ({"disk": "ssd"}, False)


@pytest.mark.parametrize(("word", "code"), [("exit 6", 6), ("exit 0", 0)])
def test_the_exit_code_is_the_drivers(word: str, code: int) -> None:
    command = ["/bin/sh", "-c", ON_SIGTERM_KILL, "driver", "/bin/sh", "-c", word]
    assert subprocess.run(command, check=False).returncode == code


def test_sigterm_ends_it_without_the_end_that_a_person_asks_for() -> None:
    """At SIGTERM the stand-in would say that it stops."""
    stand_in = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: print('stops', flush=True))\n"
        "print('runs', flush=True); signal.pause()"
    )
    command = ["/bin/sh", "-c", ON_SIGTERM_KILL, "driver", sys.executable, "-S", "-c", stand_in]
    shell = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert shell.stdout
    with shell:
        assert shell.stdout.readline() == b"runs\n"
        shell.send_signal(signal.SIGTERM)
        assert shell.stdout.read() == b""  # It is gone, or the pipe would be open.
        assert shell.wait() == 128 + signal.SIGTERM
