"""Start drivers as Jobs of Kubernetes, and wait until they run."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from laminar_core.errors import ConfigurationError, LaminarError
from laminar_core.host.clock import Clock, SystemClock
from laminar_core.protocol.types import Generation
from laminar_core.resources.drivers.events import DriverEvent, sentence
from laminar_core.resources.drivers.kubernetes_errors import KubernetesError, KubernetesProblem
from laminar_core.resources.drivers.kubernetes_facts import (
    GaveUp,
    PodFacts,
    StartFacts,
    Starting,
    Up,
    decide_existing,
    earlier_jobs,
    look,
)
from laminar_core.resources.drivers.kubernetes_job import DriverJob, PodOptions, driver_job
from laminar_core.resources.drivers.launcher import DriverLauncher, Predecessor
from laminar_core.store.generation_summary import GenerationSummary, read_generation

if TYPE_CHECKING:
    from laminar_core.resources.drivers.kubernetes_api import Cluster

_POLL_MS = 1_000
_CREATION_TRIES = 10
"""A Job that is deleted is gone within seconds; its pods may last longer."""

Created = Literal["created", "replaced", "adopted"]
"""``replaced``: instead of one that had ended, or never begun. ``adopted``: it was there."""


@dataclass(frozen=True, slots=True)
class KubernetesStart:
    """A driver that runs in Kubernetes, or whose job is already over."""

    events: Mapping[str, DriverEvent]
    facts: Mapping[str, Any]
    """The act in fields: ``kubernetes_job``, ``kubernetes_namespace``, ``kubernetes_result`` and
    ``kubernetes_ended_jobs``; and ``log_command``, which prints the driver's log."""
    log: Path | None = None


class KubernetesLauncher(DriverLauncher):
    """Starts each driver as a Job of its own; takes the place of ``DetachedDriver``.

    Needs the extra ``kubernetes``. See ``docs/kubernetes.md`` for the rights that it needs.
    """

    image: str
    """Has Laminar and the programs of the streams, at the paths that their definitions name."""

    namespace: str | None = None
    """None: the namespace of this pod, or of the kubeconfig's context."""

    service_account: str = "laminar-driver"
    """Service account of the drivers, which create executors."""

    cpu: str = "1"
    memory: str = "2Gi"
    """Resources of a driver; with a local Spark, the workers run in its pod as well."""

    env_from_secrets: list[str] = []  # noqa: RUF012 - a field of a pydantic model
    """Secrets whose keys become variables of the driver, such as ``AWS_ACCESS_KEY_ID``."""

    pod_spec: dict[str, Any] = {}  # noqa: RUF012
    """Merged into the pod's specification: node selectors, volumes, tolerations and so on."""

    kept_s: int = 86_400
    """How long a Job that has ended, and so its log, is kept."""

    kubeconfig: str | None = None
    context: str | None = None
    """None: the service account of this pod, or the current context."""

    def start(  # noqa: PLR0913 - as its base
        self,
        stream: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: logging.Logger,
        start_timeout_s: float,
        predecessor: Predecessor,
        clock: Clock | None = None,
    ) -> KubernetesStart:
        """Create the Job of the next generation, and wait until its workers run.

        Repeating a start finds the Job of the first attempt. If this call is interrupted before the
        workers run, the Job is deleted. Jobs of earlier generations are deleted once the new one
        runs, or before it starts if ``command`` takes the job over.

        Raises:
            dagster.Failure: the driver gave up, or did not start in time, and its Job was deleted;
                another start was faster; or Kubernetes refused a request.
        """
        with _in_one_line():
            cluster = self._open()
            job = driver_job(
                stream,
                predecessor.store_uri,
                predecessor.generation,
                command,
                env,
                self._pod_options(cluster.namespace),
            )
            attempt = _Attempt(cluster, job, predecessor, log, clock or SystemClock())
            ended = attempt.end_earlier() if "--take-over" in command else []
            created = attempt.create()
            log.info("%s: Job %s of namespace %s", created, job.name, cluster.namespace)
            try:
                events = attempt.wait(start_timeout_s)
            except BaseException:
                with suppress(Exception):  # The reason for the end is the one to report.
                    attempt.end()
                raise
            try:
                ended += attempt.end_earlier()
            except KubernetesError as error:  # The new driver runs, and fences them all.
                log.warning("Jobs of earlier generations may still be there: %s", error)
        facts = {"kubernetes_result": created, "kubernetes_ended_jobs": ended, **attempt.facts}
        return KubernetesStart(events, facts)

    def _open(self) -> "Cluster":
        from laminar_core.resources.drivers.kubernetes_api import Cluster  # noqa: PLC0415

        return Cluster.open(self.namespace, self.context, self.kubeconfig)

    def _pod_options(self, namespace: str) -> PodOptions:
        return PodOptions(
            namespace=namespace,
            image=self.image,
            service_account=self.service_account,
            cpu=self.cpu,
            memory=self.memory,
            env_from_secrets=tuple(self.env_from_secrets),
            kept_s=self.kept_s,
            pod_spec=self.pod_spec,
        )


@dataclass(slots=True)
class _Attempt:
    """One start: its Job, and where it happens."""

    cluster: "Cluster"
    job: DriverJob
    predecessor: Predecessor
    log: logging.Logger
    clock: Clock
    said: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        name, namespace = self.job.name, self.cluster.namespace
        return {
            "kubernetes_job": name,
            "kubernetes_namespace": namespace,
            "log_command": f"kubectl logs --namespace {namespace} job/{name}",
        }

    def create(self) -> Created:
        """Create the Job, or find the one of the same start; make room for it if need be."""
        result: Created = "created"
        for _ in range(_CREATION_TRIES):
            try:
                self.cluster.create_job(self.job.body)
            except KubernetesError as error:
                if error.problem is not KubernetesProblem.CONFLICT:
                    raise
            else:
                return result
            found = self.cluster.find_job(self.job.name)
            if found is None:
                continue  # It was deleted meanwhile.
            decision = decide_existing(found, self.cluster.list_pods(found.name), self.job.digest)
            match decision:
                case "adopt":
                    return "adopted"
                case "replace":
                    self.cluster.delete_job(found)
                    result = "replaced"
                case "wait":
                    self.clock.wait_ms(_POLL_MS)
                case "refuse" | "foreign":
                    raise self._refusal(decision)
        raise self._failure(
            f"the Job {self.job.name} of an earlier attempt is still being deleted: try again"
        )

    def wait(self, timeout_s: float) -> Mapping[str, DriverEvent]:
        """Return the events of the driver, once its workers run or the job is over."""
        deadline_ms = self.clock.monotonic_ms() + 1000 * timeout_s
        while True:
            state = self._look()
            match state:
                case Up(events):
                    return events
                case GaveUp():
                    raise self._gave_up(state)
                case Starting(pod, events):
                    self._tell(pod, events)
                    if self.clock.monotonic_ms() >= deadline_ms:
                        raise self._too_slow(pod, events, timeout_s)
            self.clock.wait_ms(_POLL_MS)

    def end(self) -> bool:
        """Delete the Job, if it is there; return whether it was."""
        found = self.cluster.find_job(self.job.name)
        return found is not None and self.cluster.delete_job(found)

    def end_earlier(self) -> list[str]:
        """Delete the Jobs of earlier generations, and return their names."""
        found = earlier_jobs(self.cluster.list_jobs(self.job.selector), self.job.follows)
        return [job.name for job in found if self.cluster.delete_job(job)]

    def _look(self) -> Starting | Up | GaveUp:
        job, pods, is_seen = None, list[PodFacts](), True
        try:
            job = self.cluster.find_job(self.job.name)
            pods = self.cluster.list_pods(self.job.name)
        except KubernetesError as error:
            if not error.is_passing:
                raise
            is_seen = False
        # After the Job: what a driver recorded before its end is there.
        generation = self._newest_generation()
        return look(StartFacts(self.job.name, generation, job, pods, is_seen))

    def _newest_generation(self) -> GenerationSummary | None:
        store = self.predecessor.store
        with suppress(LaminarError):  # Another look follows, until the time is over.
            newest = store.claims.last() or Generation(0)
            if newest > self.predecessor.generation:
                return read_generation(store.objects, store.paths, newest)
        return None

    def _tell(self, pod: PodFacts | None, events: Mapping[str, DriverEvent]) -> None:
        said = "" if pod is None else f"pod {pod.name}: {_state_of(pod)}"
        if (started := events.get("generation-started")) is not None:
            said = sentence(started)
        if said and said != self.said:
            self.log.info(said)
            self.said = said

    def _gave_up(self, state: GaveUp) -> dg.Failure:
        how = f" with exit code {state.exit_code}" if state.exit_code is not None else ""
        said = state.message or state.reason or "it printed nothing"
        return self._failure(
            f"the driver gave up{how}: {said}",
            allow_retries=state.exit_code != ConfigurationError.exit_code,
            exit_code=state.exit_code,
            pod_reason=state.reason,
        )

    def _too_slow(
        self, pod: PodFacts | None, events: Mapping[str, DriverEvent], timeout_s: float
    ) -> dg.Failure:
        started = events.get("generation-started")
        claimed = "nothing" if started is None else f"generation {started['generation']}"
        state = "it has no pod" if pod is None else f"its pod: {_state_of(pod)}"
        return self._failure(
            f"the driver did not run within {timeout_s:g} s (start_timeout of the stream), and its "
            f"Job was deleted; it had claimed {claimed}; {state}",
            pod_reason=None if pod is None else pod.reason or pod.phase,
        )

    def _refusal(self, decision: Literal["refuse", "foreign"]) -> dg.Failure:
        name, namespace = self.job.name, self.cluster.namespace
        if decision == "foreign":
            return self._failure(
                f"namespace {namespace} has a Job {name} that no launcher of Laminar made: delete "
                "it, or choose another namespace"
            )
        return self._failure(
            f"another start that follows generation {self.job.follows} was faster: its Job {name} "
            f"is starting in namespace {namespace}"
        )

    def _failure(self, said: str, *, allow_retries: bool = False, **facts: Any) -> dg.Failure:  # noqa: ANN401
        known = {name: value for name, value in (self.facts | facts).items() if value is not None}
        return dg.Failure(said, metadata=known, allow_retries=allow_retries)


def _state_of(pod: PodFacts) -> str:
    why = ", ".join(part for part in (pod.reason, pod.message) if part)
    return f"{pod.phase} ({why})" if why else pod.phase


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Turn errors of Kubernetes into failures of the run."""
    try:
        yield
    except KubernetesError as error:
        raise dg.Failure(
            str(error),
            metadata={"kubernetes_problem": error.problem.value},
            allow_retries=error.is_passing,
        ) from error
