"""One corruption at a time: the campaign holds, and it would notice if it did not."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from laminar_core.driver.recovery import trust
from laminar_core.store import bases, checkpoint_parts
from laminar_core.store.verification import VerifyReport
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.worker.deployment import RestoredState
from verification.corruption import KINDS, class_of, corrupt
from verification.corruption_campaign import (
    JOBS,
    Lab,
    Verdict,
    make_lab,
    try_corruption,
    try_corruptions,
)

CORRUPTIONS = 75
FINISH_EVERY = 30


@pytest.fixture(scope="module")
def labs() -> dict[str, Lab]:
    return {name: make_lab(name) for name in ("windows", "copies")}


# One test for both: spread over processes, each would run the campaign.
@pytest.mark.large
def test_each_is_harmless_or_recovered_from_and_they_are_of_every_kind() -> None:
    verdicts: list[Verdict] = list(try_corruptions(range(CORRUPTIONS), FINISH_EVERY))
    assert [v.as_dict() for v in verdicts if v.outcome == "violation"] == []
    outcomes = Counter(v.outcome for v in verdicts)
    assert outcomes["recovered"] > CORRUPTIONS // 20
    assert {v.corruption.kind for v in verdicts} == set(KINDS)
    objects = {v.corruption.object_class for v in verdicts}
    assert {"manifest", "state", "shared", "in-flight", "base", "claim", "commit"} <= objects
    assert {"retention", "deletion marker", "pin"} <= objects
    assert {v.job for v in verdicts} == set(JOBS)


@pytest.mark.large
def test_the_store_has_what_a_real_one_has(labs: dict[str, Lab]) -> None:
    """Generations, a step back with orphans, rows in flight, files of several checkpoints."""
    for lab in labs.values():
        ids = sorted(lab.objects)
        assert len(ids) >= 6
        assert ids != list(range(1, len(ids) + 1)), "no step back has left orphans"
        assert any(where.startswith("in flight") for where in lab.truth[ids[-1]])
    shared = Counter(key for keys in labs["windows"].objects.values() for key in keys)
    assert max(n for key, n in shared.items() if class_of(key) == "shared") > 1


def test_if_nothing_is_whole_it_is_refused_and_a_fresh_start_is_exact(labs: dict[str, Lab]) -> None:
    lab = labs["copies"]
    rotten = lab.disk.copy()
    for checkpoint_id in lab.objects:
        rotten.put(f"simulated/checkpoints/{checkpoint_id:010}/manifest.json", b"rot")
    verdict = try_corruption(replace(lab, disk=rotten, objects={}, truth={}), 3, finish=True)
    assert verdict.outcome == "refused"


def trusting(objects, paths, manifest) -> VerifyReport:
    del objects, paths
    return VerifyReport(manifest.checkpoint_id, ())


def unverified(objects, paths, ref) -> bytes:
    return objects.get(paths.absolute(ref.path)) or b""


class TestItWouldNotice:
    """The campaign notices a fault in the code, with the same seeds."""

    @staticmethod
    def violations(lab: Lab, seeds: range) -> list[str]:
        tried = (try_corruption(lab, seed) for seed in seeds)
        return [v.problem for v in tried if v.outcome == "violation"]

    def test_files_that_nobody_verifies(self, labs, monkeypatch) -> None:
        monkeypatch.setattr(trust, "verify_files", trusting)
        monkeypatch.setattr(RestoredState, "verify_rest", lambda _: None)
        monkeypatch.setattr(checkpoint_parts, "read_verified", unverified)
        assert self.violations(labs["copies"], range(40))

    def test_files_that_only_workers_verify(self, labs, monkeypatch) -> None:
        """They find the damage, and the driver does not believe them."""
        monkeypatch.setattr(trust, "verify_files", trusting)
        assert self.violations(labs["copies"], range(40))

    def test_bases_of_which_there_is_no_copy(self, labs, monkeypatch) -> None:
        monkeypatch.setattr(
            bases, "read_base", lambda objects, paths, n: bases._read(objects, paths.base(n), n)
        )
        monkeypatch.setattr("laminar_core.store.generations.read_base", bases.read_base)
        assert self.violations(labs["copies"], range(60))


def test_equal_seeds_damage_in_equal_ways() -> None:
    disk = SimulatedDisk()
    for key in ("j/checkpoints/0000000001/manifest.json", "j/generations/0000000001.base.json"):
        disk.put(key, key.encode())
    for seed in range(30):
        one, two = disk.copy(), disk.copy()
        assert corrupt(one, Random(seed)) == corrupt(two, Random(seed))
        assert (one._objects, one.special) == (two._objects, two.special)
