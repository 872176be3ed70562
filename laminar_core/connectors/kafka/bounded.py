"""Calls of the client that may never return, or not soon, and a limit for them.

librdkafka takes a timeout for its transactional calls, and yet ``send_offsets_to_transaction``
waits for ever if the broker falls silent in its middle (confluentinc/librdkafka#5456). Then no
checkpoint of the job would be published any more.
"""

import threading
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

GRACE_SECONDS = 10
"""Time beyond the client's own limit, so that its answer is preferred if there is one."""


LOOK_SECONDS = 0.1
"""Time between two calls of ``refusal``."""


def bounded(
    act: Callable[[], object],
    seconds: float,
    grace: float = GRACE_SECONDS,
    refusal: Callable[[], KafkaException | None] = lambda: None,
) -> None:
    """Call ``act``, which should return within ``seconds``, and give it up if it does not.

    ``refusal`` is called meanwhile: once it returns a reason, ``act`` is given up at once.

    What was given up stays in a thread of its own, with its client. If it goes on later, the broker
    refuses it, because the next take-over has fenced its producer.

    Raises:
        KafkaException: as ``act`` raises it, the refusal, or that it did not return in time
            (_TIMED_OUT).
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            raised.append(error)

    thread = threading.Thread(target=run, name="kafka-transaction", daemon=True)
    thread.start()
    left_seconds = seconds + grace
    while thread.is_alive() and left_seconds > 0:
        thread.join(min(left_seconds, LOOK_SECONDS))
        left_seconds -= LOOK_SECONDS
        if thread.is_alive() and (refused := refusal()) is not None:
            raise refused
    if raised:
        raise raised[0]
    if thread.is_alive():
        code = KafkaError._TIMED_OUT  # noqa: SLF001 - its public name has an underscore
        raise KafkaException(KafkaError(code, "the client did not return in time"))
