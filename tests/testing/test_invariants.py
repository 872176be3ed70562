"""Every invariant can fail: a fault that breaks it is planted, and a campaign finds it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from laminar_core.driver import commits
from laminar_core.driver.supervisor import Supervisor
from laminar_core.operators.aggregation import WindowAggregator
from laminar_core.protocol.alignment import BarrierAligner
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.protocol.links import LinkWatch
from laminar_core.records.audit import START, follow
from laminar_core.store import manifests
from laminar_core.store.attempts import Attempts
from laminar_core.store.audit_log import AuditLog
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.claims import Claims
from laminar_core.testing import campaign, invariants
from laminar_core.testing.campaign import SeedReport, draw, simulate_setting
from laminar_core.testing.disaster_kinds import KINDS
from laminar_core.testing.invariants import CHECKS, Evidence
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.store_disasters import STORE_KINDS
from laminar_core.worker import segments
from laminar_core.worker.channels import InputChannel, OutputChannel

SEEDS = range(60)
"""Each mutant is found within so many."""


def first_violation(check: str, kinds: tuple[str, ...], likely: int = 0) -> SeedReport:
    """Return a run that violates the check; ``likely`` is the seed that is tried first."""
    losses = tuple(kind for kind in kinds if kind in STORE_KINDS)
    others = tuple(kind for kind in kinds if kind in KINDS)
    for seed in (likely, *SEEDS):
        setting = replace(draw(seed), disasters=others, losses=losses)
        report = simulate_setting(setting, SCENARIOS[setting.scenario])
        if check in {violation.check for violation in report.violations}:
            return report
    raise AssertionError(f"{check} held for {SEEDS} with {kinds}")


Plant = Callable[[pytest.MonkeyPatch], None]


def windows_are_empty_after_a_restart(monkeypatch):
    monkeypatch.setattr(WindowAggregator, "restore", lambda *_: None)


def aligned_channels_are_not_held(monkeypatch):
    """Without a restart this changes nothing: only the replay of a cut can see it."""
    monkeypatch.setattr(BarrierAligner, "holds", lambda *_: False)


def what_a_barrier_overtakes_is_not_captured(monkeypatch):
    put_first = OutputChannel._put_first
    monkeypatch.setattr(
        OutputChannel, "_put_first", lambda self, barrier: put_first(self, barrier) and []
    )


def what_was_in_flight_is_not_replayed(monkeypatch):
    monkeypatch.setattr(InputChannel, "restore", lambda *_: None)


def failed_commits_are_not_tried_again(monkeypatch):
    monkeypatch.setattr(commits.CommitQueue, "tick", lambda _: None)


def recovery_takes_longer_than_it_may(monkeypatch):
    monkeypatch.setattr(invariants, "RECOVERED_WITHIN_MS", 0)


def a_merge_that_failed_is_never_tried_again(monkeypatch):
    """As a chain is refused before the merge is submitted; it fails at once, to be found soon."""
    monkeypatch.setattr(segments, "CHAIN_FACTOR_MAX", 1)
    monkeypatch.setattr(segments.SegmentWriter, "_compact", lambda *_: None)
    monkeypatch.setattr(invariants, "ATTEMPTS_MAX", 15)  # More than ever fail without it.


def older_checkpoints_lose_a_file(monkeypatch):
    record_outcome = Attempts.record_outcome

    def delete_first(self, record):
        record_outcome(self, record)
        store = CheckpointStore(self._objects, self._paths.job)
        for checkpoint_id in store.manifests.ids()[:1]:
            for file in store.manifests.read(checkpoint_id).files()[:1]:
                store.objects.delete(store.paths.absolute(file.path))

    monkeypatch.setattr(Attempts, "record_outcome", delete_first)


def nobody_looks_for_a_newer_owner(monkeypatch):
    monkeypatch.setattr(Claims, "check_owner", lambda *_: None)


def ids_start_again(monkeypatch):
    monkeypatch.setattr(Attempts, "highest_id", lambda _: None)
    record_trigger = Attempts.record_trigger
    monkeypatch.setattr(
        Attempts, "record_trigger", lambda self, record: record_trigger(self, record) or True
    )


def nobody_writes_the_audit_log(monkeypatch):
    monkeypatch.setattr(AuditLog, "write", lambda _, entry: follow(START, entry))


def claims_are_not_read_back(monkeypatch):
    monkeypatch.setattr(Claims, "check_claim", lambda *_: None)


def who_looks_for_the_store_makes_it(monkeypatch):
    check_claim = Claims.check_claim

    def make_and_check(self, generation):
        self._objects.create()
        check_claim(self, generation)

    monkeypatch.setattr(Claims, "check_claim", make_and_check)


def workers_prove_nothing(monkeypatch):
    """And nobody looks for the files that they name."""
    monkeypatch.setattr(Claims, "sha256", lambda *_: "0" * 64)
    monkeypatch.setattr(Claims, "own_sha256", lambda *_: "0" * 64)
    monkeypatch.setattr(manifests, "damage_by_listing", lambda *_: ())


def a_driver_that_gives_up_says_that_it_was_stopped(monkeypatch):
    monkeypatch.setattr(Supervisor, "_ending", lambda *_: "stopped")


def a_missing_connection_is_given_up_at_once(monkeypatch):
    monkeypatch.setattr(LinkWatch, "_is_missing", gives_up)


def gives_up(self, seen, now_ms):
    missing = self.broken(seen) and seen.open < len(self._peers)
    self._down_since_ms = now_ms if missing else None
    self._down_max_ms = -1.0


LIKELY: dict[Plant, int] = {
    windows_are_empty_after_a_restart: 7,
    what_a_barrier_overtakes_is_not_captured: 6,
    failed_commits_are_not_tried_again: 1,
    a_merge_that_failed_is_never_tried_again: 11,
    ids_start_again: 9,
    aligned_channels_are_not_held: 16,
}
"""Seeds that found a mutant when others did not; new scenarios change what a seed stands for."""


MUTANTS: list[tuple[str, Plant, tuple[str, ...]]] = [
    ("exactly-once", windows_are_empty_after_a_restart, ("worker-crash", "worker-crash")),
    ("consistent-cut", aligned_channels_are_not_held, ()),
    ("consistent-cut", what_a_barrier_overtakes_is_not_captured, ()),
    ("consistent-cut", what_was_in_flight_is_not_replayed, ()),
    ("liveness", failed_commits_are_not_tried_again, ("sink-error", "sink-error")),
    ("checkpoints-complete", a_merge_that_failed_is_never_tried_again, ()),
    ("liveness", recovery_takes_longer_than_it_may, ()),
    ("nothing-referenced-is-deleted", older_checkpoints_lose_a_file, ()),
    ("one-owner", nobody_looks_for_a_newer_owner, ("zombie-in-store-call",)),
    ("ids-never-reused", ids_start_again, ("zombie",)),
    ("audited", nobody_writes_the_audit_log, ()),
    ("own-store-only", claims_are_not_read_back, ("store-away",)),
    ("own-store-only", claims_are_not_read_back, ("store-replaced",)),
    ("own-store-only", who_looks_for_the_store_makes_it, ("store-away",)),
    ("nothing-referenced-is-deleted", workers_prove_nothing, ("store-unshared",)),
    ("links-mend", a_missing_connection_is_given_up_at_once, ("silent-link",)),
    ("store-recovers", a_driver_that_gives_up_says_that_it_was_stopped, ("store-unshared",)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("check", "plant", "kinds"),
    MUTANTS,
    ids=["-".join((check, plant.__name__, *kinds)) for check, plant, kinds in MUTANTS],
)
def test_a_planted_fault_is_found(
    check: str, plant: Plant, kinds: tuple[str, ...], monkeypatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(campaign, "TURNS_MAX", 8_000)
    report = first_violation(check, kinds, LIKELY.get(plant, 0))
    assert any("CHECK" in line and check in line for line in report.trace)


@pytest.mark.large
def test_aligned_checkpoints_may_expire_behind_more_work_than_their_timeout(monkeypatch) -> None:
    """14 s of work are before a barrier that may take 2 s, as seed 50003 found."""
    excused = Evidence.expires_on_purpose.fget
    seen: list[Evidence] = []
    monkeypatch.setattr(Evidence, "expires_on_purpose", property(seen.append))
    checkpoint = CoordinatorConfig(
        interval_ms=30, timeout_ms=2_000, max_concurrent=3, tolerable_failures=None
    )
    slow = replace(draw(0), scenario="rows-by-key", parallelism=1, row_ms=12.0, slow_workers=1)
    setting = replace(slow, checkpoint=checkpoint, disasters=(), losses=())
    report = simulate_setting(setting, SCENARIOS[setting.scenario])
    assert {violation.check for violation in report.violations} == {"checkpoints-complete"}
    assert excused(seen[0])


def test_every_check_has_a_planted_fault() -> None:
    assert {check for check, *_ in MUTANTS} == CHECKS.keys()
