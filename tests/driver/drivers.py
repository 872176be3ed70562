"""A checkpoint driver over a real store, whose surroundings do what the test says."""

from collections.abc import Callable
from concurrent.futures import Future

from laminar_core.driver.checkpointing import Background as Threads
from laminar_core.driver.checkpointing import CheckpointDriver, CoordinatorParts
from laminar_core.driver.publication import JobIdentity
from laminar_core.link.messages import SnapshotAck, Trigger
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.coordinator_events import Acknowledged, SubtaskId
from laminar_core.protocol.types import CheckpointId, CheckpointKind, ResolvedMode
from laminar_core.testing.faulty_store import Fault, FaultyStore
from laminar_core.testing.ledger import Ledger, LedgerCommitter
from laminar_core.testing.observed_store import ObservedStore, StoreCall
from tests.driver.hosts import Background, Host
from tests.plan.plans import small_plan
from tests.records.manifests import alignment, subtask
from tests.store.stores import JOB, claim, open_job

PLAN = small_plan()
FIRST = PLAN.vertices[0].vertex_id
SUBTASKS = {SubtaskId(vertex.vertex_id, index) for vertex in PLAN.vertices for index in (0, 1)}


class Driver:
    """A driver over a real store, its I/O run when the test says so."""

    def __init__(
        self,
        *faults: Fault,
        highest_id: int = 0,
        observe: Callable[[StoreCall], object] = lambda _: None,
        **config,
    ) -> None:
        self.objects = FaultyStore(MemoryObjectStore(), *faults)
        self.store = open_job(ObservedStore(self.objects, "driver", observe))
        self.generation = claim(self.store)
        self.host, self.io, self.commits = Host(), Background(), Background()
        self.deletions, self.control, self.copies, self.scrub = (
            Background(),
            Background(),
            Background(),
            Background(),
        )
        self.ledger = Ledger()
        parts = CoordinatorParts(
            identity=JobIdentity(JOB, self.generation, PLAN, 2),
            store=self.store,
            committers={"out": LedgerCommitter(self.ledger)},
            config=CoordinatorConfig(**{"interval_ms": None, **config}),
            highest_id=CheckpointId(highest_id),
            parent_id=None,
            rows_total=None,
            claim_sha256=self.store.claims.own_sha256(self.generation),
        )
        threads = Threads(
            self.io,
            self.commits,
            self.deletions,
            self.control,
            self.copies,
            self.scrub,
            Background(),
        )
        self.driver = CheckpointDriver(parts, self.host, threads)

    def request(self, kind: CheckpointKind = CheckpointKind.MANUAL) -> Future:
        answer = Future()
        self.driver.request(kind, answer)
        return answer

    def settle(self, *, commit: bool = True) -> None:
        """Run the I/O and what comes of it, until nothing is left to do."""
        while self.io.queue or self.host.posted or (commit and self.commits.queue):
            self.io.run()
            if commit:
                self.commits.run()
            self.host.run()

    def acknowledge(
        self,
        checkpoint_id: int,
        *workers: int,
        parts: tuple = (),
        mode: ResolvedMode = "aligned",
        **of_parts: int,
    ) -> None:
        """As workers do, whose sink offers ``parts``, and whose barriers met ``mode``."""
        for worker in workers:
            offered = tuple({"name": part, **of_parts} for part in parts) if worker == 0 else ()
            entries = [
                subtask(operator, worker, committables=offered if operator == "out" else ())
                for operator in PLAN.operator_ids()
            ]
            ack = SnapshotAck(
                generation=self.generation,
                worker=worker,
                checkpoint_id=checkpoint_id,
                entries=tuple(entries),
                alignment=(alignment(vertex_id=FIRST, subtask_index=worker, mode=mode),),
            )
            self.driver.keep(ack)
            mine = frozenset(s for s in SUBTASKS if s.subtask_index == worker)
            self.driver.dispatch(Acknowledged(CheckpointId(checkpoint_id), mine))

    def complete(self, kind: CheckpointKind = CheckpointKind.MANUAL, **options) -> None:
        """One whole checkpoint."""
        self.request(kind)
        self.settle()
        self.acknowledge(self.triggered()[-1], 0, 1, **options)
        self.settle()

    def triggered(self) -> list[int]:
        return [m.checkpoint_id for m in self.host.sent if isinstance(m, Trigger)]

    def sent(self, kind: type) -> list[int]:
        return [m.checkpoint_id for m in self.host.sent if isinstance(m, kind)]
