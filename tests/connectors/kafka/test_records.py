"""Messages are taken from the client without collections of garbage in between."""

import gc

import pytest

from laminar_core.connectors.kafka.records import fetched


class Client:
    """Makes objects, and notes which collections that led to."""

    def __init__(self) -> None:
        self.collections = 0
        self.fails = False

    def consume(self, count: int, seconds: float) -> list[list[int]]:
        assert seconds == 0
        gc.callbacks.append(self._note)
        try:
            if self.fails:
                raise KeyError
            return [[n] for n in range(count)]
        finally:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, _info: object) -> None:
        self.collections += phase == "start"


@pytest.fixture
def client() -> Client:
    return Client()


def test_no_collection_runs_while_messages_are_made(client: Client) -> None:
    assert len(fetched(client, 10_000)) == 10_000
    assert client.collections == 0
    client.consume(10_000, 0)
    assert client.collections > 0


def test_collections_go_on_afterwards_also_after_a_failure(client: Client) -> None:
    client.fails = True
    with pytest.raises(KeyError):
        fetched(client, 1)
    assert gc.isenabled()


def test_a_program_that_has_switched_collections_off_keeps_it_so(client: Client) -> None:
    gc.disable()
    try:
        fetched(client, 1)
        assert not gc.isenabled()
    finally:
        gc.enable()
