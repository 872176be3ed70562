"""Send requests to a bucket: retry them within a budget, and translate failures.

A client library repeats nothing by itself. It knows no deadline, and a conditional write that it
repeats unseen finds its own object and reports a conflict (ADR 0015).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Generic, Literal, TypeVar

from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.request_counts import RequestCounter
from laminar_core.objectstore.retries import Budget, MachineClock, RetryClock, RetryPolicy

T = TypeVar("T")
Verb = Literal["read", "write", "list", "delete"]


class Kind(Enum):
    """The reaction to a failure."""

    NOT_FOUND = auto()
    """There is no such object or upload."""
    PRECONDITION_FAILED = auto()
    """There is an object, or it is another one than before."""
    OUT_OF_RANGE = auto()
    """The object ends before the range that was asked for."""
    CONFLICT = auto()
    """Another client is writing the same key; the request had no effect."""
    TRANSIENT = auto()
    """Ask again. A write may have happened."""
    FULL = auto()
    """The store is full: writes fail until there is space."""
    REFUSED = auto()
    """The store will refuse every retry until its setup or its permissions change."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request.

    ``said`` describes the failure, ``advice`` the remedy, without a full stop.
    """

    kind: Kind
    code: ErrorCode
    said: str
    advice: str


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """``value`` if ``kind`` is None, else the kind of failure; and the number of attempts."""

    value: T | None
    kind: Kind | None
    attempts: int


class RequestSender:
    """Everything that is sent for one store. Safe to use from several threads."""

    def __init__(
        self,
        place_of: Callable[[str], str],
        errors: tuple[type[Exception], ...],
        classify: Callable[[Exception], Failure],
        policy: RetryPolicy,
        *,
        clock: RetryClock | None = None,
        random: Random | None = None,
    ) -> None:
        """Prepare for requests; nothing is sent.

        Args:
            place_of: Returns the address of a key, for messages.
            errors: Types of all errors that the store can cause in an attempt.
            classify: Returns the kind of such an error.
            policy: How long one failing request is retried.
            clock: Measures the budget and waits; by default the clock of the machine.
            random: Spreads the retries.
        """
        self.counter = RequestCounter()
        self._place_of = place_of
        self._errors = errors
        self._classify = classify
        self._policy = policy
        self._clock = clock or MachineClock()
        self._random = random or Random()  # noqa: S311 - spreads retries, protects nothing
        self._has_worked = False

    def budget(self) -> Budget:
        """Return a new retry budget, which starts now."""
        return Budget(self._policy, self._clock, self._random)

    def send(
        self, verb: Verb, key: str, attempt: Callable[[], T], answers: Collection[Kind] = ()
    ) -> Reply[T]:
        """Call ``attempt`` until it succeeds, fails with one of ``answers``, or time is up.

        Args:
            verb: The operation on ``key``, for messages.
            key: Name in the bucket.
            attempt: Sends one request, and reads its answer to the end.
            answers: Failures that are an answer for the caller.

        Raises:
            ConfigurationError: the store refuses, and has never accepted a request.
            StorageUnavailable: it does not answer, is full, or refuses what it accepted before.
        """
        budget = self.budget()
        while True:
            try:
                value = attempt()
            except self._errors as error:
                failure = self._classify(error)
                if failure.kind in answers:
                    self._has_worked = True
                    return Reply(None, failure.kind, budget.failures + 1)
                retried = failure.kind in {Kind.TRANSIENT, Kind.CONFLICT}
                if not (retried and budget.wait_for_another()):
                    raise self._error(verb, key, failure, budget) from error
                self.counter.retried()
            else:
                self._has_worked = True
                return Reply(value, None, budget.failures + 1)

    def create_marked(
        self,
        key: str,
        mark: str,
        write: Callable[[], Reply[bool]],
        winner: Callable[[], str | None],
    ) -> bool:
        """Create an object that carries ``mark``; return whether this call is its writer.

        A refusal of a repeated request may be caused by the object of an attempt whose answer was
        lost: then the mark of what is there decides (ADR 0015).

        Args:
            key: Name in the bucket.
            mark: Text that no other call has.
            write: Sends the conditional write; PRECONDITION_FAILED is its only other answer.
            winner: Returns the mark of what is there, "" if it has none, None if nothing is.

        Raises:
            ConfigurationError, StorageUnavailable: as ``send``.
        """
        budget = self.budget()
        while True:
            reply = write()
            if reply.kind is None:
                return True
            if reply.attempts == 1 and budget.failures == 0:
                return False  # Nothing of ours can be there.
            if (found := winner()) is not None:
                return found == mark
            if not budget.wait_for_another():
                raise self.gave_up("write", key, "it comes and goes", budget)

    def gave_up(self, verb: Verb, key: str, said: str, budget: Budget) -> StorageUnavailable:
        """Return the error for an operation that did not succeed within its time."""
        failure = Failure(Kind.TRANSIENT, ErrorCode.STORE_IO, said, "try again")
        error = self._error(verb, key, failure, budget)
        assert isinstance(error, StorageUnavailable)
        return error

    def _error(
        self, verb: Verb, key: str, failure: Failure, budget: Budget
    ) -> StorageUnavailable | ConfigurationError:
        tried = f" (tried {budget.failures} times)" if budget.failures > 1 else ""
        message = f"cannot {verb} {self._place_of(key)}: {failure.said}{tried}; {failure.advice}"
        # What worked before may work again: keys are renewed, rights come and go for seconds.
        if failure.kind is Kind.REFUSED and not self._has_worked:
            return ConfigurationError(failure.code, message)
        return StorageUnavailable(failure.code, message)


def value_of(reply: Reply[T]) -> T:
    """Return the value of a reply that cannot be a failure."""
    assert reply.value is not None, reply
    return reply.value
