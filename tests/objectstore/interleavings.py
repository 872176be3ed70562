"""All interleavings of the store operations of several processes, without those that do not matter.

Each process is a function that does all its work through the store that it is given. Two operations
commute if they touch different objects, or both only read; of interleavings that differ in the
order of such operations one is run (sleep sets; Godefroid 1996). Processes are threads that run one
at a time: each stops before every operation until it is its turn.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.testing.observed_store import ObservedStore, StoreCall

Operation = tuple[str, str]
"""Verb and key."""

Process = Callable[[ObjectStore], object]

_FOLDERS = {"list", "sizes", "children"}
_READS = {"get", "size", "list", "sizes", "children"}


def commute(one: Operation, other: Operation) -> bool:
    """Whether the order of the two makes no difference."""
    if one[0] in _READS and other[0] in _READS:
        return True
    if one[0] in _FOLDERS or other[0] in _FOLDERS:
        folder, key = (one[1], other[1]) if one[0] in _FOLDERS else (other[1], one[1])
        return not key.startswith(folder)
    return one[1] != other[1]


@dataclass
class _Runner:
    """One process in its thread."""

    function: Process
    disk: MemoryObjectStore
    resume: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    next: Operation | None = None
    outcome: object = None

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self.stopped.acquire()

    def step(self) -> None:
        """Do the next operation, up to the one after it."""
        self.resume.release()
        self.stopped.acquire()

    def _run(self) -> None:
        def observe(call: StoreCall) -> None:
            if call.moment == "before":
                self.next = (call.verb, call.key)
                self.stopped.release()
                self.resume.acquire()

        try:
            self.outcome = self.function(ObservedStore(self.disk, "it", observe))
        except Exception as error:  # noqa: BLE001 - for the test to judge
            self.outcome = error
        self.next = None
        self.stopped.release()


@dataclass
class _Choice:
    """A state in which more than one process could go on."""

    chosen: int
    asleep: dict[int, Operation]
    awake: list[int]
    operations: dict[int, Operation]


def outcomes(
    disk: MemoryObjectStore, processes: Sequence[Process]
) -> Iterator[tuple[MemoryObjectStore, list[object]]]:
    """For every interleaving: the store at the end, and what each process returned or raised."""
    path: list[_Choice] = []
    while True:
        left = MemoryObjectStore()
        left._objects = dict(disk._objects)
        runners = [_Runner(process, left) for process in processes]
        for runner in runners:
            runner.start()
        if _follow(runners, path):
            yield left, [runner.outcome for runner in runners]
        while path and not path[-1].awake:
            path.pop()
        if not path:
            return
        last = path[-1]
        last.asleep[last.chosen] = last.operations[last.chosen]
        last.chosen = last.awake.pop(0)


def sampled(
    disk: MemoryObjectStore, processes: Sequence[Process], seeds: Iterable[int]
) -> Iterator[tuple[MemoryObjectStore, list[object]]]:
    """Yield random interleavings, where there are too many to try all of them."""
    for seed in seeds:
        random = Random(seed)
        left = MemoryObjectStore()
        left._objects = dict(disk._objects)
        runners = [_Runner(process, left) for process in processes]
        for runner in runners:
            runner.start()
        while waiting := [runner for runner in runners if runner.next is not None]:
            runner = random.choice(waiting)
            for _ in range(random.choice([1, 1, 3, 30])):
                if runner.next is not None:
                    runner.step()
        yield left, [runner.outcome for runner in runners]


def _follow(runners: list[_Runner], path: list[_Choice]) -> bool:
    """Run to the end, along the path and beyond it; False: that has been seen in another order."""
    depth, asleep = 0, {}
    seen_before = False
    while operations := {n: r.next for n, r in enumerate(runners) if r.next is not None}:
        if depth == len(path):
            awake = [n for n in operations if n not in asleep]
            seen_before = seen_before or not awake
            chosen = awake.pop(0) if awake else min(operations)
            path.append(_Choice(chosen, dict(asleep), [] if seen_before else awake, operations))
        choice = path[depth]
        depth += 1
        step = operations[choice.chosen]
        asleep = {n: op for n, op in choice.asleep.items() if commute(op, step)}
        asleep.pop(choice.chosen, None)
        runners[choice.chosen].step()
    return not seen_before
