"""Every invariant can fail: a fault that breaks it is planted, and a campaign finds it."""

from collections.abc import Callable

import pytest

from laminar_core.checkpoint.alignment import BarrierAligner
from laminar_core.runtime import commits
from laminar_core.runtime.channels import InputChannel, OutputChannel
from laminar_core.storage import checkpoint_store
from laminar_core.storage.checkpoint_store import CheckpointStore
from laminar_core.storage.generations import GenerationLog
from laminar_core.testing import campaign, invariants
from laminar_core.testing.campaign import SeedReport, simulate_seeds
from laminar_core.testing.invariants import CHECKS

SEEDS = range(40)
"""Each mutant is found within so many."""


def first_violation(check: str, seeds: range = SEEDS) -> SeedReport:
    for report in simulate_seeds(seeds):
        if check in {violation.check for violation in report.violations}:
            return report
    raise AssertionError(f"{check} held for {seeds}")


Plant = Callable[[pytest.MonkeyPatch], None]


def output_of_decided_checkpoints_is_forgotten(monkeypatch):
    monkeypatch.setattr(checkpoint_store, "commits_to_redrive", lambda *_: ())


def aligned_channels_are_not_held(monkeypatch):
    """Without a restart this changes nothing: only the replay of a cut can see it."""
    monkeypatch.setattr(BarrierAligner, "holds", lambda *_: False)


def what_a_barrier_overtakes_is_not_captured(monkeypatch):
    put_first = OutputChannel._put_first
    monkeypatch.setattr(
        OutputChannel, "_put_first", lambda self, barrier: put_first(self, barrier) and []
    )


def what_was_in_flight_is_replayed_behind_new_data(monkeypatch):
    monkeypatch.setattr(InputChannel, "restore", lambda *_: None)


def failed_commits_are_not_tried_again(monkeypatch):
    monkeypatch.setattr(commits.CommitQueue, "tick", lambda _: None)


def recovery_takes_longer_than_it_may(monkeypatch):
    monkeypatch.setattr(invariants, "RECOVERED_WITHIN_MS", 0)


def older_checkpoints_lose_a_file(monkeypatch):
    record_outcome = CheckpointStore.record_outcome

    def delete_first(self, record):
        record_outcome(self, record)
        for checkpoint_id in self.completed_ids()[:1]:
            for file in self.read_manifest(checkpoint_id).files()[:1]:
                self.objects.delete(self.paths.absolute(file.path))

    monkeypatch.setattr(CheckpointStore, "record_outcome", delete_first)


def nobody_looks_for_a_newer_owner(monkeypatch):
    monkeypatch.setattr(GenerationLog, "check_owner", lambda *_: None)


def ids_start_again(monkeypatch):
    monkeypatch.setattr(CheckpointStore, "highest_checkpoint_id", lambda _: None)
    record_trigger = CheckpointStore.record_trigger
    monkeypatch.setattr(
        CheckpointStore, "record_trigger", lambda self, record: record_trigger(self, record) or True
    )


MUTANTS: list[tuple[str, Plant]] = [
    ("exactly-once", output_of_decided_checkpoints_is_forgotten),
    ("consistent-cut", aligned_channels_are_not_held),
    ("consistent-cut", what_a_barrier_overtakes_is_not_captured),
    ("consistent-cut", what_was_in_flight_is_replayed_behind_new_data),
    ("liveness", failed_commits_are_not_tried_again),
    ("liveness", recovery_takes_longer_than_it_may),
    ("nothing-referenced-is-deleted", older_checkpoints_lose_a_file),
    ("one-owner", nobody_looks_for_a_newer_owner),
    ("ids-never-reused", ids_start_again),
]


@pytest.mark.parametrize(
    ("check", "plant"), MUTANTS, ids=[f"{check}-{plant.__name__}" for check, plant in MUTANTS]
)
def test_a_planted_fault_is_found(check: str, plant: Plant, monkeypatch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(campaign, "TURNS_MAX", 8_000)
    report = first_violation(check)
    assert any("CHECK" in line and check in line for line in report.trace)


def test_every_check_has_a_planted_fault() -> None:
    assert {check for check, _ in MUTANTS} == CHECKS.keys()
