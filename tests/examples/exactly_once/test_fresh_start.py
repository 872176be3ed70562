"""Whatever an earlier demo left behind, the next one starts from nothing, and never from under a
living driver.
"""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from examples.exactly_once.fresh_start import begin_anew, open_instance
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.orchestration.definitions import defs
from laminar_core.resources.names import STREAM_TAG, checkpoint_partitions
from laminar_core.store.checkpoint_store import CheckpointStore
from tests.store.stores import JOB, claim, claimant, elsewhere, never, open_job


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


def test_what_an_earlier_demo_wrote_is_removed(instance, tmp_path: Path) -> None:
    folder, file = tmp_path / "output", tmp_path / "events"
    (folder / "deep").mkdir(parents=True)
    file.touch()
    begin_anew(instance, open_job(), remove=(folder, file, tmp_path / "never"))
    assert not folder.exists()
    assert not file.exists()


def test_old_partitions_go_and_the_history_stays(instance) -> None:
    partitions = checkpoint_partitions(JOB).name
    instance.add_dynamic_partitions(partitions, ["0000000001"])
    old = dg.AssetMaterialization([JOB, "checkpoint"], partition="0000000001")
    instance.report_runless_asset_event(old)
    begin_anew(instance, open_job(), remove=())
    assert instance.get_dynamic_partitions(partitions) == []
    assert len(instance.fetch_materializations(old.asset_key, limit=9).records) == 1


def test_a_killed_run_is_closed(instance) -> None:
    run = instance.create_run_for_job(
        defs.resolve_job_def("laminar_run"),
        run_config={"ops": {"laminar_run": {"config": {"stream": JOB}}}},
        tags={STREAM_TAG: JOB},
        status=dg.DagsterRunStatus.STARTED,
    )
    begin_anew(instance, open_job(), remove=())
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE


def test_a_living_driver_is_not_robbed_of_its_store(instance, tmp_path: Path) -> None:
    store = CheckpointStore.open(str(tmp_path / "store"), JOB)
    claim(store)  # By this very process.
    with pytest.raises(ConfigurationError, match="stop it, then start the demo") as refusal:
        begin_anew(instance, store, remove=(tmp_path / "store",))
    assert refusal.value.code is ErrorCode.JOB_OWNED
    assert (tmp_path / "store").exists()


@pytest.mark.parametrize("how", ["ended", "elsewhere"])
def test_a_driver_that_is_gone_is_no_obstacle(instance, how: str) -> None:
    store = open_job()
    if how == "ended":
        store.generations.end(claim(store), "finished", "")
    else:
        store.claims.claim(claimant(elsewhere()), wait_ms=never, take_over=True)
    begin_anew(instance, store, remove=())


def test_the_demo_and_dagster_dev_see_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with open_instance() as instance:
        assert instance.root_directory == str(tmp_path)
