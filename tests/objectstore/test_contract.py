"""Who fulfils which part of the contract; what it means is tried in ``object_store_contract``."""

import pytest

from laminar_core.objectstore.contract import SelfProbing
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import open_object_store
from laminar_core.objectstore.request_counts import RequestCounts


@pytest.mark.parametrize("uri", ["{place}", "file://{place}", "s3://bucket", "memory://counts"])
def test_whatever_is_opened_counts_from_zero(uri, tmp_path):
    MemoryObjectStore.named("counts")
    assert open_object_store(uri.format(place=tmp_path)).counts == RequestCounts()


def test_only_a_store_with_several_ways_to_create_probes_itself(tmp_path):
    assert isinstance(open_object_store("s3://bucket"), SelfProbing)
    assert not isinstance(open_object_store(str(tmp_path)), SelfProbing)
