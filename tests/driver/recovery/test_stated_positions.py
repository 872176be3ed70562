"""Where a source is read again from: how it is written, and which sources can begin there."""

from dataclasses import dataclass, replace

import pytest

from laminar_core.driver.recovery.stated_positions import started_at
from laminar_core.errors import ConfigurationError
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import SourceNode
from laminar_core.testing.jobs import payments
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource


@dataclass(frozen=True)
class FromRow(MemorySource):
    def starting_at(self, position: str) -> "FromRow":
        return replace(self, first_row=int(position))


def node_of(source: MemorySource) -> SourceNode:
    p = Pipeline("p")
    p.source("in", source).sink("out", LedgerSink(Ledger(), "out"))
    (node,) = p.plan().sources()
    return node


def test_a_source_that_can_begins_where_it_is_told() -> None:
    source = FromRow(payments(1, 5))
    assert started_at(node_of(source), None) is source
    assert started_at(node_of(source), "beginning") is source
    assert started_at(node_of(source), "3") == replace(source, first_row=3)


def test_another_source_is_read_from_its_beginning_only() -> None:
    node = node_of(MemorySource(payments(1, 5)))
    assert started_at(node, "beginning") is node.source
    with pytest.raises(ConfigurationError, match="MemorySource is read again from its beginning"):
        started_at(node, "3")
