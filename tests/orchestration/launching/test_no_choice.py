"""A run that does not ask for a driver ends without one, and says so."""

from typing import Any

import dagster as dg
import pytest

from laminar_core.resources.names import StreamAsset, asset_key
from tests.orchestration.started import STREAM, StartedStream


def materialize(
    stream: StartedStream,
    *names: StreamAsset,
    partition: str | None = None,
    ops: dict[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    """Materialise assets by name, as *Materialize* and ``dagster asset materialize`` do."""
    job = stream.definitions().resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        asset_selection=[asset_key(STREAM, name) for name in names],
        instance=stream.instance,
        partition_key=partition,
        run_config={"ops": ops or {}},
    )


def told(stream: StartedStream, name: StreamAsset) -> list[str | None]:
    records = stream.instance.fetch_observations(asset_key(STREAM, name), limit=9).records
    return [each.asset_observation.description for each in records if each.asset_observation]


NONE = "no driver of payments was started, because this run does not ask for one: "


class TestMaterializeAll:
    def test_it_starts_nothing_and_says_so_in_one_line(self, stream) -> None:
        stream.has_run(1)
        assert materialize(stream, "deployment", "output").success
        assert stream.living == []
        assert told(stream, "deployment") == [
            f"{NONE}launch laminar_start, or set `start_from: newest` or `fresh` in the config"
        ]
        assert told(stream, "output") == [
            f"{NONE}launch laminar_run, or set `start: true` in the config of the output"
        ]
        assert stream.materialized("deployment") == stream.materialized("output") == []

    @pytest.mark.parametrize(
        "ops",
        [
            {},
            {"payments_recovery": {"config": {"reason": "x", "expected_generation": 7}}},
            {"payments__recovery": {"config": {"expected_generation": 7}}},
        ],
    )
    def test_a_recovery_without_a_reason_is_none(self, stream, ops) -> None:
        """Goal: Dagster drops what is under a name that it does not know."""
        stream.has_run(2)
        assert materialize(stream, "recovery", partition="0000000002", ops=ops).success
        assert stream.living == []
        (said,) = told(stream, "recovery")
        assert said == (
            f"{NONE}give a `reason` in the config of the recovery, or launch laminar_recover"
        )
        assert stream.materialized("recovery") == []


class TestByName:
    def test_a_recovery_is_materialised_with_a_reason(self, stream) -> None:
        stream.has_run(2)
        ops = {"payments__recovery": {"config": {"reason": "by hand"}}}
        assert materialize(stream, "recovery", partition="0000000002", ops=ops).success
        assert stream.living == [2]

    def test_a_deployment_is_materialised_if_the_config_says_what_to_start_from(
        self, stream
    ) -> None:
        ops = {"payments__deployment": {"config": {"start_from": "fresh", "reason": "by hand"}}}
        assert materialize(stream, "deployment", ops=ops).success
        assert len(stream.materialized("deployment")) == 1

    def test_the_output_is_materialised_if_the_config_says_start(self, processes) -> None:
        processes.how = "finishes"
        ops = {"payments__output": {"config": {"start": True}}}
        assert materialize(processes, "output", ops=ops).success
        assert len(processes.materialized("output")) == 1

    @pytest.mark.parametrize("name", ["start", "recover"])
    def test_a_job_that_is_there_to_start_a_driver_has_to_be_told_how(self, stream, name) -> None:
        """Goal: nobody who launches it takes a run without a driver for a success."""
        with pytest.raises(dg.DagsterInvalidConfigError, match="Missing required config entry"):
            stream.run(name, {})
        assert stream.living == []
