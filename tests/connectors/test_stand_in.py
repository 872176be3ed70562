"""A stand-in is like its source, whatever the runtime asks it."""

import pyarrow as pa

from laminar_core.connectors.base import SourceReader, SplitStatus
from laminar_core.connectors.stand_in import StandInReader, StandInSource
from laminar_core.testing import MemorySource, check_source

SOURCE = MemorySource([pa.table({"n": [1, 2, 3]}), pa.table({"n": [4, 5]})], abreast=True)


def test_a_stand_in_is_a_source_like_the_one_that_it_stands_in_for():
    stand_in = StandInSource(SOURCE)
    check_source(stand_in)
    assert (stand_in.describe(), stand_in.reading) == (SOURCE.describe(), "parallel")


class Asked(SourceReader):
    """Notes what its stand-in passes on."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def hold(self, split_ids: frozenset[int]) -> None:
        self.calls.append(split_ids)

    def add(self, splits: pa.Table) -> None:
        self.calls.append(splits.num_rows)

    def status(self) -> list[SplitStatus]:
        return [SplitStatus(7)]


def test_a_reader_passes_on_what_only_some_sources_are_asked():
    asked = Asked()
    reader = StandInReader(asked)
    reader.hold(frozenset({1}))
    reader.add(pa.table({"split_id": [3]}))
    assert asked.calls == [frozenset({1}), 1]
    assert reader.status() == [SplitStatus(7)]
