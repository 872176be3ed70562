"""Writers that race for one key while a third of all requests goes wrong.

Goal: the one writer that is told that it won is the one whose object is there. Which requests are
struck is left to a seed and to the threads; what is asserted holds for every order.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.objectstore.s3_options import MIB
from tests.objectstore.fault_proxy import Effect, Fault, FaultProxy
from tests.objectstore.s3_stores import LARGE, SMALL_PARTS

FAULT_SHARE = 0.35
FAULTS = [
    Fault("*", Effect.LOSE_ANSWER),
    Fault("*", Effect.REFUSE_AFTERWARDS, 500, "InternalError"),
    Fault("*", Effect.RESET),
    Fault("*", Effect.REFUSE, 503, "SlowDown"),
]
CONFLICT = Fault("*", Effect.REFUSE, 409, "ConditionalRequestConflict")
CONDITIONAL = {"PutObject", "CompleteMultipartUpload"}


class UnreliableProxy(FaultProxy):
    """Strikes requests by chance."""

    random = Random(7)
    struck = 0

    def fault_for(self, operation: str, path: str) -> Fault | None:
        del path
        with self._lock:
            if self.random.random() > FAULT_SHARE:
                return None
            self.struck += 1
            choice = [*FAULTS, CONFLICT] if operation in CONDITIONAL else FAULTS
            return self.random.choice(choice)


@pytest.mark.parametrize(
    ("writers", "rounds", "tail"),
    [(8, 12, b""), (3, 3, LARGE[: 6 * MIB])],
    ids=["in one request", "in parts"],
)
def test_one_writer_wins_and_knows_it_whatever_is_lost(s3_server, writers, rounds, tail):
    with UnreliableProxy(s3_server.endpoint) as proxy:
        uri = s3_server.uri(*SMALL_PARTS, endpoint=proxy.endpoint)
        stores = [S3ObjectStore(uri, clock=ManualClock(), random=Random(n)) for n in range(writers)]
        seen_from_outside = S3ObjectStore(uri.replace(proxy.endpoint, s3_server.endpoint))
        start = threading.Barrier(writers)

        def race(writer: int) -> list[bool]:
            won = []
            for number in range(rounds):
                start.wait()
                won.append(stores[writer].put_if_absent(f"{number}", b"%d" % writer + tail))
            return won

        with ThreadPoolExecutor(writers) as pool:
            results = list(pool.map(race, range(writers)))
        assert proxy.struck > rounds * writers / 4
    for number in range(rounds):
        winners = [writer for writer in range(writers) if results[writer][number]]
        assert len(winners) == 1
        assert seen_from_outside.get(f"{number}") == b"%d" % winners[0] + tail
