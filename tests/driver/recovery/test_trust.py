"""How much of a checkpoint the driver reads before its workers do."""

import pytest

from laminar_core.driver.recovery.trust import Trust
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.damage import DamagedFile
from laminar_core.store.checkpoint_store import CheckpointStore
from laminar_core.store.file_scrub import DamageLog
from tests.store.stores import claim, complete, damage, open_job


@pytest.fixture
def store() -> CheckpointStore:
    job = open_job()
    generation = claim(job)
    for number in (1, 2):
        complete(job, number, generation)
    return job


def harm(store: CheckpointStore, checkpoint_id: int, how: str = "rotten") -> None:
    file = store.manifests.read(CheckpointId(checkpoint_id)).files()[0]
    damage(store, store.paths.absolute(file.path), how)


def trust(store: CheckpointStore, parallelism: int | None = None, **how: bool) -> Trust:
    workers = store.manifests.read(CheckpointId(2)).workers
    made = Trust(store, parallelism or workers)
    made.begin(is_automatic=how.get("is_automatic", True))
    return made


def whole(store: CheckpointStore, judge: Trust, checkpoint_id: int) -> bool:
    return judge.damage_of(store.manifests.read(CheckpointId(checkpoint_id))) is None


def test_bytes_are_left_to_the_workers_and_lengths_are_not(store: CheckpointStore) -> None:
    harm(store, 2)
    assert whole(store, trust(store), 2)
    harm(store, 2, "torn")
    assert not whole(store, trust(store), 2)


def test_what_a_person_asked_for_and_what_has_other_workers_is_read(store) -> None:
    harm(store, 2)
    assert not whole(store, trust(store, is_automatic=False), 2)
    assert not whole(store, trust(store, parallelism=9), 2)


def test_after_a_finding_that_checkpoint_and_all_older_ones_are_read(store) -> None:
    harm(store, 1)
    harm(store, 2)
    judge = trust(store)
    assert judge.withdraw_from(CheckpointId(2))
    assert not judge.withdraw_from(CheckpointId(2))
    judge.begin(is_automatic=True)
    assert not whole(store, judge, 2)
    assert not whole(store, judge, 1)
    judge.begin(is_automatic=True)
    assert whole(store, judge, 1)  # Without a newer one that was rejected.


def test_a_mark_is_no_verdict(store: CheckpointStore) -> None:
    log = DamageLog(store.objects, store.paths)
    file = DamagedFile(path="shared/x", problem="digest")
    log.record(CheckpointId(2), claim(store), (file,), 5)
    assert whole(store, trust(store), 2)
    harm(store, 2)
    assert not whole(store, trust(store), 2)
