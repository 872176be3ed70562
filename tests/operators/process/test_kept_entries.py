"""Lists and maps against dictionaries: drawn changes, cuts, merged segments and other workers."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laminar_core.codec.key_groups import key_group_range, key_groups_of
from laminar_core.operators.process.keys import Keys
from laminar_core.operators.process.lists import ListState
from laminar_core.operators.process.maps import MapState
from laminar_core.operators.process.values import ValueState
from laminar_core.state.chunks import MemoryBackend
from laminar_core.state.expiry import unexpired
from laminar_core.state.named_tables import TableLayout
from tests.state.shelves import rocks_backend, stored

FIELDS = [pa.field("k", pa.string())]
GROUPS = 16
STATES = {
    "list": ListState(pa.int64()),
    "list-ttl": ListState(pa.int64(), ttl="10 us"),
    "map": MapState(pa.string(), pa.int64()),
    "map-ttl": MapState(pa.string(), pa.int64(), ttl="10 us"),
    "value-ttl": ValueState(pa.int64(), ttl="10 us"),
}


def keys_of(names: list[str], times_us: list[int]) -> Keys:
    rows = pa.record_batch({"k": pa.array(names, pa.string())})
    return Keys.of_rows(rows, ("k",), np.array(times_us, np.int64))


@dataclass
class Worker:
    """One subtask's part of a state, and the chain of its segments."""

    layout: TableLayout
    state: Any
    owned: range
    segments: list[pa.Table] = field(default_factory=list)

    def cut(self, random: Random) -> None:
        changes = stored(self.state.take_changes(), GROUPS)
        assert changes.schema.equals(self.layout.schema)
        self.segments = [*self.segments, changes]
        if len(self.segments) > 1 and random.random() < 0.5:
            at = random.randrange(len(self.segments) - 1)
            stop = random.randrange(at + 2, len(self.segments) + 1)
            merged = self.layout.merge(self.segments[at:stop], self.state.expired_us)
            self.segments[at:stop] = [merged]


class Job:
    """The workers of one state, and what they have to hold; some keep it in RocksDB."""

    backends = (MemoryBackend(), rocks_backend())

    def __init__(self, declared: Any, seed: int) -> None:
        self.declared = declared
        self.layout = declared.layout("held", FIELDS)
        self.random = Random(seed)
        self.model: dict[str, dict[Any, tuple[int | None, int]]] = {}
        """By key: entry -> (value or None, expiry). Positions of a list are numbered anew here."""
        self.now_us = self.appended = 0
        self.workers = [self.worker(0, 1)]

    def worker(self, number: int, count: int) -> Worker:
        owned = key_group_range(number, GROUPS, count)
        backend = self.backends[self.random.random() < 0.5]
        return Worker(self.layout, self.declared.opened("mine", self.layout, backend), owned)

    def owner(self, name: str) -> Any:
        (group,) = key_groups_of(pa.record_batch({"k": [name]}), ["k"], GROUPS).tolist()
        return next(w.state for w in self.workers if group in w.owned)

    def expiry_us(self, time_us: int) -> int:
        return 2**62 if self.declared.ttl_us is None else time_us + self.declared.ttl_us

    def change(self) -> None:
        name = self.random.choice("abcdef")
        time_us = self.now_us + self.random.randrange(12)
        key, state = keys_of([name], [time_us]), self.owner(name)
        mine = self.model.setdefault(name, {})
        entry, value = self.random.choice("uvwxyz"), self.random.randrange(100)
        kind = self.random.random()
        if isinstance(self.declared, ValueState):
            state[key] = value if kind < 0.6 else None
            known_us = mine.get("", (0, 0))[1]
            mine[""] = (value if kind < 0.6 else None, max(self.expiry_us(time_us), known_us))
        elif kind < 0.1:
            state.clear(key)
            self.model[name] = {e: (None, expiry) for e, (_, expiry) in mine.items()}
        elif isinstance(self.declared, ListState):
            many = [value, value + 1] if kind < 0.5 else [value]
            state.append(key, many)
            for one in many:
                self.appended += 1
                mine[self.appended] = (one, self.expiry_us(time_us))
        elif kind < 0.3:
            state.remove(key, [entry])
            if entry in mine:
                mine[entry] = (None, mine[entry][1])
        else:
            state.put(key, [entry], [value])
            known_us = mine.get(entry, (0, 0))[1]
            mine[entry] = (value, max(self.expiry_us(time_us), known_us))

    def pass_time(self) -> None:
        self.now_us += self.random.randrange(6)
        for worker in self.workers:
            worker.state.purge(self.now_us)

    def check(self) -> None:
        for name in "abcdefg":
            time_us = self.now_us + self.random.randrange(12)
            mine = self.model.get(name, {})
            alive = {e: v for e, (v, expiry) in mine.items() if v is not None and expiry >= time_us}
            key, state = keys_of([name], [time_us]), self.owner(name)
            if isinstance(self.declared, ValueState):
                assert state[key] == alive.get("")
            elif isinstance(self.declared, ListState):
                assert state[key] == list(alive.values())
            else:
                assert state[key] == dict(sorted(alive.items()))
                found = state.get(key, list("uvwxyz")).to_pylist()
                assert found == [alive.get(entry) for entry in "uvwxyz"]

    def restore(self, count: int, *, whole: bool = False) -> None:
        before, self.workers = self.workers, [self.worker(n, count) for n in range(count)]
        for worker in self.workers:
            origins = [b for b in before if set(b.owned) & set(worker.owned)]
            for origin in origins:
                segments = [stored(origin.state.pin(), GROUPS)] if whole else origin.segments
                for segment in segments:
                    left = unexpired("held", segment, origin.state.expired_us)
                    groups = left.column("key_group").to_pylist()
                    mine = pa.array([group in worker.owned for group in groups], pa.bool_())
                    worker.state.restore(left.filter(mine).drop_columns(["key_group"]))
                position = max(worker.state.next_position, origin.state.next_position)
                if isinstance(self.declared, ListState):
                    worker.state.next_position = position
            worker.state.restore_mark([origin.state.expired_us for origin in origins])
            if len(before) == count and not whole:  # The runtime continues the chain.
                worker.segments = before[self.workers.index(worker)].segments
                worker.state.take_changes()


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(4)
def test_drawn_histories_are_those_of_dictionaries(name: str, seed: int) -> None:
    job = Job(STATES[name], seed)
    for _ in range(120):
        kind = job.random.random()
        if kind < 0.7:
            job.change()
        elif kind < 0.8:
            job.pass_time()
        elif kind < 0.96:
            for worker in job.workers:
                worker.cut(job.random)
        else:
            for worker in job.workers:
                worker.cut(job.random)
            count = job.random.choice([len(job.workers), 1, 2, 3, 4])
            job.restore(count, whole=job.random.random() < 0.3)
        if kind > 0.9:
            job.check()
    job.check()


def test_a_removed_value_does_not_come_back_when_the_next_one_expires_before_it() -> None:
    """The merge of the removal and the next value must not expire before the removed one."""
    declared = ValueState(pa.int64(), ttl="100 us")
    job = Job(declared, 0)
    worker, random = job.workers[0], Random(0)
    state = worker.state
    state[keys_of(["a"], [900])] = 1
    worker.cut(random)
    state[keys_of(["a"], [900])] = None
    state.purge(850)
    worker.segments.append(stored(state.take_changes(), GROUPS))
    state.purge(880)
    state[keys_of(["a"], [885])] = 2
    worker.segments.append(stored(state.take_changes(), GROUPS))
    worker.segments[1:] = [worker.layout.merge(worker.segments[1:], state.expired_us)]
    state.purge(990)
    job.restore(2)
    assert job.owner("a")[keys_of(["a"], [990])] != 1


@pytest.mark.parametrize("name", ["list-ttl", "map-ttl"])
def test_rows_held_never_exceed_those_of_some_times_to_live(name: str) -> None:
    """A hundred times as many rows as live at once go through."""
    declared = STATES[name]
    state: Any = declared.opened("mine", declared.layout("held", FIELDS), MemoryBackend())
    state.take_changes()
    held = []
    for now_us in range(0, 400, 2):
        keys = keys_of([f"k{n}" for n in range(5)], [now_us] * 5)
        values = [now_us] * 5
        if name == "list-ttl":
            state.append(keys, values)
        else:
            state.put(keys, [str(now_us)] * 5, values)
        state.purge(now_us)
        held.append(state.row_count)
        if now_us % 50 == 0:
            assert stored(state.take_changes(), GROUPS).num_rows <= 5 * 25
    assert max(held) <= 5 * (10 + 4) // 2 + 5
    assert state.expired_row_count > 900


def test_what_is_cleared_again_and_again_leaves_memory() -> None:
    for declared in (STATES["list"], STATES["map"]):
        state: Any = declared.opened("mine", declared.layout("held", FIELDS), MemoryBackend())
        for n in range(80):
            keys = keys_of([f"k{n % 7}", f"k{(n + 1) % 7}"], [0, 0])
            if isinstance(declared, ListState):
                state.append(keys, [n, n])
            else:
                state.put(keys, [str(n), str(n)], [n, n])
            state.clear(keys)
        assert state.row_count < 20
