"""The benchmark of many workers counts what a checkpoint wrote itself, and fills its tables."""

import pytest

from benchmarks.manifest_size import manifest_of
from benchmarks.page_tables import TABLES
from benchmarks.worker_growth import MODES, WORKERS, Measured, pipeline_of, puts_of, results_of
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.paths import JobPaths

CHECKPOINT = Measured(
    duration_ms=30.0,
    start_delay_ms=10.0,
    async_ms=15.0,
    puts=8,
    inflight_files=2,
    queues=7,
    inflight_bytes=5_000,
)


def test_a_checkpoint_wrote_its_records_and_the_files_that_the_one_before_did_not_have() -> None:
    before = manifest_of(3, unaligned=False)
    manifest = manifest_of(3, unaligned=True).model_copy(update={"checkpoint_id": CheckpointId(8)})
    paths = JobPaths(manifest.job)
    records = {
        record(CheckpointId(number))
        for record in (paths.trigger, paths.manifest, paths.commit, paths.outcome)
        for number in (7, 8)
    }
    files = {paths.absolute(file.path) for file in (*before.files(), *manifest.files())}
    others = {paths.audit_head, f"{paths.control}0000000001.json"}
    assert len(manifest.inflight_files) == 3
    assert puts_of(paths, records | files | others, before, manifest) == 4 + 3
    uncommitted = records - {paths.commit(CheckpointId(8))}
    assert puts_of(paths, uncommitted | files | others, before, manifest) == 3 + 3


def test_every_cell_of_the_tables_has_a_figure() -> None:
    results = results_of({(mode, n): [CHECKPOINT] for mode in MODES for n in WORKERS})
    values = {result.name: result.value for result in results}
    shown = {
        template.format(word)
        for table in (TABLES["workers"], TABLES["workers-requests"])
        for word in table.rows.values()
        for template in table.columns.values()
    }
    assert shown <= values.keys()
    assert (values["workers_aligned_16"], values["workers_unaligned_4_puts"]) == (30, 8)
    assert (values["workers_unaligned_2_inflight_files"], values["workers_unaligned_8_queues"]) == (
        2,
        7,
    )


@pytest.mark.parametrize("mode", MODES)
def test_each_worker_has_a_split_and_only_an_aligned_job_is_paced(mode: str) -> None:
    (source,) = (
        vertex.source
        for vertex in pipeline_of(mode, 5).plan().vertices
        if vertex.source is not None
    )
    assert source.source.describe()["splits"] == 5
    assert (source.rows_per_second is None) == (mode == "unaligned")
