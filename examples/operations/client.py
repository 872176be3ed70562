"""Dagster's webserver from outside, as the UI uses it: GraphQL over HTTP."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

import dagster as dg

LOCATION, REPOSITORY = "laminar", "__repository__"
"""The names in ``workspace.yaml``."""

OVER = frozenset({"SUCCESS", "FAILURE", "CANCELED"})
_TIMEOUT_S = 60.0

_LAUNCH = """
mutation($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on RunConfigValidationInvalid { errors { message } }
    ... on PythonError { message }
    ... on Error { message }
  }
}"""
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


@dataclass(frozen=True, slots=True)
class DagsterClient:
    """Speaks to the webserver on a port of this machine."""

    port: int

    def is_up(self) -> bool:
        """Return whether the server answers."""
        try:
            return self._request("GET", "/server_info")[0] == HTTPStatus.OK
        except (OSError, HTTPException):
            return False

    def query(self, text: str, **variables: object) -> dict[str, Any]:
        """Send a query, and return the data.

        Raises:
            UiError: it was refused.
            OSError: the server does not answer.
        """
        body = json.dumps({"query": text, "variables": variables})
        _, answer = self._request("POST", "/graphql", body)
        content = json.loads(answer)
        if content.get("errors"):
            raise UiError(content["errors"][0]["message"])
        return content["data"]

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
        selector = {
            "repositoryLocationName": LOCATION,
            "repositoryName": REPOSITORY,
            "jobName": job,
        }
        params = {
            "selector": selector,
            "runConfigData": config or {},
            "mode": "default",
            "executionMetadata": {"tags": [{"key": k, "value": v} for k, v in wanted.items()]},
        }
        answer = self.query(_LAUNCH, params=params)["launchRun"]
        if "run" not in answer:
            said = [error["message"] for error in answer.get("errors", ())]
            raise UiError(f"{job}: {'; '.join(said) or answer.get('message', answer)}")
        return answer["run"]["runId"]

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

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


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
