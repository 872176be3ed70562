"""A database of a PostgreSQL server, asked through ``psql``, which comes with the server."""

import csv
import io
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from verification.servers.kafka_broker import HOST
from verification.servers.postgres_server import USER

_SECONDS_MAX = 60


class QueryFailedError(Exception):
    """``psql`` did not succeed; the message is what it printed."""


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """A database behind a port of loopback, for the superuser."""

    programs: Path
    port: int
    name: str = "postgres"

    def through(self, port: int) -> Self:
        """Return the same database behind another port, such as the port of a proxy."""
        return replace(self, port=port)

    def query(self, *statements: str) -> list[list[str]]:
        """Run statements on one connection, each in a transaction of its own; return all rows.

        Values are texts; null is an empty one.

        Raises:
            QueryFailedError: a statement failed, which ends the others, or the connection did.
        """
        command = [
            str(self.programs / "psql"), "--no-psqlrc", "--quiet", "--csv", "--tuples-only",
            "--set", "ON_ERROR_STOP=1", "--host", HOST, "--port", str(self.port),
            "--username", USER, "--dbname", self.name, "--no-password",
        ]  # fmt: skip
        for statement in statements:
            command += ["--command", statement]
        variables = {name: value for name, value in os.environ.items() if name[:2] != "PG"}
        # One connection, with its first request in clear: a proxy sees what is asked.
        plain = {"PGSSLMODE": "disable", "PGGSSENCMODE": "disable", "LC_ALL": "C"}
        done = subprocess.run(  # noqa: S603 - its own words
            command, env={**variables, **plain}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=_SECONDS_MAX, check=False,
        )  # fmt: skip
        if done.returncode:
            raise QueryFailedError(done.stderr.strip())
        return list(csv.reader(io.StringIO(done.stdout, newline="")))
