"""A marker reads back as it was written, and one of another run is refused."""

import pytest

from laminar_core.connectors.kafka.marker import Marker, require_own
from laminar_core.errors import ConfigurationError
from laminar_core.protocol.types import CheckpointId, Generation

MARKER = Marker(CheckpointId(57), Generation(3), 40, "0123456789abcdef")


def test_a_marker_reads_back_as_it_was_written():
    assert Marker.read(57, MARKER.metadata()) == MARKER


@pytest.mark.parametrize("offset", [-1001, -1])
def test_without_an_offset_there_is_no_marker(offset):
    assert Marker.read(offset, "") is None


ENDLESS = '{"generation": 1e999, "messages": 1, "run": "r"}'
FOREIGN = [None, "", "{", "[]", "{}", '{"generation": 1}', "null", ENDLESS]


@pytest.mark.parametrize("metadata", [*FOREIGN, pytest.param("[" * 100_000, id="deep")])
def test_metadata_of_others_are_of_no_run(metadata):
    marker = Marker.read(57, metadata)
    assert marker is not None
    assert (marker.checkpoint_id, marker.run_id) == (57, "")


def test_only_the_run_that_wrote_it_believes_it():
    assert require_own(MARKER, MARKER.run_id, "laminar.payments.out") is MARKER
    assert require_own(None, None, "laminar.payments.out") is None
    for run_id in ("fedcba9876543210", None):
        with pytest.raises(ConfigurationError, match=r"laminar\.payments\.out says that") as other:
            require_own(MARKER, run_id, "laminar.payments.out")
        assert "--delete --group laminar.payments.out" in str(other.value)
