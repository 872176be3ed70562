"""Dagster's own GraphQL answers, without a server between: queries and answers fit each other."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_graphql.test.utils import execute_dagster_graphql

from examples.operations.client import DagsterClient, UiError
from laminar_core.orchestration.streams import ROOT

KEY = dg.AssetKey(["payments", "checkpoint"])


class InProcess(DagsterClient):
    """Answers as the webserver would."""

    def bind(self, process: WorkspaceProcessContext) -> "InProcess":
        object.__setattr__(self, "process", process)
        return self

    def _request(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        assert (method, path) == ("POST", "/graphql")
        assert body is not None
        asked = json.loads(body)
        context = self.process.create_request_context()
        answer = execute_dagster_graphql(context, asked["query"], asked["variables"])
        return 200, json.dumps({"data": answer.data}).encode()


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple]:
    home = tmp_path_factory.mktemp("home")
    with (
        dg.DagsterInstance.local_temp(str(home)) as instance,
        WorkspaceProcessContext(
            instance, WorkspaceFileTarget([str(ROOT / "workspace.yaml")])
        ) as process,
    ):
        yield instance, InProcess(0).bind(process)


def test_what_is_not_there(dagster: tuple) -> None:
    _, ui = dagster
    assert ui.runs() == []
    assert ui.ticks("payments_checkpoint_reporter") == []
    assert ui.partitions(KEY) == frozenset()
    assert ui.check(KEY, "manifest_integrity", "0000000001") == "never run"


def test_a_launch_is_checked_as_in_the_launchpad(dagster: tuple) -> None:
    _, ui = dagster
    with pytest.raises(UiError, match=r"payments_pin: .*checkpoint_id"):
        ui.launch("payments_pin", {"ops": {"payments_pin": {"config": {}}}})
    with pytest.raises(UiError, match="payments_never"):
        ui.launch("payments_never")


def test_what_was_reported(dagster: tuple) -> None:
    instance, ui = dagster
    instance.add_dynamic_partitions("payments_checkpoints", ["0000000007"])
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition="0000000007"))
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            KEY,
            "manifest_integrity",
            passed=False,
            description="a bit is wrong",
            partition="0000000007",
        )
    )
    assert ui.partitions(KEY) == {"0000000007"}
    assert ui.check(KEY, "manifest_integrity", "0000000007") == "failed: a bit is wrong"


def test_nobody_there(tmp_path: Path) -> None:
    del tmp_path
    assert not DagsterClient(1).is_up()
