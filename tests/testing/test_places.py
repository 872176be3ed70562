"""A directory in the place of a store behaves as one that is not the store."""

import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.testing.places import directory, no_directory

READS = {
    "get": lambda store: store.get("a/b"),
    "sha256": lambda store: store.sha256("a/b", 10),
    "list": lambda store: store.list(""),
    "children": lambda store: store.children("a/"),
    "sizes": lambda store: store.sizes("a/"),
    "size": lambda store: store.size("a/b"),
    "delete": lambda store: store.delete("a/b"),
}
WRITES = {
    "put": lambda store: store.put("a/b", b"1"),
    "put_if_absent": lambda store: store.put_if_absent("a/b", b"1"),
}
CALLS = {**READS, **WRITES}


def gone(tmp_path, *, seen: bool) -> LocalObjectStore:
    """A real store whose root is renamed, before or after it was opened."""
    root = tmp_path / "store"
    root.mkdir()
    early = LocalObjectStore(root)
    root.rename(tmp_path / "elsewhere")
    return early if seen else LocalObjectStore(root)


def answer(call, store) -> object:
    try:
        return call(store)
    except StorageUnavailable as error:
        return error.code


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("verb", CALLS)
def test_where_no_directory_is_it_answers_as_a_real_one_that_was_renamed(tmp_path, verb, seen):
    real, call = gone(tmp_path, seen=seen), CALLS[verb]
    assert answer(call, no_directory().open(seen=seen)) == answer(call, real)


@pytest.mark.parametrize("verb", WRITES)
def test_nothing_is_written_where_no_directory_is(verb):
    place = no_directory()
    with pytest.raises(StorageUnavailable) as caught:
        WRITES[verb](place.open(seen=False))
    assert caught.value.code is ErrorCode.STORE_GONE
    assert not place.root_was_made


def test_who_makes_the_directory_is_noticed_and_all_find_it():
    place = no_directory()
    one, other = place.open(seen=True), place.open(seen=True)
    one.create()
    assert place.root_was_made
    assert one.put_if_absent("a/b", b"1")
    assert other.get("a/b") == b"1"


def test_another_directory_is_what_it_is():
    objects = MemoryObjectStore()
    place = directory(objects, "the store of a namesake", has_the_job=True)
    assert place.open(seen=True) is place.open(seen=False) is objects
    assert (place.what, place.has_the_job) == ("the store of a namesake", True)
