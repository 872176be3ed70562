"""The audit log as Dagster verifies it: also against what it saw the last time."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.orchestration.group import Group
from laminar_core.orchestration.housekeeping.audit_jobs import build_audit_job
from laminar_core.records.actor import Actor
from laminar_core.resources.names import asset_key, check_key
from laminar_core.store.audit_key import KEY_VARIABLE
from laminar_core.store.audit_log import AuditLog
from tests.orchestration.housekeeping_bench import SPEC, Bench, bench_at
from tests.retention.retention_jobs import JOB
from tests.store.stores import damage


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A job with three audited acts."""
    with bench_at(tmp_path) as bench:
        bench.job.start()
        act(bench, 3)
        yield bench


def log_of(bench: Bench) -> AuditLog:
    return AuditLog(bench.store.objects, bench.store.paths, bench.clock.now_ms)


def act(bench: Bench, times: int, reason: str = "to test") -> None:
    for _ in range(times):
        log_of(bench).append(action="pin", actor=Actor("me", reason=reason))


def write_anew(bench: Bench, times: int, reason: str) -> None:
    """Somebody with write access forges a whole log that is sound in itself."""
    for key in bench.store.objects.list(bench.store.paths.audit):
        bench.store.objects.delete(key)
    act(bench, times, reason)
    assert not log_of(bench).verify().findings


def verify(bench: Bench, **config: object) -> dg.ExecuteInProcessResult:
    return bench.run(build_audit_job(Group((SPEC,)), bench.clock), config)


def verdicts(bench: Bench) -> list[bool]:
    """Newest first."""
    key = check_key(JOB, "audit_chain")
    records = bench.instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    events = [record.event.dagster_event for record in records if record.event is not None]
    return [event.asset_check_evaluation_data.passed for event in events if event is not None]


def test_a_sound_log_is_reported_and_judged(bench) -> None:
    assert verify(bench).success
    (told,) = bench.materialised("audit")
    assert (told["records"], told["findings"], told["newest_record"]) == (3, 0, 3)
    assert told["newest_sha256"] == log_of(bench).verify().newest.sha256
    assert not told["signatures_checked"]
    assert verdicts(bench) == [True]


def test_a_log_that_grows_is_sound(bench) -> None:
    assert verify(bench).success
    act(bench, 2)
    assert verify(bench).success
    assert bench.materialised("audit")[-1]["newest_record"] == 5


@pytest.mark.parametrize("how", ["missing", "torn", "rotten"])
def test_a_damaged_record_is_found_by_its_number(bench, how) -> None:
    damage(bench.store, bench.store.paths.audit_record(2), how)
    assert "record 2" in bench.failure(verify(bench))
    assert verdicts(bench) == [False]
    (told,) = bench.materialised("audit")
    assert told["found"][0]["record"] == 2
    assert told["newest_record"] == 0  # Nothing sound was seen yet.


def test_a_log_that_was_written_anew_is_found_although_it_is_sound(bench) -> None:
    assert verify(bench).success
    write_anew(bench, 4, reason="to hide something")
    said = bench.failure(verify(bench))
    assert "record 3 is not the one that was there when the log was last verified" in said
    # It does not heal by itself.
    assert not verify(bench).success
    assert verdicts(bench) == [False, False, True]


def test_a_log_that_was_cut_off_is_found_although_it_is_sound(bench) -> None:
    assert verify(bench).success
    write_anew(bench, 2, reason="to test")
    assert "record 3 was there" in bench.failure(verify(bench))


def test_what_somebody_has_looked_into_counts_no_more_and_that_is_audited(bench) -> None:
    assert verify(bench).success
    write_anew(bench, 4, reason="a restore of the store from a copy")
    assert not verify(bench).success
    assert verify(bench, accept_up_to=4, reason="we restored it").success
    assert verify(bench).success
    *_, accepted = log_of(bench).records()
    assert (accepted.action, accepted.actor, accepted.reason) == (
        *("audit-accept", "ann"),
        "we restored it",
    )
    write_anew(bench, 9, reason="again")
    assert not verify(bench).success


def test_what_was_accepted_does_not_hide_what_is_newer(bench) -> None:
    damage(bench.store, bench.store.paths.audit_record(2), "torn")
    assert verify(bench, accept_up_to=3).success
    act(bench, 2)
    damage(bench.store, bench.store.paths.audit_record(5), "torn")
    assert "record 5" in bench.failure(verify(bench))


def test_signatures_are_checked_with_the_key_of_the_environment(bench, monkeypatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    assert "signed" in bench.failure(verify(bench))
    act(bench, 1)
    assert verify(bench).success
    assert bench.materialised("audit")[-1]["signatures_checked"]
    monkeypatch.setenv(KEY_VARIABLE, "another")
    assert "signed with this key" in bench.failure(verify(bench))


def test_a_job_without_a_log_passes_and_one_that_is_not_there_fails(tmp_path) -> None:
    with bench_at(tmp_path) as bench:
        assert "has no job payments" in bench.failure(verify(bench))
        bench.job.start()
        assert verify(bench).success
        assert bench.materialised("audit")[0]["records"] == 0


def test_what_is_still_to_come_cannot_be_accepted(bench) -> None:
    said = bench.failure(verify(bench, accept_up_to=4))
    assert said == "accept_up_to: there is no record 4: the newest that is known is 3"
    act(bench, 1)
    assert verify(bench).success
    damage(bench.store, bench.store.paths.audit_record(4), "rotten")
    assert "record 4" in bench.failure(verify(bench))


def test_an_event_that_a_user_reports_does_not_replace_the_memory(bench) -> None:
    assert verify(bench).success
    event = dg.AssetMaterialization(asset_key(JOB, "audit"), metadata={"newest_record": "mine"})
    bench.instance.report_runless_asset_event(event)
    write_anew(bench, 3, "another history")
    assert "written anew" in bench.failure(verify(bench))


def test_an_acceptance_beyond_the_log_ends_at_the_newest_record_of_its_moment(bench) -> None:
    """Goal: an earlier version took any number, and its memory is still there."""
    assert verify(bench).success
    (told,) = bench.materialised("audit")
    metadata = told | {"accepted_up_to": 10**6}
    event = dg.AssetMaterialization(asset_key(JOB, "audit"), metadata=metadata)
    bench.instance.report_runless_asset_event(event)
    act(bench, 1)
    damage(bench.store, bench.store.paths.audit_record(4), "rotten")
    assert "record 4" in bench.failure(verify(bench))
    assert bench.materialised("audit")[-1]["accepted_up_to"] == 3
    assert verify(bench, accept_up_to=4).success
