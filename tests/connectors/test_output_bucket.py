"""Output in a bucket: nobody sees a file before its commit, whatever dies or is lost (ADR-0104)."""

import json
from dataclasses import dataclass, replace
from urllib.parse import quote

import pytest

from laminar_core.connectors.outlook import Committable, Committed, Lost
from laminar_core.connectors.output_bucket import OutputBucket
from laminar_core.connectors.output_place import StagedOutput, Withdrawal
from laminar_core.connectors.parquet_commit import committed_objects, read_committed
from laminar_core.connectors.parquet_sink import ParquetSink
from laminar_core.errors import ConfigurationError, CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.opening import open_object_store
from laminar_core.objectstore.s3_requests import S3Requests
from laminar_core.objectstore.s3_staged import StagedUploads
from laminar_core.operators.base import SubtaskContext
from tests.connectors.output_runs import (
    INTERVAL,
    ROWS,
    SCHEMA,
    Death,
    Job,
    batch,
    committed,
    open_writer,
    stage,
)
from tests.objectstore.fault_proxy import Effect, Fault, FaultProxy
from tests.objectstore.s3_servers import BUCKET, S3Server, client


@pytest.fixture
def uri(s3_server: S3Server) -> str:
    return s3_server.uri()


@pytest.fixture
def sink(uri: str) -> ParquetSink:
    sink = ParquetSink(uri)
    sink.check(SCHEMA)
    return sink


def parts(uri: str) -> list[str]:
    """The files that a reader of the plain prefix sees."""
    return [name for name in open_object_store(uri).children("") if name.startswith("part-")]


def pending(uri: str) -> list[str]:
    return [key for key, _ in OutputBucket(uri)._uploads.pending("")]


def test_nobody_sees_rows_before_the_commit_and_everybody_after_it(sink, uri):
    outputs = stage(sink, 0, 5) + stage(sink, 5, 9, subtask=1)
    assert parts(uri) == committed(uri) == []
    assert len(pending(uri)) == 2
    for _ in range(2):  # Idempotent.
        sink.committer().commit(1, outputs)
        assert committed(uri) == list(range(9))
        assert pending(uri) == []
    place = uri.partition("?")[0]
    assert committed_objects(uri) == [f"{place}/{name}" for name in parts(uri)]


@pytest.mark.parametrize("folder", ["day=2026-01-31", "my totals", "a%b"])
def test_the_names_of_committed_objects_are_not_quoted(s3_server, folder):
    place, _, parameters = s3_server.uri().partition("?")
    sink = ParquetSink(f"{place}/{quote(folder)}?{parameters}")
    sink.check(SCHEMA)
    sink.committer().commit(1, stage(sink, 0, 5))
    [name] = committed_objects(str(sink.path))
    assert name == f"{place}/{folder}/part-0000000001-00000-000000-g1.parquet"
    bucket, _, key = name.removeprefix("s3://").partition("/")
    assert client(s3_server.endpoint).head_object(Bucket=bucket, Key=key)


def test_what_could_be_committed_is_known_before_anything_is_restored(sink, uri):
    outputs = stage(sink, 0, 5)
    assert sink.committer().outlook(1, outputs) == Committable()
    sink.committer().commit(1, outputs)
    assert sink.committer().outlook(1, outputs) == Committed()
    lost = stage(sink, 5, 9, checkpoint_id=2)
    output = StagedOutput.from_json(lost[0])
    OutputBucket(uri)._uploads.abort(output.final, output.upload.upload_id)
    outlook = sink.committer().outlook(2, lost)
    assert isinstance(outlook, Lost)
    assert (outlook.rows, outlook.gone) == (4, list(lost))
    with pytest.raises(CorruptCheckpointError) as caught:
        sink.committer().commit(2, lost)
    assert caught.value.code is ErrorCode.OBJECT_MISSING
    assert committed(uri) == list(range(5))


def test_rows_of_a_checkpoint_that_was_given_up_are_committed_once(sink, uri):
    writer = open_writer(sink, 1)
    writer.write(batch(0, 5))
    first = writer.snapshot(1)().committables
    writer.write(batch(5, 9))
    both = writer.snapshot(2)().committables
    assert len(both) == 2
    sink.committer().commit(2, both)
    sink.committer().commit(2, both)
    assert committed(uri) == list(range(9))
    assert first[0] in both


def test_output_of_older_generations_is_discarded_and_taken_back(sink, uri):
    sink.committer().commit(1, stage(sink, 0, 5))
    sink.committer().commit(2, stage(sink, 5, 9, checkpoint_id=2))
    old, own = (stage(sink, 9, 12, checkpoint_id=3, generation=g) for g in (1, 2))
    sink.committer().withdraw_after(1, 2)
    sink.committer().discard_uncommitted(2)
    assert committed(uri) == list(range(5))
    assert pending(uri) == [StagedOutput.from_json(own[0]).final]
    with pytest.raises(CorruptCheckpointError):  # A driver that slept.
        sink.committer().commit(3, old)
    sink.committer().commit(3, own)
    assert committed(uri) == [*range(5), *range(9, 12)]
    assert sink.committer().last_committed() == 3


def test_files_that_a_driver_lists_after_their_withdrawal_stay_withdrawn(sink, uri, monkeypatch):
    committer, go_on = sink.committer(), OutputBucket.write_manifest
    committer.commit(1, stage(sink, 0, 5))

    def succeeded(*arguments):
        monkeypatch.undo()
        for _ in range(2):  # Its successor falls back behind the checkpoint, and falls back again.
            committer.discard_uncommitted(2)
            committer.withdraw_after(1, 2)
        return go_on(*arguments)

    monkeypatch.setattr(OutputBucket, "write_manifest", succeeded)
    committer.commit(2, stage(sink, 5, 9, checkpoint_id=2))
    assert sink.place.withdrawals() == [Withdrawal(2, 1, 2)]
    assert committed(uri) == list(range(5))
    assert committer.last_committed() == 1
    committer.commit(3, stage(sink, 5, 7, checkpoint_id=3, generation=2))
    committer.withdraw_after(0, 3)
    assert sink.place.withdrawals() == [Withdrawal(3, 0, 3)]
    assert committed(uri) == []


def test_a_commit_that_was_begun_counts_as_output(sink):
    [output] = map(StagedOutput.from_json, stage(sink, 0, 5, checkpoint_id=4))
    sink.place.publish([output])
    assert sink.committer().last_committed() == 4
    sink.committer().withdraw_after(3, 2)
    assert sink.committer().last_committed() is None


def test_output_of_another_run_is_never_replaced(sink, uri):
    sink.committer().commit(1, stage(sink, 0, 5))
    with pytest.raises(ConfigurationError, match="of another run"):
        sink.committer().commit(1, stage(sink, 100, 105))
    with pytest.raises(ConfigurationError, match="of another run"):
        sink.committer().commit(1, stage(sink, 100, 105, subtask=1))
    assert committed(uri) == list(range(5))


@pytest.mark.parametrize("asleep", ["manifest", "is_staged", "write_manifest"])
def test_two_drivers_may_carry_out_one_decision(sink, uri, monkeypatch, asleep):
    """The other one is faster, and lists each file with the checkpoint that staged it."""
    first = stage(sink, 0, 5)
    both = first + stage(sink, 5, 9, checkpoint_id=2, subtask=1)
    real = getattr(OutputBucket, asleep)

    def faster(*arguments):
        found = real(*arguments) if asleep == "is_staged" else None
        if asleep != "manifest" or arguments[1] == 2:
            monkeypatch.undo()
            sink.committer().commit(1, first)
            sink.committer().commit(2, both)
        return found if asleep == "is_staged" else real(*arguments)

    monkeypatch.setattr(OutputBucket, asleep, faster)
    sink.committer().commit(2, both)
    assert committed(uri) == list(range(9))


def test_a_prefix_of_somebody_else_is_refused_and_left_alone(uri):
    objects = open_object_store(uri)
    objects.put("notes.txt", b"mine")
    with pytest.raises(ConfigurationError, match="holds files that Laminar did not write"):
        ParquetSink(uri).check(SCHEMA)
    assert objects.list("") == ["notes.txt"]
    with pytest.raises(ConfigurationError) as caught:
        read_committed(uri)
    assert caught.value.code is ErrorCode.NO_SUCH_PATH


def test_hidden_objects_belong_to_nobody(s3_server):
    uri = s3_server.uri()
    key = uri.partition("?")[0].removeprefix(f"s3://{BUCKET}/") + "/.keep"
    client(s3_server.endpoint).put_object(Bucket=BUCKET, Key=key, Body=b"")
    ParquetSink(uri).check(SCHEMA)


def test_uploads_that_a_process_left_within_a_check_are_aborted_at_the_next_start(uri, monkeypatch):
    def died(*_arguments):
        raise Death

    with monkeypatch.context() as patch:
        patch.setattr(StagedUploads, "abort", died)
        for _ in range(2):
            with pytest.raises(Death):
                ParquetSink(uri).check(SCHEMA)
    assert pending(uri) == ["_laminar/output.json"] * 2
    sink = ParquetSink(uri)
    sink.check(SCHEMA)
    [output] = map(StagedOutput.from_json, stage(sink, 0, 5))
    sink.committer().discard_uncommitted(1)
    assert pending(uri) == [output.final]


def test_a_bucket_that_is_not_there_is_refused(uri):
    missing = uri.replace("s3://", "s3://no-", 1)
    with pytest.raises(ConfigurationError) as caught:
        ParquetSink(missing).check(SCHEMA)
    assert caught.value.code is ErrorCode.NO_SUCH_BUCKET


def test_the_parameters_of_a_bucket_may_change_between_runs(uri):
    place, _, parameters = uri.partition("?")
    assert ParquetSink(uri).describe() == ParquetSink(place).describe()
    assert parameters


@pytest.mark.parametrize(
    "upload",
    [None, "u", {}, {"upload_id": "u", "etags": []}, {"upload_id": "u", "etags": ["a\nb"]},
     {"upload_id": "", "etags": ["a"]}, {"upload_id": 7, "etags": ["a"]}],
    ids=str,
)  # fmt: skip
def test_a_committable_that_no_writer_produced_is_refused(sink, upload):
    [output] = stage(sink, 0, 5)
    with pytest.raises(CorruptCheckpointError, match="not a committable"):
        sink.committer().commit(1, [{**output, "upload": upload}])


def test_a_committable_of_a_directory_is_refused(sink, uri):
    [output] = map(StagedOutput.from_json, stage(sink, 0, 5))
    with pytest.raises(CorruptCheckpointError, match="was staged in a directory"):
        sink.committer().commit(1, [replace(output, upload=None).to_json()])
    assert committed(uri) == []


def test_a_file_of_another_length_is_not_listed(sink, uri):
    [output] = stage(sink, 0, 5)
    with pytest.raises(CorruptCheckpointError) as caught:
        sink.committer().commit(1, [{**output, "size_bytes": 7}])
    assert caught.value.code is ErrorCode.LENGTH_DIFFERS
    assert committed(uri) == []


def test_a_writer_that_ends_leaves_nothing(sink, uri):
    writer = sink.open(SubtaskContext("sink", 0, 1, 128, 1), SCHEMA)
    writer.write(batch(0, 5))
    writer.close()
    assert pending(uri) == []


@pytest.mark.parametrize(
    "operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "PutObject"]
)
def test_a_lost_answer_costs_nothing(s3_server: S3Server, proxy: FaultProxy, operation: str):
    plain = s3_server.uri()
    sink = ParquetSink(f"{plain.partition('?')[0]}?endpoint_url={proxy.endpoint}")
    sink.check(SCHEMA)
    fault = Fault(operation, Effect.LOSE_ANSWER, key="" if operation != "PutObject" else "commits")
    proxy.script(fault)
    sink.committer().commit(1, stage(sink, 0, 5))
    assert proxy.requests.count(operation) >= 2, "it was sent again"
    assert committed(plain) == list(range(5))
    manifest = json.loads(sink.place.manifest(1))
    assert [file["row_count"] for file in manifest["files"]] == [5]


@dataclass
class Wire:
    """Requests to the bucket; the process dies before the ``deadly`` one, or right after it."""

    deadly: int
    after: bool
    requests: int = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        real = S3Requests.send

        def send(requests, *args):
            self.requests += 1
            is_deadly = self.requests == self.deadly
            if is_deadly and not self.after:
                raise Death
            reply = real(requests, *args)
            if is_deadly:
                raise Death
            return reply

        patch.setattr(S3Requests, "send", send)


STEP = 8
"""From one deadly request to the next: a run has about 60."""


@pytest.mark.large
@pytest.mark.sampled(STEP)
@pytest.mark.parametrize("first", range(1, STEP + 1))
def test_death_at_any_request_leaves_exactly_the_completed_rows(s3_server, monkeypatch, first):
    """A run dies before or after one request, the next run at a later one; all recover."""
    deadly, survived = first, False
    while not survived:
        uri = s3_server.uri()
        sink = ParquetSink(uri, target_file_rows=7)
        sink.check(SCHEMA)
        job = Job(sink, frozenset({2}))
        survived = die_and_recover(job, uri, monkeypatch, Wire(deadly, after=deadly % 2 == 0))
        deadly += STEP
    assert deadly > 40


def die_and_recover(job: Job, uri: str, monkeypatch: pytest.MonkeyPatch, wire: Wire) -> bool:
    survived = True
    with monkeypatch.context() as patch:
        wire.install(patch)
        try:
            job.run()
        except Death:
            survived = False
    assert committed(uri) in [list(range(n)) for n in range(0, job.completed[1] + 1, INTERVAL)]
    job.run()
    assert committed(uri) == list(range(ROWS))
    assert len(committed_objects(uri)) == len(parts(uri))
    assert pending(uri) == []
    return survived
