"""Retention as a Dagster run: what it deletes, what it tells, and what it does when in doubt."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_core.errors import ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.retention_jobs import build_retention_job
from laminar_core.orchestration.spec import StreamSpec
from laminar_core.protocol.types import CheckpointId
from laminar_core.resources.names import (
    RETENTION_PLAN_TAG,
    asset_key,
    checkpoint_partitions,
    partition_of,
)
from laminar_core.retention import run as retention_module
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.facts import DAY_MS
from laminar_core.retention.run import Retention
from laminar_core.store.audit_log import AuditLog
from tests.orchestration.housekeeping_bench import SPEC, Bench, bench_at
from tests.retention.retention_jobs import JOB, ME
from tests.store.stores import damage, outcome, trigger

PARTITIONS = checkpoint_partitions(JOB).name or ""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Five checkpoints, all known to Dagster."""
    with bench_at(tmp_path) as bench:
        bench.job.start()
        for _ in range(5):
            bench.job.complete()
        bench.instance.add_dynamic_partitions(PARTITIONS, [partition_of(n) for n in range(1, 6)])
        yield bench


def retention(bench: Bench, spec: StreamSpec = SPEC, **config: object):
    job = build_retention_job(Group((spec,)), bench.clock)
    return bench.run(job, {"mode": "delete", **config})


def test_what_the_policy_drops_is_deleted_and_reported(bench) -> None:
    result = retention(bench, reason="every hour")
    assert result.success
    assert bench.store.manifests.ids() == [3, 4, 5]
    (told,) = bench.materialised("retention")
    assert told["outcome"] == "done"
    assert (told["deleted_checkpoints"], told["deleted_ids"]) == (2, [1, 2])
    assert told["deleted_bytes"] == told["planned_bytes"] > 0
    verdicts = {row["checkpoint"]: (row["verdict"], row["why"]) for row in told["plan"]}
    assert verdicts[1][0] == "delete"
    action, why = verdicts[5]
    assert action == "keep"
    assert why.startswith("the newest that can be restored; the newest that is committed; ")


def test_who_wanted_it_and_which_run_did_it_is_audited(bench) -> None:
    result = retention(bench, reason="every hour")
    log = AuditLog(bench.store.objects, bench.store.paths, bench.clock.now_ms)
    (record,) = log.records()
    assert (record.action, record.actor) == ("retention-apply", "ann")
    assert (record.reason, record.run_id, record.outcome) == ("every hour", result.run_id, "done")


def test_what_is_gone_is_no_partition_any_more_and_its_history_stays(bench) -> None:
    assert retention(bench).success
    assert bench.instance.get_dynamic_partitions(PARTITIONS) == [partition_of(n) for n in (3, 4, 5)]
    assert [record.checkpoint_id for record in bench.store.attempts.history()] == [1, 2, 3, 4, 5]


def test_the_newest_attempts_that_failed_stay_partitions(bench, monkeypatch) -> None:
    monkeypatch.setattr("laminar_core.orchestration.housekeeping.retention_jobs.FAILED_KEPT", 2)
    for number, what in ((6, "declined"), (7, "expired"), (8, "subsumed"), (9, "declined")):
        assert bench.store.attempts.record_trigger(trigger(number, 1))
        bench.store.attempts.record_outcome(outcome(number, what))
    bench.instance.add_dynamic_partitions(PARTITIONS, [partition_of(n) for n in range(6, 10)])
    assert retention(bench).success
    kept = [int(key) for key in bench.instance.get_dynamic_partitions(PARTITIONS)]
    assert sorted(kept) == [3, 4, 5, 9]


def test_what_others_deleted_is_no_partition_either(bench) -> None:
    """But what this store has never seen stays: it is of another one."""
    other = Retention(bench.store, RetentionConfig(keep_last=2).policy(), bench.clock.now_ms)
    other.apply(other.plan(), ME, {})
    bench.instance.add_dynamic_partitions(PARTITIONS, [partition_of(99)])
    assert retention(bench).success
    assert bench.instance.get_dynamic_partitions(PARTITIONS) == [
        partition_of(n) for n in (4, 5, 99)
    ]


def test_only_reading_every_byte_finds_a_flipped_bit(bench) -> None:
    damage(bench.store, bench.store.paths.state(CheckpointId(5), "window", 0), "rotten")
    assert retention(bench, verify="sizes", mode="report").success
    assert retention(bench, verify="bytes", mode="report").success
    by_size, whole = bench.observed("retention")
    assert (by_size["planned_checkpoints"], whole["planned_checkpoints"]) == (2, 1)


def test_the_plan_that_was_carried_out_can_be_found_by_its_number(bench) -> None:
    assert retention(bench).success
    key = asset_key(JOB, "retention")
    (record,) = bench.instance.fetch_materializations(key, limit=9).records
    assert record.asset_materialization.tags[RETENTION_PLAN_TAG] == "1"


def test_a_form_that_says_nothing_deletes_nothing(bench) -> None:
    before = bench.store.objects.list("")
    assert bench.run(build_retention_job(Group((SPEC,)), bench.clock)).success
    assert bench.store.objects.list("") == before
    assert len(bench.instance.get_dynamic_partitions(PARTITIONS)) == 5
    assert bench.materialised("retention") == []
    (told,) = bench.observed("retention")
    assert (told["outcome"], told["planned_checkpoints"]) == ("dry run", 2)


def test_nothing_to_do_is_said(bench) -> None:
    assert retention(bench, policy={"keep_last": 9}).success
    (told,) = bench.observed("retention")
    assert told["outcome"] == "nothing to do"


def test_the_form_goes_before_the_policy_of_the_stream(bench) -> None:
    spec = SPEC.model_copy(update={"retention": RetentionConfig(keep_last=2)})
    assert retention(bench, spec, policy={"keep_last": 4}).success
    assert bench.store.manifests.ids() == [2, 3, 4, 5]
    (told,) = bench.materialised("retention")
    assert told["policy"]["keep_last"] == 4


def test_the_policy_of_the_stream_is_the_default(bench) -> None:
    spec = SPEC.model_copy(update={"retention": RetentionConfig(keep_last=1)})
    assert retention(bench, spec).success
    assert bench.store.manifests.ids() == [5]


@pytest.mark.parametrize(
    ("policy", "said"),
    [({"max_age": "long"}, "long"), ({"keep_last": 0}, "keep_last")],
)
def test_a_wrong_policy_fails_with_its_field_and_deletes_nothing(bench, policy, said) -> None:
    assert said in bench.failure(retention(bench, policy=policy))
    assert len(bench.store.manifests.ids()) == 5


def test_a_plan_that_does_not_hold_any_more_is_the_next_run_s(bench, monkeypatch) -> None:
    """Somebody pins between the plan and the second look: nothing goes, and nothing failed."""
    write_down = Retention._write_down

    def pin_meanwhile(self, *planned):
        record = write_down(self, *planned)
        bench.job.pin(2)
        return record

    monkeypatch.setattr(Retention, "_write_down", pin_meanwhile)
    assert retention(bench).success
    assert len(bench.store.manifests.ids()) == 5
    assert len(bench.instance.get_dynamic_partitions(PARTITIONS)) == 5
    (told,) = bench.observed("retention")
    assert "nothing was deleted" in told["outcome"]
    assert "pinned as keep" in told["outcome"]
    monkeypatch.setattr(Retention, "_write_down", write_down)
    assert retention(bench).success
    assert bench.store.manifests.ids() == [2, 3, 4, 5]


def test_what_an_earlier_run_began_is_finished_first(bench, monkeypatch) -> None:
    runner = Retention(bench.store, RetentionConfig(keep_last=4).policy(), bench.clock.now_ms)
    planned = runner.plan()

    def killed(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(retention_module, "Application", killed)
        with pytest.raises(KeyboardInterrupt):
            runner.apply(planned, ME, {})
    assert retention(bench, mode="report").success
    assert len(list(runner.log.unfinished())) == 1
    assert retention(bench).success
    first, second = bench.materialised("retention")
    assert (first["outcome"], first["deleted_ids"]) == ("an earlier plan was finished", [1])
    assert (second["outcome"], second["deleted_ids"]) == ("done", [2])


def test_files_left_behind_are_in_the_table(bench) -> None:
    bench.job.attempt(ended=False)
    bench.job.start(5)
    bench.job.complete()
    assert retention(bench).success
    (told,) = bench.materialised("retention")
    assert {row["verdict"] for row in told["files"]} == {"quarantine"}
    assert told["quarantined_files"] == len(told["files"])
    bench.clock.wait_ms(2 * DAY_MS)
    assert retention(bench).success
    assert {row["verdict"] for row in bench.materialised("retention")[-1]["files"]} == {"delete"}


def test_an_empty_store_is_distinguished_from_one_with_nothing_to_do(tmp_path) -> None:
    with bench_at(tmp_path) as bench:
        assert "has no job payments: start it first" in bench.failure(retention(bench))
        assert not bench.store.objects.list("")


def test_a_store_that_stops_answering_fails_the_run_with_its_line(bench, monkeypatch) -> None:
    def no_answer(*_args: object) -> None:
        raise StorageUnavailable(ErrorCode.STORE_IO, "the bucket does not answer")

    monkeypatch.setattr(MemoryObjectStore, "list", no_answer)
    assert bench.failure(retention(bench)) == "the bucket does not answer"
    assert len(bench.instance.get_dynamic_partitions(PARTITIONS)) == 5


def test_a_store_that_is_none_fails_the_run_with_its_line(bench, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    bench.uri = str(tmp_path / "file")
    assert "is a file, not a store" in bench.failure(retention(bench))
    assert len(bench.instance.get_dynamic_partitions(PARTITIONS)) == 5
