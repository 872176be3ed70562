import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.objectstore.object_store_contract import ObjectStoreContract


@pytest.fixture
def objects():
    return FaultyStore(MemoryObjectStore())


class TestWithoutFaults(ObjectStoreContract):
    """A wrapper with nothing scripted keeps the contract."""


def test_fail_does_nothing_and_raises_the_code():
    inner = MemoryObjectStore()
    store = FaultyStore(inner, Fault("put", Effect.FAIL, code=ErrorCode.STORE_FULL))
    with pytest.raises(StorageUnavailable) as caught:
        store.put("a", b"1")
    assert caught.value.code is ErrorCode.STORE_FULL
    assert inner.list("") == []


def test_a_lost_answer_raises_after_the_fact():
    inner = MemoryObjectStore()
    store = FaultyStore(inner, Fault("put_if_absent", Effect.LOSE_ANSWER))
    with pytest.raises(StorageUnavailable):
        store.put_if_absent("a", b"1")
    assert inner.get("a") == b"1"


def test_deny_tells_the_winner_that_it_lost():
    inner = MemoryObjectStore()
    assert not FaultyStore(inner, Fault("put_if_absent", Effect.DENY)).put_if_absent("a", b"1")
    assert inner.get("a") == b"1"


def test_overwrite_ignores_the_condition():
    inner = MemoryObjectStore()
    inner.put("a", b"1")
    assert FaultyStore(inner, Fault("put_if_absent", Effect.OVERWRITE)).put_if_absent("a", b"2")
    assert inner.get("a") == b"2"


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
def test_tear_leaves_half(verb):
    inner = MemoryObjectStore()
    with pytest.raises(StorageUnavailable):
        getattr(FaultyStore(inner, Fault(verb, Effect.TEAR)), verb)("a", b"1234")
    assert inner.get("a") == b"12"


def test_only_the_chosen_calls_of_the_chosen_key_fail():
    store = FaultyStore(MemoryObjectStore(), Fault("get", Effect.FAIL, key="b", first=2, last=3))
    outcomes = []
    for key in ("a", "b", "a", "b", "b", "b"):
        try:
            store.get(key)
            outcomes.append("ok")
        except StorageUnavailable:
            outcomes.append("fails")
    assert outcomes == ["ok", "ok", "ok", "fails", "fails", "ok"]


def test_every_verb_can_fail():
    calls = {
        "get": ("a",),
        "put": ("a", b""),
        "put_if_absent": ("a", b""),
        "list": ("",),
        "children": ("",),
        "delete": ("a",),
        "size": ("a",),
    }
    store = FaultyStore(MemoryObjectStore(), *(Fault(verb, Effect.FAIL) for verb in calls))
    for verb, arguments in calls.items():
        with pytest.raises(StorageUnavailable):
            getattr(store, verb)(*arguments)
    assert [verb for verb, _ in store.calls] == list(calls)
