"""The restored state of a recovery, captured before anything runs, for comparison.

It runs the real steps of a driver and its workers: claim, choose, compare; then
tasks are built and restored, and snapshotted before any work.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from laminar_core.driver.events import GenerationStarted, JobEvent
from laminar_core.driver.listening import isolated
from laminar_core.driver.options import JobOptions
from laminar_core.driver.recovery.start import RecoveryManager, Start
from laminar_core.errors import DamagedFileError
from laminar_core.host.clock import Clock, ManualClock
from laminar_core.link.transport import CoordinatorAddress
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.plan.plan import Plan
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.manifest import Owner
from laminar_core.state.content import Content, content_of
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claimant
from laminar_core.worker.deployment import Deployment, RestoredState
from laminar_core.worker.restored_part import RestoredPart
from laminar_core.worker.wiring import Wiring, wire

View = Mapping[str, str]
"""By place, its content in canonical form."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The chosen checkpoint, the restored state, and the checkpoints reported as rejected."""

    checkpoint_id: CheckpointId | None
    view: View
    rejected: frozenset[int]


def recover_and_look(plan: Plan, options: JobOptions, objects: ObjectStore) -> Restored:
    """Recover a job whose driver is gone, without running it.

    Raises:
        LaminarError: the job is refused.
    """
    clock = ManualClock()
    store = CheckpointStore(objects, options.job)
    audit = AuditLog(objects, store.paths, clock.now_ms, identify=_nobody)
    told: set[int] = set()

    def listen(event: JobEvent) -> None:
        if isinstance(event, GenerationStarted):
            told.update(rejected.checkpoint_id for rejected in event.rejected)

    manager = RecoveryManager(plan, options, store, clock, isolated(listen), audit)
    claimant = Claimant(_nobody(), options.actor, "test", clock.now_ms())
    generation = store.claims.claim(claimant, wait_ms=clock.wait_ms, take_over=True)
    while True:
        start = manager.recover(generation, first=True)
        restored_id = None if start.restored is None else start.restored.checkpoint_id
        try:
            view = dict(_view(start, store, clock))
        except DamagedFileError:  # As the supervisor does when a worker reports it.
            if restored_id is None or not manager.exclude(restored_id):
                raise
            generation = store.claims.succeed(generation, claimant)
        else:
            if start.settle_output is not None:
                start.settle_output()
            return Restored(restored_id, view, frozenset(told))


def _nobody() -> Owner:
    return Owner(
        host_id="nowhere", boot_id="", pid=1, pid_start_time=0, claim_number=1, user="test"
    )


def _view(start: Start, store: CheckpointStore, clock: Clock) -> Iterator[tuple[str, str]]:
    identity = start.identity
    deployment = Deployment(
        job=identity.job,
        generation=identity.generation,
        parallelism=identity.parallelism,
        plan=identity.plan,
        store_uri=store.objects.uri,
        address=CoordinatorAddress("ipc", ""),
        restored=None if start.restored is None else RestoredPart.whole(start.restored),
        claim_sha256=store.claims.sha256(identity.generation),
        splits=start.splits,
    )
    for worker, own in enumerate(deployment.of_workers()):
        yield from _view_of_worker(own, worker, store, clock)
    if start.restored is None:
        return
    files = store.parts.inflight(start.restored.inflight_files)
    for entry in start.restored.inflight_data:
        yield f"in flight {entry.queue}", repr(files.read(entry))


def _view_of_worker(
    deployment: Deployment, worker: int, store: CheckpointStore, clock: Clock
) -> Iterator[tuple[str, str]]:
    wiring, mute = Wiring(worker, deployment.generation), _mute()
    restored = RestoredState(deployment, worker, store)
    wire(wiring, deployment, restored, mute, mute, clock)
    restored.verify_rest()
    for parts in (task.parts for task in wiring.tasks):
        where, gate = f"{parts.vertex_id}[{worker}]", parts.gate
        yield f"event time of {where}", repr((gate.combined_us, gate.channels()))
        if parts.source is not None:
            yield f"source {where}", repr(parts.source.reader.position().to_pylist())
        if parts.sink is not None:
            yield f"sink {where}", str(parts.sink.rows_written)
        for operator_id, subtask in parts.operators:
            snapshot = subtask.snapshot(CheckpointId(1))()
            said = json.dumps(snapshot.properties, sort_keys=True)
            contents = (content_of([table.rows], table.name) for table in snapshot.tables)
            content = sum(contents, Content())
            yield f"{operator_id}[{worker}]", f"{content} {said}"


class _Mute:
    """A transport and a listener for tasks that only restore."""

    reorder_max = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a method that must not be called.

        Tasks store some, and call them only when they run.
        """

        def called(*_args: object) -> None:
            raise AssertionError(f"nothing runs here, and nobody calls {name}")

        return called


def _mute() -> Any:  # noqa: ANN401 - it stands for two protocols of which nothing is called
    return _Mute()
