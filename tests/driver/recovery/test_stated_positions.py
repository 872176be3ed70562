"""Where a source is read again from: how it is written, and which sources can begin there."""

from dataclasses import dataclass, replace

import pytest

from laminar_core.driver.recovery.stated_positions import ResetFrom, started_at
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


@pytest.mark.parametrize("text", ["sales=beginning", "sales=12", "sales=a=b"])
def test_a_position_is_all_that_follows_the_source(text: str) -> None:
    parsed = ResetFrom.parse(text)
    assert parsed.source == "sales"
    assert str(parsed) == text


@pytest.mark.parametrize("text", ["a", "a=", "=beginning"])
def test_a_position_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="give SOURCE=beginning"):
        ResetFrom.parse(text)


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
