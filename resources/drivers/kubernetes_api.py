"""The few requests that a launcher sends to Kubernetes, and their errors in one line each."""

# The client has no types.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from laminar_core.host.extras import needs_extra
from laminar_core.resources.drivers.kubernetes_errors import KubernetesError, KubernetesProblem
from laminar_core.resources.drivers.kubernetes_facts import JobFacts, PodFacts
from laminar_core.resources.drivers.kubernetes_job import DIGEST, FOLLOWS, MANAGED_BY, MANAGER

with needs_extra("kubernetes", "drivers in Kubernetes"):
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config.config_exception import ConfigException
    from urllib3.exceptions import HTTPError

_TIMEOUT_S = (5.0, 30.0)
"""To connect, and to wait for an answer."""

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MESSAGE_LENGTH_MAX = 500


_PROBLEMS = {
    401: KubernetesProblem.UNAUTHORIZED,
    403: KubernetesProblem.FORBIDDEN,
    404: KubernetesProblem.NOT_FOUND,
    409: KubernetesProblem.CONFLICT,
    429: KubernetesProblem.UNAVAILABLE,
}
_SERVER_ERROR = 500


class Cluster:
    """One namespace of a cluster, as far as a launcher uses it."""

    def __init__(self, api: Any, namespace: str) -> None:  # noqa: ANN401 - it has no types
        self.namespace = namespace
        self._batch: Any = client.BatchV1Api(api)
        self._core: Any = client.CoreV1Api(api)

    @classmethod
    def open(cls, namespace: str | None, context: str | None, kubeconfig: str | None) -> Self:
        """Use the service account of this pod, or a kubeconfig if there is none or one is named.

        Raises:
            KubernetesError: neither is there.
        """
        settings = client.Configuration()
        own = None
        try:
            if context is None and kubeconfig is None:
                with suppress(ConfigException, OSError):
                    config.load_incluster_config(client_configuration=settings)
                    own = _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
            if own is None:
                config.load_kube_config(kubeconfig, context, client_configuration=settings)
                own = _namespace_of_context(kubeconfig, context)
        except (ConfigException, OSError) as error:
            raise KubernetesError(
                KubernetesProblem.CONFIGURATION,
                f"no cluster is known ({_first_line(str(error))}): run Dagster in a pod with a "
                "service account, or set kubeconfig and context of KubernetesLauncher",
            ) from error
        return cls(client.ApiClient(settings), namespace or own)

    def create_job(self, body: Mapping[str, Any]) -> None:
        """Create a Job.

        Raises:
            KubernetesError: ``CONFLICT``: there is one of this name.
        """
        self._send("create", "jobs", self._batch.create_namespaced_job, body=body)

    def find_job(self, name: str) -> JobFacts | None:
        """Return a Job; None if there is none.

        Raises:
            KubernetesError: the request failed.
        """
        try:
            found = self._send("get", "jobs", self._batch.read_namespaced_job, name=name)
        except KubernetesError as error:
            if error.problem is KubernetesProblem.NOT_FOUND:
                return None
            raise
        return _job_facts(found)

    def list_jobs(self, selector: str) -> list[JobFacts]:
        """Return the Jobs with these labels.

        Raises:
            KubernetesError: the request failed.
        """
        ask = self._batch.list_namespaced_job
        found = self._send("list", "jobs", ask, label_selector=selector)
        return [_job_facts(job) for job in found.items]

    def list_pods(self, job: str) -> list[PodFacts]:
        """Return the pods of a Job, oldest first.

        Raises:
            KubernetesError: the request failed.
        """
        selector, ask = f"batch.kubernetes.io/job-name={job}", self._core.list_namespaced_pod
        found = self._send("list", "pods", ask, label_selector=selector)
        return [_pod_facts(pod) for pod in sorted(found.items, key=_created)]

    def delete_job(self, job: JobFacts) -> bool:
        """Delete a Job with its pods; return whether it was there.

        Another one that has got its name meanwhile is left alone.

        Raises:
            KubernetesError: the request failed.
        """
        options = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": job.uid},
        }
        ask = self._batch.delete_namespaced_job
        try:
            self._send("delete", "jobs", ask, name=job.name, body=options)
        except KubernetesError as error:
            if error.problem in (KubernetesProblem.NOT_FOUND, KubernetesProblem.CONFLICT):
                return False
            raise
        return True

    def _send(self, verb: str, resource: str, ask: Any, **what: Any) -> Any:  # noqa: ANN401
        try:
            return ask(namespace=self.namespace, _request_timeout=_TIMEOUT_S, **what)
        except ApiException as error:
            raise _described(error, verb, resource, self.namespace) from error
        except (HTTPError, OSError) as error:
            raise KubernetesError(
                KubernetesProblem.UNREACHABLE,
                f"the API server of Kubernetes cannot be reached: {_first_line(str(error))}",
            ) from error


def _namespace_of_context(kubeconfig: str | None, context: str | None) -> str:
    listed: Any = config.list_kube_config_contexts(kubeconfig)
    contexts, current = listed
    named = [each for each in contexts if each["name"] == context]
    return (named or [current])[0]["context"].get("namespace", "default")


def _described(error: Any, verb: str, resource: str, namespace: str) -> KubernetesError:  # noqa: ANN401
    status = int(error.status or _SERVER_ERROR)
    other = KubernetesProblem.UNAVAILABLE if status >= _SERVER_ERROR else KubernetesProblem.INVALID
    problem = _PROBLEMS.get(status, other)
    message = _message_of(error)
    group = "batch" if resource == "jobs" else ""
    said = {
        KubernetesProblem.UNAUTHORIZED: "Kubernetes does not accept the credentials of this "
        f"process: {message}",
        KubernetesProblem.FORBIDDEN: f"a right is missing in namespace {namespace}: give the "
        f"service account of Dagster's runs the verb {verb} on {resource} (API group "
        f'"{group}") by a Role: {message}',
        KubernetesProblem.NOT_FOUND: f"cannot {verb} {resource} in namespace {namespace}: "
        f"{message}",
        KubernetesProblem.CONFLICT: f"cannot {verb} {resource} in namespace {namespace}: {message}",
        KubernetesProblem.INVALID: f"Kubernetes refuses to {verb} {resource}: {message}",
        KubernetesProblem.UNAVAILABLE: f"the API server of Kubernetes failed ({status}): {message}",
    }
    return KubernetesError(problem, said[problem])


def _message_of(error: Any) -> str:  # noqa: ANN401
    """Return what the API server says in its Status object, or else its HTTP reason."""
    with suppress(ValueError, TypeError, AttributeError):
        if message := json.loads(error.body).get("message"):
            return _first_line(message)
    return str(error.reason)


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:_MESSAGE_LENGTH_MAX] if lines else "it gives no reason"


def _job_facts(job: Any) -> JobFacts:  # noqa: ANN401
    labels, annotations = job.metadata.labels or {}, job.metadata.annotations or {}
    conditions = (job.status.conditions if job.status else None) or ()
    true = {condition.type for condition in conditions if condition.status == "True"}
    follows = labels.get(FOLLOWS, "")
    return JobFacts(
        name=job.metadata.name,
        uid=job.metadata.uid,
        managed=labels.get(MANAGED_BY) == MANAGER,
        follows=int(follows) if follows.isdecimal() else None,
        digest=annotations.get(DIGEST, ""),
        state="complete" if "Complete" in true else "failed" if "Failed" in true else "active",
        deleting=job.metadata.deletion_timestamp is not None,
    )


def _pod_facts(pod: Any) -> PodFacts:  # noqa: ANN401
    status = pod.status
    for container in status.container_statuses or ():
        state = container.state
        if state is not None and state.terminated is not None:
            ended = state.terminated
            return PodFacts(
                pod.metadata.name,
                status.phase,
                ended.reason or "",
                _last_line(ended.message),
                ended.exit_code,
            )
        if state is not None and state.waiting is not None:
            waiting = state.waiting
            said = _first_line(waiting.message or "")
            return PodFacts(pod.metadata.name, status.phase, waiting.reason or "", said)
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            said = _first_line(condition.message or "")
            return PodFacts(pod.metadata.name, status.phase, condition.reason or "", said)
    said = _first_line(status.message) if status.message else ""
    return PodFacts(pod.metadata.name, status.phase or "Unknown", status.reason or "", said)


def _last_line(text: str | None) -> str:
    """Return the last line of a container's log: ``error: …``, if a command failed."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ")[:_MESSAGE_LENGTH_MAX] if lines else ""


def _created(pod: Any) -> Any:  # noqa: ANN401
    return pod.metadata.creation_timestamp
