"""Single requests to Azure Blob Storage with obstore: count them, and hide what must stay secret.

obstore repeats nothing (``max_retries=0``); ``RequestSender`` does all retries. What obstore's
errors say contains the URL, and with it a shared access signature: no error of this module has
one of obstore's as its cause.
"""

import threading
from collections.abc import Callable, Collection
from random import Random
from typing import Any, TypeVar

from obstore.exceptions import BaseError
from obstore.store import AzureStore

from laminar_core._version import __version__
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.azure_errors import ERRORS, classify
from laminar_core.objectstore.azure_options import SMALL_PUT_BYTES_MAX, AzureOptions
from laminar_core.objectstore.retries import RetryClock, RetryPolicy
from laminar_core.objectstore.sending import Failure, Kind, Reply, RequestSender, Verb

T = TypeVar("T")

_NO_LIMIT = "1day"
_OPTIONS_OF_OBSTORE = {
    "account_name", "endpoint", "credential_type", "client_id", "tenant_id", "authority_host",
}  # fmt: skip


class _Failed(Exception):  # noqa: N818 - it carries a failure
    """A request failed; obstore's own error is not kept."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.said)
        self.failure = failure


class AzureRequests:
    """Everything that is sent for one store. Safe to use from several threads."""

    def __init__(
        self,
        options: AzureOptions,
        *,
        clock: RetryClock | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self._sender = RequestSender(
            self._place_of,
            (_Failed,),
            _failure_of,
            RetryPolicy(budget_ms=options.retry_budget_ms),
            clock=clock,
            random=random,
        )
        self.counter = self._sender.counter
        self._lock = threading.Lock()
        self._stores: dict[bool, AzureStore] = {}

    def create_marked(
        self,
        key: str,
        mark: str,
        write: Callable[[], Reply[bool]],
        winner: Callable[[], str | None],
    ) -> bool:
        """See ``RequestSender.create_marked``."""
        return self._sender.create_marked(key, mark, write, winner)

    def send(
        self,
        verb: Verb,
        key: str,
        attempt: Callable[[AzureStore], T],
        answers: Collection[Kind] = (),
        *,
        size_bytes: int = 0,
    ) -> Reply[T]:
        """Send with a store of obstore; see ``RequestSender.send``.

        ``size_bytes`` is the length of what is written, on which the timeout depends.
        """
        store = self._open(is_large=size_bytes > SMALL_PUT_BYTES_MAX)

        def hidden() -> T:
            try:
                return attempt(store)
            except ERRORS as error:
                failure = classify(error)
            raise _Failed(failure)  # Outside of the handler, so that it has no context.

        return self._sender.send(verb, key, hidden, answers)

    def _place_of(self, key: str) -> str:
        place = f"az://{self.options.bucket}/{key}"
        at = self.options.endpoint or self.options.account_name
        return f"{place} at {at}" if at else place

    def _open(self, *, is_large: bool) -> AzureStore:
        """One of two stores of obstore, whose timeouts cannot be changed for single requests."""
        with self._lock:
            if is_large not in self._stores:
                self._stores[is_large] = _make_store(self.options, is_large=is_large)
            return self._stores[is_large]


def _failure_of(error: Exception) -> Failure:
    assert isinstance(error, _Failed)
    return error.failure


def _make_store(options: AzureOptions, *, is_large: bool) -> AzureStore:
    config: Any = options.model_dump(include=_OPTIONS_OF_OBSTORE, exclude_none=True)
    client: Any = {
        "connect_timeout": f"{options.connect_timeout_ms}ms",
        # It also ends a request whose body is still on its way.
        "read_timeout": _NO_LIMIT if is_large else f"{options.read_timeout_ms}ms",
        "timeout": f"{options.large_write_timeout_ms}ms" if is_large else _NO_LIMIT,
        "user_agent": f"laminar/{__version__}",
    }
    if (options.endpoint or "").startswith("http://"):
        client["allow_http"] = True
    try:
        return AzureStore(
            options.bucket, config=config, client_options=client, retry_config={"max_retries": 0}
        )
    except (BaseError, ValueError) as error:  # Of obstore's variables; the URI is checked.
        said = str(error).partition("\n")[0]
    raise ConfigurationError(
        ErrorCode.INVALID_OPTION,
        f"obstore cannot use its environment for {options.place}: {said}; set "
        "AZURE_STORAGE_ACCOUNT_NAME, or add account_name=… to the URI",
    )
