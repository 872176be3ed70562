"""Parts of in-flight files: read alone or with their file, verified, and named if damaged."""

import pytest

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.counting_store import CountedObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import CheckpointId
from laminar_core.records.channel_entries import InflightEntry
from laminar_core.store import inflight_files
from tests.codec.inflight_files import ELEMENTS, batch, file
from tests.records.manifests import edge, inflight
from tests.store.stores import claim, damage, open_job, with_inflight, write

ID = CheckpointId(2)
PARTS = [ELEMENTS, [batch(("z", 9))], [batch(("y", 8), ("x", 7))]]


class Packed:
    """A checkpoint with three queues in one file."""

    def __init__(self) -> None:
        self.store = open_job(CountedObjectStore(MemoryObjectStore()))
        generation = claim(self.store)
        written = write(self.store, 2, generation)
        images = [file(elements, input_id=n) for n, elements in enumerate(PARTS)]
        self.file = self.store.parts.write_inflight(ID, 0, images)
        self.entries: list[InflightEntry] = []
        offset = 0
        for number, (image, elements) in enumerate(zip(images, PARTS, strict=True)):
            entry = inflight(
                path=self.file.path,
                offset=offset,
                size_bytes=len(image),
                sha256=sha256_hex(image),
                input_id=number,
                edge=edge(input_index=number),
                event_count=len(elements),
                row_count=sum(len(e.data) for e in elements if hasattr(e, "data")),
            )
            self.entries.append(entry)
            offset += len(image)
        changes = {"inflight_files": (self.file,)}
        self.manifest = with_inflight(written, *self.entries).model_copy(update=changes)
        self.store.manifests.publish(self.manifest)
        self.files = self.store.parts.inflight(self.manifest.inflight_files)

    @property
    def key(self) -> str:
        return self.store.paths.absolute(self.file.path)

    def gets(self, *entries: InflightEntry) -> tuple[int, int]:
        """Read these parts; return the requests, and the bytes that came."""
        before = self.store.objects.counts
        for entry in entries:
            assert self.files.read(entry) == PARTS[entry.input_id]
        sent = self.store.objects.counts - before
        return sent.gets, sent.bytes_down

    def change(self, place: int) -> None:
        data = bytearray(self.store.objects.get(self.key))
        data[place] ^= 1
        self.store.objects.put(self.key, bytes(data))


@pytest.fixture
def packed() -> Packed:
    return Packed()


def test_a_part_is_read_alone(packed):
    second = packed.entries[1]
    assert packed.gets(second) == (1, second.size_bytes)
    assert packed.files.schema(second).names == ["merchant", "amount"]


def test_who_reads_all_parts_reads_the_file_once(packed):
    packed.files.expect(packed.entries)
    assert packed.gets(*packed.entries) == (1, packed.file.size_bytes)
    assert packed.files._kept == {}
    assert packed.gets(packed.entries[0])[0] == 1, "one that is read again is read alone"


def test_who_reads_some_parts_reads_no_others(packed):
    first, *rest = packed.entries
    packed.files.expect(rest)
    assert packed.gets(*rest) == (2, packed.file.size_bytes - first.size_bytes)


def test_a_file_that_is_too_long_to_be_kept_is_read_by_its_parts(packed, monkeypatch):
    monkeypatch.setattr(inflight_files, "KEPT_BYTES_MAX", packed.file.size_bytes - 1)
    packed.files.expect(packed.entries)
    assert packed.gets(*packed.entries) == (3, packed.file.size_bytes)


@pytest.mark.parametrize("whole", [False, True])
def test_a_damaged_part_is_named_by_its_channel_and_others_can_be_read(packed, whole):
    packed.change(packed.entries[1].offset + 40)
    if whole:
        packed.files.expect(packed.entries)
        with pytest.raises(
            CorruptCheckpointError, match=r"inflight_0\.buf is not what was written"
        ):
            packed.files.read(packed.entries[0])
        return
    assert packed.gets(packed.entries[0], packed.entries[2])[0] == 2
    with pytest.raises(CorruptCheckpointError, match="input 1 of window subtask 0, from") as caught:
        packed.files.read(packed.entries[1])
    assert caught.value.code is ErrorCode.DIGEST_DIFFERS


@pytest.mark.parametrize("how", ["torn", "longer"])
def test_a_file_of_another_length_is_not_what_was_written_wherever_a_part_is(packed, how):
    damage(packed.store, packed.key, how)
    for entry in packed.entries:
        with pytest.raises(CorruptCheckpointError, match="bytes instead of") as caught:
            packed.files.read(entry)
        assert caught.value.code is ErrorCode.LENGTH_DIFFERS


def test_a_file_that_is_gone_is_missing(packed):
    packed.store.objects.delete(packed.key)
    with pytest.raises(CorruptCheckpointError, match="is missing") as caught:
        packed.files.read(packed.entries[1])
    assert caught.value.code is ErrorCode.OBJECT_MISSING


def test_a_part_of_another_queue_is_not_taken_for_this_one(packed):
    one, two = packed.entries[:2]
    place = {"offset": two.offset, "size_bytes": two.size_bytes, "sha256": two.sha256}
    with pytest.raises(CorruptCheckpointError, match="its input_id is 1, the manifest says 0"):
        packed.files.read(one.model_copy(update=place))


def test_the_report_names_the_channels_that_are_lost(packed):
    assert packed.store.verify(ID).problem is None
    packed.change(packed.entries[0].offset + 40)
    problem = packed.store.verify(ID).problem
    assert problem is not None
    assert problem.endswith(
        "; 1 of its 3 parts are damaged: input 0 of window subtask 0, from source 1 to keyed 0"
    )


def test_the_report_names_what_was_cut_off(packed):
    last = packed.entries[2]
    packed.store.objects.put(packed.key, packed.store.objects.get(packed.key)[: last.offset])
    problem = packed.store.verify(ID).problem
    assert problem is not None
    assert problem.endswith("1 of its 3 parts are damaged: " + last.channel)
