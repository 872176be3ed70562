"""Requests are told apart however the stream is cut into pieces."""

import pytest

from verification.servers.kafka_requests import KafkaRequest, KafkaRequests


def request(kind: int, size: int) -> bytes:
    body = kind.to_bytes(2, "big") + bytes(size)
    return len(body).to_bytes(4, "big") + body


STREAM = b"".join(
    request(kind, size)
    for kind, size in [
        (KafkaRequest.METADATA, 3),
        (KafkaRequest.PRODUCE, 500),
        (KafkaRequest.END_TRANSACTION, 0),
        (KafkaRequest.FETCH, 40),
    ]
)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 64, 500, len(STREAM)])
def test_every_request_is_seen_once_in_pieces_of_any_size(size: int) -> None:
    watch = KafkaRequests()
    found = [kind for n in range(0, len(STREAM), size) for kind in watch(STREAM[n : n + size])]
    assert found == [
        KafkaRequest.METADATA,
        KafkaRequest.PRODUCE,
        KafkaRequest.END_TRANSACTION,
        KafkaRequest.FETCH,
    ]
