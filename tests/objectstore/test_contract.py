"""Who fulfils which part of the contract; what it means is tried in ``object_store_contract``."""

import pytest

from laminar_core.objectstore.contract import SelfProbing
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import open_object_store
from laminar_core.objectstore.request_counts import RequestCounts


@pytest.mark.parametrize("uri", ["/tmp/x", "file:///tmp/x", "s3://bucket", "memory://counts"])
def test_whatever_is_opened_counts_from_zero(uri):
    MemoryObjectStore.named("counts")
    assert open_object_store(uri).counts == RequestCounts()


def test_only_a_store_with_several_ways_to_create_probes_itself():
    assert isinstance(open_object_store("s3://bucket"), SelfProbing)
    assert not isinstance(open_object_store("/tmp/x"), SelfProbing)
