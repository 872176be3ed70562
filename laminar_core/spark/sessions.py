"""The Spark session of a job, and what happens to the job when it is lost.

Running out of memory ends the JVM, but not this process, which holds the job's claim and everything
needed for a restart. A session that Laminar opened is replaced, in another JVM. A session that the
user's program opened belongs to the program, so the job fails and the program has to be started
again.
"""

import os
from collections.abc import Callable
from typing import Protocol, Self

from pyspark.sql import SparkSession

from laminar_core.arguments import require_function
from laminar_core.errors import ErrorCode, JobFailedError, LaminarError
from laminar_core.spark import gateway

STOP_MAX_S = 60.0
"""How long Spark may take to stop cleanly; a cluster manager takes its time."""


class Session(Protocol):
    """Provides the session for the workers of a job."""

    @property
    def spark(self) -> SparkSession:
        """The session that was live at the last check."""
        ...

    @property
    def can_be_renewed(self) -> bool:
        """Whether ``live`` replaces a lost session."""
        ...

    def live(self) -> SparkSession:
        """Return a session that answers.

        Raises:
            JobFailedError: it is lost, and no other one could be opened.
        """
        ...

    def renew(self) -> None:
        """Give a session up that runs nothing, and open another one; not a user's session.

        Raises:
            JobFailedError: no other one could be opened.
        """
        ...


class GivenSession:
    """A session of the user's program. Laminar neither opens nor ends it."""

    can_be_renewed = False

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def live(self) -> SparkSession:
        """Return the session.

        Raises:
            JobFailedError: it is lost.
        """
        if gateway.is_lost(self.spark):
            raise JobFailedError(
                ErrorCode.SPARK_LOST,
                "the Spark session of the program is lost: start the program again",
            )
        return self.spark

    def renew(self) -> None:
        """Keep the session: the program may use it otherwise."""


class OwnSession:
    """A session that is opened again, in a JVM of its own, when it is lost.

    Use it as a context: Spark ends with it.
    """

    def __init__(self, open_session: Callable[[], SparkSession]) -> None:
        """Open the session.

        Raises:
            ConfigurationError: Spark did not start.
        """
        require_function(open_session, "OwnSession takes a function that opens a session")
        self._open = open_session
        self.spark = open_session()

    @property
    def can_be_renewed(self) -> bool:
        """Whether a lost session can be replaced.

        Not below ``spark-submit``, where the JVM is the parent.
        """
        return "PYSPARK_GATEWAY_PORT" not in os.environ

    def live(self) -> SparkSession:
        """Return the session, or another one if it is lost.

        Raises:
            JobFailedError: it is lost, and Spark did not start again; it may do so later.
        """
        if gateway.is_lost(self.spark):
            self._open_another()
        return self.spark

    def renew(self) -> None:
        """Open another session in place of this one, where it can be replaced.

        Raises:
            JobFailedError: Spark did not start again; it may do so later.
        """
        if self.can_be_renewed:
            gateway.stop(self.spark, STOP_MAX_S)
            self._open_another()

    def _open_another(self) -> None:
        gateway.forget()
        try:
            self.spark = self._open()
        except LaminarError as error:  # What was possible at the start is not refused now.
            raise JobFailedError(ErrorCode.SPARK_LOST, f"Spark is lost: {error}") from error

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop Spark; a lost session is abandoned."""
        gateway.stop(self.spark, STOP_MAX_S)
