"""The coordinator's runtime in a driver: its thread, its socket, and threads for I/O."""

import threading
from concurrent.futures import ThreadPoolExecutor

from laminar_core.driver.checkpointing import Background, CoordinatorParts
from laminar_core.driver.coordination import Coordinator
from laminar_core.driver.listening import IsolatedListener
from laminar_core.errors import ErrorCode
from laminar_core.host.clock import Clock
from laminar_core.link.transport import CoordinatorAddress, CoordinatorTransport


class CoordinatorThread:
    """Runs from its creation until ``close``."""

    def __init__(
        self,
        parts: CoordinatorParts,
        transport: CoordinatorTransport,
        clock: Clock,
        listener: IsolatedListener,
    ) -> None:
        self._transport = transport
        self._background = Background(
            store=ThreadPoolExecutor(1, "laminar-store"),
            commits=ThreadPoolExecutor(1, "laminar-commit"),
            deletions=ThreadPoolExecutor(1, "laminar-delete"),
            control=ThreadPoolExecutor(1, "laminar-control"),
            copies=ThreadPoolExecutor(1, "laminar-copy"),
            scrub=ThreadPoolExecutor(1, "laminar-scrub"),
            discovery=ThreadPoolExecutor(len(parts.discovering) + 1, "laminar-discovery"),
        )
        self.coordinator = Coordinator(parts, transport, self._background, clock, listener)
        self._closing = threading.Event()
        self._reason = ""
        self._thread = threading.Thread(target=self._run, name="laminar-coordinator", daemon=True)
        self._thread.start()

    @property
    def address(self) -> CoordinatorAddress:
        """The address for workers."""
        return self._transport.address

    def close(self, reason: str) -> None:
        """Abort what is pending, finish what the store has to do, close the socket.

        A commit or a deletion that has not been made is left to the next generation; a copy that is
        not complete is given up.
        """
        self._reason = reason
        self._closing.set()
        self._transport.wake()
        self._thread.join()
        self._background.commits.shutdown(cancel_futures=True)
        self._background.deletions.shutdown(cancel_futures=True)
        self._background.copies.shutdown(cancel_futures=True)
        self._background.scrub.shutdown(cancel_futures=True)
        # A step only reads, and what it finds is found again: do not wait for its input.
        self._background.discovery.shutdown(wait=False, cancel_futures=True)
        self._background.control.shutdown()
        self._background.store.shutdown()
        self._transport.close()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self.coordinator.turn()
                self._transport.wait(self.coordinator.wait_ms())
            self.coordinator.abandon(self._reason)
        except Exception as error:  # noqa: BLE001 - it ends the generation, and is reported
            self.coordinator.fail(ErrorCode.ILLEGAL_EVENT, f"the coordinator failed: {error!r}")
