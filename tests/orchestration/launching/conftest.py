"""Streams that runs of Dagster start and recover."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.orchestration.started import StartedStream


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[StartedStream]:
    """A stream whose drivers are processes."""
    with dg.DagsterInstance.ephemeral() as instance:
        stream = StartedStream(instance, tmp_path)
        yield stream
        stream.end()


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartedStream]:
    with dg.DagsterInstance.ephemeral() as instance:
        stream = StartedStream(instance, tmp_path)
        stream.play(monkeypatch)
        yield stream
