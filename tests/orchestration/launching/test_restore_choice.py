"""How often a checkpoint is read whole before a driver runs: once by who decides, once by it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.orchestration.launching.restore_choice import WholeReads, choose
from laminar_core.protocol.recovery_facts import RestoreRequest
from laminar_core.protocol.types import CheckpointId
from laminar_core.sensors.facts.integrity_records import damage_on_record
from laminar_core.sensors.recovery.candidates import choose_by_sizes
from tests.orchestration.started import STREAM, StartedStream, line_of
from tests.sensors.recoveries import read_whole

NEWEST = {"restore": {"newest": {}}}


class Reads(StartedStream):
    """A stream, and how often each object of its store was read."""

    counts: Counter[str]

    def of(self, checkpoint_id: int) -> int:
        """How often its state was read."""
        manifest = self.store.manifests.read(CheckpointId(checkpoint_id))
        path = manifest.subtasks[0].segments[0].path
        return self.counts[self.store.paths.absolute(path)]

    def without_the_check(self, checkpoint_id: int) -> dg.ExecuteInProcessResult:
        """As ``dagster asset materialize --select payments/recovery`` does it."""
        return (
            self.definitions()
            .resolve_implicit_global_asset_job_def()
            .execute_in_process(
                asset_selection=[dg.AssetKey([STREAM, "recovery"])],
                instance=self.instance,
                partition_key=f"{checkpoint_id:010}",
                run_config={"ops": {f"{STREAM}__recovery": {"config": {"reason": "by hand"}}}},
                raise_on_error=False,
            )
        )


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    counts: Counter[str] = Counter()
    get = LocalObjectStore.get

    def counted(self: LocalObjectStore, key: str, *limits: int) -> bytes | None:
        counts[key] += 1
        return get(self, key, *limits)

    with dg.DagsterInstance.ephemeral() as instance:
        stream = Reads(instance, tmp_path)
        stream.counts = counts
        stream.play(monkeypatch)
        stream.has_run(3)
        monkeypatch.setattr(LocalObjectStore, "get", counted)
        yield stream


def test_a_recovery_reads_by_its_check_and_by_its_driver(stream) -> None:
    assert stream.recovery(3).success
    assert stream.of(3) == 2


def test_a_materialisation_without_the_check_reads_by_itself(stream) -> None:
    assert stream.without_the_check(3).success
    assert stream.of(3) == 2


def test_what_another_run_has_read_is_not_believed(stream) -> None:
    """Goal: it was whole when that run read it."""
    read_whole(stream.instance, stream.store, 3)
    stream.damage(3)
    stream.counts.clear()
    assert "sha256 differs" in line_of(stream.without_the_check(3))
    assert stream.of(3) == 1
    assert stream.living == []


@pytest.mark.parametrize(
    ("name", "config", "restored"),
    [
        ("recover", NEWEST, 3),
        ("recover", {"restore": {"checkpoint": {"number": 2}}}, 2),
        ("rollback", {"by": 1}, 2),
    ],
)
def test_a_form_reads_once_and_shows_it(stream, name, config, restored) -> None:
    assert stream.run(name, config).success
    assert stream.bases == [None, restored]
    # What is newer, and is left behind, is read when the driver runs, to say why.
    assert stream.of(restored) == 2


def test_who_has_a_driver_end_does_not_read_again_what_it_has_read(stream) -> None:
    assert stream.start("newest").success
    stream.counts.clear()
    assert stream.run("recover", {**NEWEST, "running_driver": "take_over"}).success
    assert stream.bases == [None, 3, 4]
    assert stream.of(4) == 2


def test_only_the_manifest_that_was_read_is_believed(stream) -> None:
    reads, request = WholeReads(stream.store), RestoreRequest(checkpoint_id=CheckpointId(3))
    sha256 = choose(stream.store, request, WholeReads(stream.store)).sha256
    stream.damage(3)
    reads.trust(sha256)
    assert choose(stream.store, request, reads).checkpoint_id == 3
    reads.trust(sha256[::-1])
    with pytest.raises(dg.Failure, match="sha256 differs"):
        choose(stream.store, request, reads)


def test_what_retention_deletes_is_not_reported_as_damaged(stream) -> None:
    reads = WholeReads(stream.store)
    manifest = stream.store.manifests.read(CheckpointId(3))
    stream.damage(3)
    stream.store.objects.put(stream.store.paths.deletion(CheckpointId(3)), b"{}")
    assert "is being deleted by retention" in (reads.problem_of(manifest) or "")
    assert reads.take_reports() == []


def test_what_its_check_finds_damaged_the_next_attempt_does_not_take(stream) -> None:
    """Goal: the check of a run and the sensor speak of the same records."""
    assert choose_by_sizes(stream.store, damage_on_record(stream.instance, STREAM)).manifest == (
        stream.store.manifests.read(CheckpointId(3))
    )
    path = stream.damage(3)
    stream.counts.clear()
    assert not stream.recovery(3).success
    assert (stream.of(3), stream.living) == (1, [])
    (found,) = damage_on_record(stream.instance, STREAM).values()
    assert found.paths == {path}
    next_one = choose_by_sizes(stream.store, damage_on_record(stream.instance, STREAM)).manifest
    assert next_one == stream.store.manifests.read(CheckpointId(2))
