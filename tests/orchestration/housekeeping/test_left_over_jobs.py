"""Left-overs as a Dagster run: found, put into quarantine, deleted; checkpoints stay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.left_over_jobs import build_left_over_job
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.facts import DAY_MS, HOUR_MS
from tests.orchestration.housekeeping_bench import SPEC, Bench, bench_at
from tests.retention.retention_jobs import JOB, pin_of
from tests.store.stores import damage


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Six whole checkpoints; the fourth attempt was of a driver that died in the middle of it."""
    with bench_at(tmp_path) as bench:
        bench.job.start()
        for _ in range(3):
            bench.job.complete()
        bench.job.attempt(ended=False)
        bench.job.start(3)
        for _ in range(3):
            bench.job.complete()
        yield bench


def orphans(bench: Bench, **config: object):
    policy = RetentionConfig(keep_last=1, left_overs="report", unreadable="delete")
    spec = SPEC.model_copy(update={"retention": policy})
    return bench.run(build_left_over_job(Group((spec,)), bench.clock), config)


def test_a_report_says_what_is_there_and_changes_nothing(bench) -> None:
    before = bench.store.objects.list("")
    assert orphans(bench).success
    assert bench.store.objects.list("") == before
    (told,) = bench.observed("retention")
    (attempt,) = told["attempts"]
    assert (attempt["checkpoint"], attempt["generation"], attempt["files"]) == (4, 1, 1)
    assert told["incomplete_attempts"] == 1
    assert told["left_over_files"] == 2  # Its own file, and the increment that it wrote.
    assert told["left_over_bytes"] == sum(row["bytes"] for row in told["files"]) > 0


def test_what_has_waited_is_deleted_and_no_checkpoint(bench) -> None:
    assert orphans(bench, mode="delete").success
    assert bench.materialised("retention")[-1]["quarantined_files"] == 2
    assert [told["outcome"] for told in bench.observed("retention")] == ["dry run"]
    assert orphans(bench, mode="delete").success
    assert bench.observed("retention")[-1]["outcome"] == "nothing to do"
    assert bench.observed("retention")[-1]["left_over_files"] == 2
    bench.clock.wait_ms(DAY_MS + 1)
    assert orphans(bench, mode="delete").success
    told = bench.materialised("retention")[-1]
    assert (told["deleted_files"], told["deleted_checkpoints"]) == (2, 0)
    assert bench.store.manifests.ids() == [1, 2, 3, 5, 6, 7]
    assert all(bench.store.verify(c).problem is None for c in bench.store.manifests.ids()[-2:])
    assert orphans(bench).success
    assert bench.observed("retention")[-1]["left_over_files"] == 0


def test_the_form_can_shorten_the_quarantine(bench) -> None:
    assert orphans(bench, mode="delete").success
    bench.clock.wait_ms(HOUR_MS + 1)
    assert orphans(bench, mode="delete", quarantine="1 hour").success
    assert bench.materialised("retention")[-1]["deleted_files"] == 2


def test_what_a_damaged_manifest_may_name_stays(bench) -> None:
    damage(bench.store, bench.store.paths.manifest(bench.store.manifests.ids()[0]), "torn")
    assert orphans(bench, mode="delete").success
    bench.clock.wait_ms(DAY_MS + 1)
    assert orphans(bench, mode="delete").success
    told = bench.materialised("retention")[-1]
    assert told["unreadable_manifests"] == 1
    assert {row["file"][:22]: row["verdict"] for row in told["files"]} == {
        "checkpoints/0000000001": "report",
        "checkpoints/0000000004": "delete",
    }


def test_a_checkpoint_that_a_later_generation_went_on_without_stays(bench) -> None:
    """Retention deletes it; this job deletes no checkpoint."""
    bench.job.start(6)
    bench.job.complete()
    assert [s.checkpoint_id for s in bench.store.list_summaries() if s.orphan] == [7]
    assert orphans(bench, mode="delete").success
    bench.clock.wait_ms(DAY_MS + 1)
    assert orphans(bench, mode="delete").success
    assert 7 in bench.store.manifests.ids()


def test_holds_that_ended_are_reported(bench) -> None:
    bench.job.pin(6, "over", until_ms=bench.clock.now_ms() - 1)
    bench.job.pin(7, "for-ever")
    assert pin_of(7).expires_at_ms is None
    assert orphans(bench).success
    assert bench.observed("retention")[0]["holds_that_ended"] == 1


@pytest.mark.parametrize(
    ("config", "said"), [({"quarantine": "soon"}, "soon"), ({"quarantine": "-1 day"}, "-1 day")]
)
def test_a_wrong_request_is_refused(bench, config, said) -> None:
    assert said in bench.failure(orphans(bench, **config))


def test_an_empty_store_fails_with_its_line(tmp_path) -> None:
    with bench_at(tmp_path) as bench:
        assert "has no job payments" in bench.failure(orphans(bench))


def test_old_logs_of_drivers_go_only_when_something_may_be_deleted(bench) -> None:
    folder = bench.logs / JOB
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"{number:04}.log").write_text("x")
    assert orphans(bench).success
    assert len(list(folder.iterdir())) == 30
    assert orphans(bench, mode="delete").success
    assert bench.materialised("retention")[0]["deleted_logs"] == 30 - len(list(folder.iterdir()))
    assert len(list(folder.iterdir())) < 30
