"""Dagster's own GraphQL answers, without a server between: queries and answers fit each other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_graphql.test.utils import execute_dagster_graphql
from gql import GraphQLRequest
from gql.transport import Transport
from graphql import ExecutionResult, print_ast

from examples.operations.client import LOCATION, REPOSITORY, DagsterClient, UiError
from laminar_core.orchestration.streams import ROOT

KEY = dg.AssetKey(["payments", "checkpoint"])


class InProcess(Transport):
    """Answers as the webserver would."""

    def __init__(self, process: WorkspaceProcessContext) -> None:
        self._process = process

    def execute(self, request: GraphQLRequest, *_: Any, **how: Any) -> ExecutionResult:
        del how
        context = self._process.create_request_context()
        text, variables = print_ast(request.document), request.variable_values or {}
        answer = execute_dagster_graphql(context, text, variables)
        return ExecutionResult(data=answer.data)


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple]:
    home = tmp_path_factory.mktemp("home")
    with (
        dg.DagsterInstance.local_temp(str(home)) as instance,
        WorkspaceProcessContext(
            instance, WorkspaceFileTarget([str(ROOT / "workspace.yaml")])
        ) as process,
    ):
        yield instance, DagsterClient(0, InProcess(process))


def test_what_is_not_there(dagster: tuple) -> None:
    _, ui = dagster
    assert ui.runs() == []
    assert ui.ticks("laminar_checkpoint_reporter") == []
    assert ui.partitions(KEY) == frozenset()
    assert ui.check(KEY, "manifest_integrity", "0000000001") == "never run"


def test_a_launch_is_checked_as_in_the_launchpad(dagster: tuple) -> None:
    _, ui = dagster
    with pytest.raises(UiError, match=r"laminar_pin: .*checkpoint_id"):
        ui.launch("laminar_pin", {"ops": {"laminar_pin": {"config": {}}}})
    with pytest.raises(UiError, match="laminar_never"):
        ui.launch("laminar_never")


VALID = """
query($selector: PipelineSelector!, $config: RunConfigData!) {
  isPipelineConfigValid(pipeline: $selector, runConfigData: $config, mode: "default") {
    __typename
    ... on RunConfigValidationInvalid { errors { message } }
  }
  runConfigSchemaOrError(selector: $selector) {
    ... on RunConfigSchema { rootDefaultYaml }
  }
}"""


@pytest.mark.parametrize(
    ("restore", "said"),
    [
        ({"newest": {}}, None),
        ({}, "Must specify a field"),
        ({"newest": {}, "checkpoint": {"number": 2}}, "only specify a single field"),
        ({"checkpoint": {"number": "last"}}, "number"),
    ],
)
def test_the_launchpad_knows_what_cannot_be_launched(dagster: tuple, restore, said) -> None:
    _, ui = dagster
    selector = {
        "repositoryLocationName": LOCATION,
        "repositoryName": REPOSITORY,
        "pipelineName": "laminar_recover",
    }
    form = {"stream": "payments", "restore": restore}
    config = {"ops": {"laminar_recover": {"config": form}}}
    answer = ui.query(VALID, selector=selector, config=config)
    errors = [each["message"] for each in answer["isPipelineConfigValid"].get("errors", ())]
    assert len(errors) == (said is not None)
    assert all(said in each for each in errors)
    assert "resources" not in answer["runConfigSchemaOrError"]["rootDefaultYaml"]


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
    with pytest.raises(ConnectionError):
        DagsterClient(1).runs()
