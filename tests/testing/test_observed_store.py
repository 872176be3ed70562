"""A store that tells of every call, and does what its observer makes of it."""

import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import probe
from laminar_core.testing.observed_store import ObservedStore, StoreCall
from tests.objectstore.object_store_contract import ObjectStoreContract


@pytest.fixture
def objects():
    return ObservedStore(MemoryObjectStore(), "me", lambda _: None)


class TestContract(ObjectStoreContract):
    """Observed by somebody who does nothing, it keeps the contract."""


def test_every_call_is_reported_twice():
    calls: list[StoreCall] = []
    store = ObservedStore(MemoryObjectStore(), "me", calls.append)
    store.put("a", b"1")
    store.put_if_absent("b", b"2")
    store.get("a")
    store.size("a")
    store.list("")
    store.children("")
    store.delete("a")
    assert [call.moment for call in calls] == ["before", "after"] * 7
    assert [(call.verb, call.key) for call in calls[::2]] == [
        ("put", "a"),
        ("put_if_absent", "b"),
        ("get", "a"),
        ("size", "a"),
        ("list", ""),
        ("children", ""),
        ("delete", "a"),
    ]
    assert {call.process for call in calls} == {"me"}


@pytest.mark.parametrize(("moment", "happened"), [("before", False), ("after", True)])
def test_an_observer_that_raises_fails_the_call_or_loses_its_answer(moment, happened):
    inner = MemoryObjectStore()

    def fail(call: StoreCall) -> None:
        if call.moment == moment:
            raise StorageUnavailable(ErrorCode.STORE_IO, "no answer")

    with pytest.raises(StorageUnavailable):
        ObservedStore(inner, "me", fail).put_if_absent("a", b"1")
    assert (inner.get("a") == b"1") is happened


def test_the_threads_of_a_probe_are_nobodys_business():
    calls: list[StoreCall] = []
    probe(ObservedStore(MemoryObjectStore(), "me", calls.append))
    assert calls == []
