"""The Job of Kubernetes in which one driver runs. Pure: options in, an object of the API out.

A Job and not a Deployment: the command belongs to one start. It may go back to a checkpoint, and it
names the generation that it follows, so a manager of containers must not repeat it.
Another start is a decision, of a person or of the recovery sensor.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from laminar_core.store.attribution import ACTOR_VARIABLE, KIND_VARIABLE, RUN_ID_VARIABLE

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "laminar"
INSTANCE = "app.kubernetes.io/instance"
FOLLOWS = "laminar/follows-generation"
DIGEST = "laminar/command-digest"
CONTAINER = "driver"

ON_SIGTERM_KILL = """trap 'kill -KILL $! 2>/dev/null; exit 143' TERM INT; "$@" & wait $!"""
"""SIGTERM tells ``laminar run`` that a person wants the stream to end: no sensor restarts it then.
Kubernetes sends it whenever it moves a pod. So the driver is killed instead, which the recovery
sensor notices; what is since the last checkpoint is read again. A person uses ``laminar_stop``."""

_ENVIRONMENT = (ACTOR_VARIABLE, KIND_VARIABLE, RUN_ID_VARIABLE)
"""Variables that the driver inherits. The others may be secret, and many can read an object."""

_SLUG_LENGTH_MAX = 28
"""With the rest of the name, at most 63 characters, which a label and a host name may have."""


@dataclass(frozen=True, slots=True)
class PodOptions:
    """How the pods of drivers look, in one namespace."""

    namespace: str
    image: str
    service_account: str
    cpu: str
    memory: str
    env_from_secrets: tuple[str, ...] = ()
    kept_s: int = 86_400
    pod_spec: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Merged into the pod's specification, as a JSON merge patch; lists are replaced."""


@dataclass(frozen=True, slots=True)
class DriverJob:
    """An object to create, and how it is recognised."""

    name: str
    instance: str
    follows: int
    digest: str
    body: Mapping[str, Any]

    @property
    def selector(self) -> str:
        """Return the selector of all Jobs of this stream in this store."""
        return f"{MANAGED_BY}={MANAGER},{INSTANCE}={self.instance}"


def driver_job(
    stream: str,
    store_uri: str,
    follows: int,
    command: Sequence[str],
    env: Mapping[str, str],
    options: PodOptions,
) -> DriverJob:
    """Return the Job that runs ``command`` as the successor of generation ``follows``.

    Its name depends on the stream, the store and that generation: so there is one at most, and who
    comes second gets a conflict. It is the pod's host name, too, by which the generation's claim
    shows that it is of this Job.
    """
    instance = instance_of(stream, store_uri)
    name = f"{instance}-{follows + 1}"
    args = [*map(_literally, command), *_spark_words(command, options)]
    digest = hashlib.sha256("\0".join([options.image, *args]).encode()).hexdigest()
    labels = {
        "app.kubernetes.io/name": "laminar",
        "app.kubernetes.io/component": "driver",
        INSTANCE: instance,
        MANAGED_BY: MANAGER,
        FOLLOWS: str(follows),
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": options.namespace,
            "labels": labels,
            "annotations": {
                "laminar/stream": stream,
                "laminar/store": store_uri,
                DIGEST: digest,
            },
        },
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": options.kept_s,
            "template": {
                "metadata": {"labels": labels},
                "spec": merged(_pod_spec(name, args, env, options), options.pod_spec),
            },
        },
    }
    return DriverJob(name, instance, follows, digest, body)


def instance_of(stream: str, store_uri: str) -> str:
    """Return the label of a stream: names of streams may differ only in what labels do not have.

    >>> instance_of("Payments_EU", "s3://bucket/prod")
    'laminar-payments-eu-5fd936e3'
    """
    slug = re.sub(r"[^a-z0-9]+", "-", stream.lower()).strip("-")[:_SLUG_LENGTH_MAX].strip("-")
    digest = hashlib.sha256(f"{store_uri}\0{stream}".encode()).hexdigest()[:8]
    return "-".join(part for part in ("laminar", slug, digest) if part)


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7386); None deletes.

    >>> merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]})
    {'a': {'c': 2}, 'd': [2]}
    """
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], cast("dict[str, Any]", value))
        else:
            result[key] = value
    return result


def _pod_spec(
    name: str, args: Sequence[str], env: Mapping[str, str], options: PodOptions
) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "hostname": name,
        "serviceAccountName": options.service_account,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": CONTAINER,
                "image": options.image,
                "command": ["/bin/sh", "-c", _literally(ON_SIGTERM_KILL), "driver"],
                "args": list(args),
                "env": [
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    *({"name": n, "value": _literally(env.get(n, ""))} for n in _ENVIRONMENT),
                ],
                "envFrom": [{"secretRef": {"name": n}} for n in options.env_from_secrets],
                "resources": {
                    "requests": {"cpu": options.cpu, "memory": options.memory},
                    "limits": {"memory": options.memory},
                },
                # What the driver printed last is then in the pod's status.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


def _literally(word: str) -> str:
    """Kubernetes would put variables in the place of ``$(NAME)``."""
    return word.replace("$", "$$")


def _spark_words(command: Sequence[str], options: PodOptions) -> list[str]:
    """Settings with which Spark, in this pod, starts executors; those of the stream win."""
    if not any(word.removeprefix("spark.master=").startswith("k8s://") for word in command):
        return []
    settings = {
        "spark.driver.host": "$(POD_IP)",  # Executors connect to it, before any name resolves.
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",  # So they go when this pod goes.
        "spark.kubernetes.namespace": options.namespace,
        "spark.kubernetes.container.image": _literally(options.image),
    }
    given = {word.partition("=")[0] for word in command}
    missing = {name: value for name, value in settings.items() if name not in given}
    return [word for name, value in missing.items() for word in ("--conf", f"{name}={value}")]
