"""The files in ``deploy/`` agree with each other, with the code, and with the documentation."""

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml

from laminar_core import errors
from laminar_core.cli.main import laminar
from laminar_core.configuration import CheckpointsSection
from laminar_core.units import duration_ms

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
MANIFESTS, CHART = DEPLOY / "kubernetes", DEPLOY / "helm" / "laminar"
UNIT = (DEPLOY / "systemd" / "laminar@.service").read_text()
Object = dict[str, Any]


def objects(text: str) -> dict[tuple[str, str], Object]:
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@cache
def manifests() -> dict[tuple[str, str], Object]:
    """As ``kubectl kustomize`` prints them: that adds the namespace."""
    customization = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    assert set(customization) == {"apiVersion", "kind", "namespace", "resources"}
    files = [(MANIFESTS / name).read_text() for name in customization["resources"]]
    found = objects("\n---\n".join(files))
    for each in found.values():
        each["metadata"]["namespace"] = customization["namespace"]
    return found


def rendered(template: str, values: Object) -> str:
    """Fill in the two forms that the chart uses; Helm itself gives the same, tried by hand."""
    known = {"Values": values, "Release": {"Name": "payments", "Namespace": "streams"}}

    def value(path: str) -> Any:
        found: Any = known
        for name in path.strip(".").split("."):
            found = found[name]
        return found

    def block(match: re.Match[str]) -> str:
        lines = yaml.safe_dump(value(match[1]), sort_keys=False).splitlines()
        return "".join(f"\n{' ' * int(match[2])}{line}" for line in lines)

    blocks = re.sub(r"\s*\{\{- toYaml (\S+) \| nindent (\d+) \}\}", block, template)
    return re.sub(r"\{\{ (\S+) \}\}", lambda match: str(value(match[1])), blocks)


def driver() -> Object:
    (container,) = manifests()["Deployment", "payments-driver"]["spec"]["template"]["spec"][
        "containers"
    ]
    return cast("Object", container)


def conf() -> dict[str, str]:
    words = [word.removeprefix("--conf=") for word in driver()["args"] if "--conf=" in word]
    return dict(word.split("=", 1) for word in words)


def test_the_chart_makes_the_objects_of_the_manifests() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    templates = sorted((CHART / "templates").iterdir())
    found = objects("\n---\n".join(rendered(each.read_text(), values) for each in templates))
    assert found.keys() == manifests().keys()
    for key, each in found.items():
        assert each == manifests()[key], key


def parses(words: list[str]) -> None:
    name, *rest = words
    command = laminar.get_command(click.Context(laminar), name)
    assert command is not None
    context = command.make_context("laminar", rest, **laminar.context_settings)
    assert context.args == []


def test_the_commands_in_the_pods_are_understood() -> None:
    container = driver()
    probes = [container[f"{name}Probe"]["exec"]["command"] for name in ("readiness", "liveness")]
    for words in (container["args"], *probes):
        assert words[0] == "laminar"
        parses(words[1:])
    stores = {w for words in (container["args"], *probes) for w in words if "--store=" in w}
    assert len(stores) == 1


def test_a_last_checkpoint_has_the_time_that_it_may_take() -> None:
    checkpoint_ms = duration_ms(CheckpointsSection().timeout)
    pod = manifests()["Deployment", "payments-driver"]["spec"]["template"]["spec"]
    application = yaml.safe_load((DEPLOY / "spark-operator" / "payments.yaml").read_text())
    minutes = re.search(r"^TimeoutStopSec=(\d+)min$", UNIT, re.MULTILINE)
    assert minutes is not None
    for seconds in (
        pod["terminationGracePeriodSeconds"],
        application["spec"]["driver"]["terminationGracePeriodSeconds"],
        60 * int(minutes[1]),
    ):
        assert 1000 * seconds > checkpoint_ms


def test_systemd_repeats_only_what_may_succeed_the_next_time() -> None:
    line = re.search(r"^RestartPreventExitStatus=(.*)$", UNIT, re.MULTILINE)
    assert line is not None
    final = (
        errors.ConfigurationError,
        errors.DataError,
        errors.CorruptCheckpointError,
        errors.FencedError,
    )
    assert {int(code) for code in line[1].split()} == {each.exit_code for each in final}


def test_the_unit_starts_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINAR_STORE", "store")  # It is in the file that --config names.
    start = re.search(r"^ExecStart=/opt/laminar/bin/laminar (.*)$", UNIT, re.MULTILINE)
    assert start is not None
    words = start[1].replace("%i", "payments").replace("$PROGRAM $ARGUMENTS", "p.py --set a=b")
    given, _, rest = words.partition(" run ")
    assert given == "--config /etc/laminar/payments.toml"
    parses(["run", *rest.split()])


def test_the_port_for_metrics_is_the_same_everywhere() -> None:
    service = manifests()["Service", "payments-driver"]["spec"]["ports"]
    policy = manifests()["NetworkPolicy", "payments-driver"]["spec"]["ingress"][0]["ports"]
    ports = {service[0]["port"], driver()["ports"][0]["containerPort"], policy[0]["port"]}
    assert f"--prometheus-port={ports.pop()}" in driver()["args"]
    assert ports == set()
    assert "--prometheus-port 9464" in (ROOT / "docs" / "metrics.md").read_text()


def test_the_network_is_open_to_all_pods_of_a_stream() -> None:
    labels = manifests()["Deployment", "payments-driver"]["spec"]["template"]["metadata"]["labels"]
    prefix = "spark.kubernetes.executor.label."
    executor = {n.removeprefix(prefix): v for n, v in conf().items() if n.startswith(prefix)}
    policy = manifests()["NetworkPolicy", "payments"]["spec"]
    selected = policy["podSelector"]["matchLabels"]
    assert selected.items() <= labels.items()
    assert selected.items() <= executor.items()
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": selected}}]}]
    only_driver = manifests()["NetworkPolicy", "payments-driver"]["spec"]["podSelector"]
    assert only_driver["matchLabels"].items() <= labels.items()
    assert not only_driver["matchLabels"].items() <= executor.items()


def test_the_executors_are_those_of_the_driver() -> None:
    container = driver()
    workers = next(w for w in container["args"] if w.startswith("--workers="))
    assert conf()["spark.executor.instances"] == workers.removeprefix("--workers=")
    assert conf()["spark.kubernetes.container.image"] == container["image"]
    assert {"spark.authenticate", "spark.network.crypto.enabled"} <= conf().keys()
    template = manifests()["ConfigMap", "payments-executor"]["data"]["pod.yaml"]
    pod = yaml.safe_load(template)["spec"]
    assert pod["containers"][0]["name"] == "spark-kubernetes-executor"  # Spark looks for it.
    assert pod["automountServiceAccountToken"] is False
    folder, _, name = conf()["spark.kubernetes.executor.podTemplateFile"].rpartition("/")
    assert name == "pod.yaml"
    assert folder in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_no_file_has_a_secret_in_it() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        text = path.read_text()
        assert "kind: Secret" not in text, path
        found = re.search(r"(?i)(secret[._-]?(access[._-]?)?key|password)\s*[:=]\s*\S", text)
        assert found is None or "user:password@" in text, path


def test_nobody_is_root() -> None:
    dockerfile = (DEPLOY / "image" / "Dockerfile").read_text()
    users = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    pod = manifests()["Deployment", "payments-driver"]["spec"]["template"]["spec"]
    executor = yaml.safe_load(manifests()["ConfigMap", "payments-executor"]["data"]["pod.yaml"])
    for context in (pod["securityContext"], executor["spec"]["securityContext"]):
        assert (context["runAsNonRoot"], [str(context["runAsUser"])]) == (True, users)


def test_the_image_is_built_from_the_files_of_the_wheel_and_from_nothing_else() -> None:
    ignored = (DEPLOY / "image" / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    links = {path.name for path in (ROOT / "laminar_core").iterdir() if path.is_symlink()}
    files = {"LICENSE", "README.md", "pyproject.toml", "requirements.lock"}
    assert kept == {"laminar_core", "deploy/image/entrypoint.sh"} | links | files
    assert "*" in ignored


def test_the_image_has_extras_that_exist() -> None:
    dockerfile = (DEPLOY / "image" / "Dockerfile").read_text()
    extras = re.search(r"^ARG EXTRAS=(.*)$", dockerfile, re.MULTILINE)
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()


def test_the_launcher_has_the_rights_that_it_uses_and_no_others() -> None:
    found = objects((MANIFESTS / "dagster" / "launcher-access.yaml").read_text())
    rules = found["Role", "laminar-launcher"]["rules"]
    granted = {(v, r) for rule in rules for r in rule["resources"] for v in rule["verbs"]}
    source = (ROOT / "resources" / "drivers" / "kubernetes_api.py").read_text()
    used = re.findall(r'self\._send\(\s*"(\w+)",\s*"(\w+)"', source)
    assert granted == set(used)


def test_the_operators_program_is_a_stream() -> None:
    program = (DEPLOY / "spark-operator" / "payments.py").read_text()
    compile(program, "payments.py", "exec")
    application = yaml.safe_load((DEPLOY / "spark-operator" / "payments.yaml").read_text())["spec"]
    assert application["mainApplicationFile"].endswith("/payments.py")
    assert f"workers={application['executor']['instances']}" in program


def entrypoint(tmp_path: Path, *words: str, **environment: str) -> list[str]:
    """Return the words with which the image's entry point calls java, spark-submit or a command."""
    for name in ("java", "bin/spark-submit"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        [str(DEPLOY / "image" / "entrypoint.sh"), *words],
        env={"PATH": path, "SPARK_HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_image_starts_an_executor_as_spark_asks_for_it(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dn{n}=a b *" for n in range(11)}
    words = entrypoint(
        tmp_path,
        "executor",
        SPARK_EXECUTOR_MEMORY="1g",
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@10.0.0.1:7078",
        SPARK_EXECUTOR_ID="1",
        SPARK_EXECUTOR_CORES="1",
        SPARK_APPLICATION_ID="app",
        SPARK_EXECUTOR_POD_IP="10.0.0.2",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="exec-1",
        **options,
    )
    assert words[1:12] == list(options.values())
    assert words[12:14] == ["-Xms1g", "-Xmx1g"]
    assert words[14:17] == [
        "-cp",
        f"/opt/spark/conf::{tmp_path}/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ]
    given = dict(zip(words[17::2], words[18::2], strict=True))
    assert given["--driver-url"] == "spark://CoarseGrainedScheduler@10.0.0.1:7078"
    assert (given["--hostname"], given["--podName"]) == ("10.0.0.2", "exec-1")


def test_the_image_starts_a_driver_for_the_operator_and_any_other_command(tmp_path: Path) -> None:
    words = entrypoint(tmp_path, "driver", "p.py", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert words[1:] == [
        *("--conf", "spark.driver.bindAddress=10.0.0.1", "--deploy-mode", "client", "p.py")
    ]
    assert entrypoint(tmp_path, "echo", "a  b") == ["a  b"]
