import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.records.manifest import FileRef
from laminar_core.store.verification import compare_sizes, read_verified, verify_files
from laminar_core.testing.faulty_store import FaultyStore
from tests.records.manifests import unaligned
from tests.store.stores import complete, damage, open_job

DAMAGE = {
    "missing": ErrorCode.OBJECT_MISSING,
    "torn": ErrorCode.LENGTH_DIFFERS,
    "longer": ErrorCode.LENGTH_DIFFERS,
    "rotten": ErrorCode.DIGEST_DIFFERS,
}


@pytest.fixture
def store():
    return open_job()


def first_file(written) -> FileRef:
    return written.files()[0]


@pytest.mark.parametrize(("how", "code"), DAMAGE.items())
def test_damage_is_found_and_named_before_anything_is_decoded(store, how, code):
    ref = first_file(complete(store, 1, 1))
    damage(store, store.paths.absolute(ref.path), how)
    with pytest.raises(CorruptCheckpointError, match=ref.path) as caught:
        read_verified(store.objects, store.paths, ref)
    assert caught.value.code is code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", DAMAGE)
def test_the_report_lists_every_file_and_what_is_wrong(store, how):
    written = complete(store, 1, 1)
    ref = first_file(written)
    damage(store, store.paths.absolute(ref.path), how)
    report = verify_files(store.objects, store.paths, written)
    assert [part.path for part in report.parts] == [file.path for file in written.files()]
    assert [part.problem is None for part in report.parts] == [False, True]
    assert report.problem is not None
    assert ref.path in report.problem


def test_a_whole_checkpoint_has_no_problem(store):
    report = verify_files(store.objects, store.paths, complete(store, 1, 1))
    assert report.problem is None
    assert [part.size_bytes for part in report.parts] == [
        store.objects.size(store.paths.absolute(part.path)) for part in report.parts
    ]


@pytest.mark.parametrize(("how", "said"), {"missing": "is missing", "torn": "instead of"}.items())
def test_lengths_tell_what_is_missing_or_torn_without_reading(store, how, said):
    written = complete(store, 1, 1)
    ref = first_file(written)
    damage(store, store.paths.absolute(ref.path), how)
    watched = FaultyStore(store.objects)
    report = compare_sizes(watched, store.paths, written)
    assert [part.path for part in report.parts] == [file.path for file in written.files()]
    assert [part.problem is None for part in report.parts] == [False, True]
    assert report.problem is not None
    assert report.problem.startswith(ref.path)
    assert said in report.problem
    assert {verb for verb, _ in watched.calls} == {"size"}


def test_inflight_data_counts(store):
    whole = unaligned()
    report = verify_files(store.objects, store.paths, whole)
    assert [part.path for part in report.parts[-2:]] == [e.path for e in whole.inflight_data]
    assert all(part.problem is not None for part in report.parts[-2:])
