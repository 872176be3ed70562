"""Dagster's webserver from outside, as the UI uses it: GraphQL over HTTP.

Runs are launched by Dagster's own client. It has no questions about runs, ticks, checks and
partitions: these go through the library below it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import dagster as dg
import requests
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError
from gql import Client, GraphQLRequest
from gql.transport import Transport
from gql.transport.exceptions import TransportConnectionFailed, TransportError
from gql.transport.requests import RequestsHTTPTransport

LOCATION, REPOSITORY = "laminar", "__repository__"
"""The names in ``workspace.yaml``."""

OVER = frozenset({"SUCCESS", "FAILURE", "CANCELED"})
_TIMEOUT_S = 60

_RUNS = """
query($filter: RunsFilter, $limit: Int) {
  runsOrError(filter: $filter, limit: $limit) {
    ... on Runs { results { runId jobName status startTime endTime tags { key value } } }
  }
}"""
_TICKS = """
query($selector: SensorSelector!, $limit: Int!) {
  sensorOrError(sensorSelector: $selector) {
    ... on Sensor {
      sensorState { ticks(limit: $limit) { timestamp status skipReason error { message } } }
    }
  }
}"""
_CHECKS = """
query($key: AssetKeyInput!, $check: String!, $partition: String) {
  assetCheckExecutions(assetKey: $key, checkName: $check, partition: $partition, limit: 1) {
    status
    evaluation { success description }
  }
}"""
_PARTITIONS = """
query($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      assetPartitionStatuses {
        ... on DefaultPartitionStatuses { materializedPartitions }
      }
    }
  }
}"""
_FAILURE = """
query($run: ID!) {
  logsForRun(runId: $run) {
    ... on EventConnection {
      events {
        __typename
        ... on ExecutionStepFailureEvent { error { message cause { message } } }
        ... on RunFailureEvent { message }
      }
    }
  }
}"""


class UiError(Exception):
    """Dagster refused a request; the text is its message."""


@dataclass(frozen=True, slots=True)
class Run:
    """One Dagster run. Times are seconds since 1970; None until they are known."""

    run_id: str
    job: str
    status: str
    tags: Mapping[str, str]
    started_s: float | None = None
    ended_s: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.status in OVER


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a sensor."""

    at_s: float
    status: str
    said: str


class DagsterClient:
    """Speaks to the webserver on a port of this machine."""

    def __init__(self, port: int, transport: Transport | None = None) -> None:
        """Nothing is sent yet; ``transport`` is another way to the server than HTTP."""
        self.port = port
        self._transport = transport or RequestsHTTPTransport(
            f"http://127.0.0.1:{port}/graphql", timeout=_TIMEOUT_S
        )

    def is_up(self) -> bool:
        """Return whether the server answers."""
        try:
            answer = requests.get(f"http://127.0.0.1:{self.port}/server_info", timeout=_TIMEOUT_S)
        except OSError:
            return False
        return answer.ok

    def query(self, text: str, **variables: object) -> dict[str, Any]:
        """Send a query, and return the data.

        Raises:
            UiError: it was refused.
            OSError: the server does not answer.
        """
        try:
            asked = GraphQLRequest(text, variable_values=variables)
            return Client(transport=self._transport).execute(asked)
        except TransportConnectionFailed as error:
            raise ConnectionError(str(error)) from error
        except TransportError as error:
            raise UiError(str(error)) from error

    def launch(
        self,
        job: str,
        config: Mapping[str, object] | None = None,
        *,
        partition: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Start a run as the launchpad does; returns its id.

        Raises:
            UiError: the configuration was refused, or there is no such job.
        """
        wanted = {**(tags or {}), **({} if partition is None else {"dagster/partition": partition})}
        client = DagsterGraphQLClient("127.0.0.1", self.port, transport=self._transport)
        try:
            return client.submit_job_execution(
                job,
                repository_location_name=LOCATION,
                repository_name=REPOSITORY,
                run_config=config or {},
                tags=wanted,
            )
        except DagsterGraphQLClientError as error:
            raise UiError(f"{job}: {_said(error)}") from error

    def runs(self, *, limit: int = 20, **wanted: object) -> list[Run]:
        """Return runs that match a GraphQL filter, newest first."""
        data = self.query(_RUNS, filter=wanted, limit=limit)["runsOrError"]
        return [_run(each) for each in data["results"]]

    def run(self, run_id: str) -> Run:
        """Return one run."""
        (found,) = self.runs(runIds=[run_id])
        return found

    def why_failed(self, run_id: str) -> str:
        """Return the error of a failed run, in one line."""
        events = self.query(_FAILURE, run=run_id)["logsForRun"].get("events", ())
        errors = [event["error"] for event in events if event.get("error")]
        said = [(error.get("cause") or error)["message"] for error in errors]
        said += [event["message"] for event in events if event["__typename"] == "RunFailureEvent"]
        return " ".join(said[0].split()) if said else "it does not say why"

    def ticks(self, sensor: str, limit: int = 5) -> list[Tick]:
        """Return a sensor's latest ticks, newest first; empty before the first one."""
        selector = {
            "repositoryLocationName": LOCATION,
            "repositoryName": REPOSITORY,
            "sensorName": sensor,
        }
        found = self.query(_TICKS, selector=selector, limit=limit)["sensorOrError"]
        return [_tick(each) for each in found.get("sensorState", {}).get("ticks", ())]

    def check(self, key: dg.AssetKey, check: str, partition: str | None = None) -> str:
        """Return the newest result of an asset check with its description, or why there is none."""
        found = self.query(_CHECKS, key={"path": key.path}, check=check, partition=partition)
        executions = found["assetCheckExecutions"]
        if not executions or executions[0]["evaluation"] is None:
            return executions[0]["status"].lower() if executions else "never run"
        evaluation = executions[0]["evaluation"]
        verdict = "passed" if evaluation["success"] else "failed"
        return f"{verdict}: {evaluation['description']}"

    def partitions(self, key: dg.AssetKey) -> frozenset[str]:
        """Return the materialised partitions of an asset."""
        found = self.query(_PARTITIONS, key={"path": key.path})["assetNodeOrError"]
        return frozenset(found.get("assetPartitionStatuses", {}).get("materializedPartitions", ()))


def _said(error: DagsterGraphQLClientError) -> str:
    said = cast("list[dict[str, str]] | str", error.args[-1])
    return said if isinstance(said, str) else "; ".join(each["message"] for each in said)


def _run(found: Mapping[str, Any]) -> Run:
    tags = {tag["key"]: tag["value"] for tag in found["tags"]}
    return Run(
        found["runId"], found["jobName"], found["status"], tags, found["startTime"],
        found["endTime"],
    )  # fmt: skip


def _tick(found: Mapping[str, Any]) -> Tick:
    error = found["error"]
    said = error["message"].strip() if error else found["skipReason"] or ""
    return Tick(found["timestamp"], found["status"], said)
