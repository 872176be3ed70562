"""Messages come back as they were, and garbage is refused in one line."""

import json

import pytest

from laminar_core.errors import CorruptCheckpointError, ProtocolError
from laminar_core.link.messages import (
    Abort,
    AddSplits,
    AlignmentTimeout,
    Alive,
    Announce,
    Begin,
    Cancel,
    Completed,
    FileUnreadable,
    Finish,
    GreetingsMissing,
    Hold,
    LoopReport,
    LoopsOver,
    LoopWave,
    Peer,
    Peers,
    Ping,
    Progress,
    Register,
    Renew,
    Restoring,
    Resume,
    SnapshotAck,
    SnapshotDecline,
    Trigger,
    WaitingChannel,
    WaitingCheckpoint,
    WaitingVertex,
    WatermarkTarget,
    WorkerFailed,
    decode_splits,
    decode_to_coordinator,
    decode_to_worker,
    encode,
)
from laminar_core.link.versions import own_versions
from laminar_core.protocol.termination import LoopCounts
from laminar_core.protocol.types import CheckpointBarrier, CheckpointId, CheckpointKind
from laminar_core.protocol.waiting import WaitsFor
from laminar_core.records.record import FileRef
from tests.records.manifests import file_ref, manifest, subtask

G = {"generation": 3}
TO_COORDINATOR = [
    Register(
        **G,
        worker=1,
        pid=7,
        host="h",
        endpoint="ipc:///x",
        public_key="",
        claim_sha256=None,
        versions=own_versions(),
        open_files_max=1_024,
    ),
    GreetingsMissing(**G, worker=1, senders=(0, 2)),
    Progress(
        **G,
        worker=0,
        rows_in=2**60,
        rows_out=0,
        rows_late=1,
        flowing=True,
        watermark_us=-(2**63),
        drained=True,
        given_up=3,
    ),
    Alive(**G, worker=1, operator_id="window", operator_ms=5.0, step_ms=7.0),
    Restoring(**G, worker=1, files=3, files_total=7, size_bytes=2**40, bytes_total=2**41),
    WaitingCheckpoint(
        **G,
        worker=1,
        checkpoint_id=9,
        vertices=(
            WaitingVertex(
                vertex_id="window",
                waits_for=WaitsFor.BARRIERS,
                channels=(WaitingChannel(upstream="source", sender=0),),
                channel_count=5,
            ),
        ),
    ),
    FileUnreadable(
        **G,
        worker=1,
        operator_id="window",
        file=FileRef(path="shared/window/1.seg", size_bytes=7, sha256="0" * 64),
    ),
    SnapshotAck(
        **G,
        worker=1,
        checkpoint_id=9,
        entries=(subtask("window", 1, file_ref(), properties={"a": [1, None, "ü"]}),),
        alignment=manifest().alignment,
    ),
    SnapshotDecline(**G, worker=1, checkpoint_id=9, cause="failed", reason="disk full"),
    LoopReport(
        **G,
        worker=1,
        round_number=4,
        loops={"retry": LoopCounts(outside_ended=True, produced=2**40, consumed=7)},
    ),
    WorkerFailed(**G, worker=1, code="null-key", reason="row 3", restart_helps=False),
]
TO_WORKER = [
    Renew(**G, operators=(("window", 1),)),
    AddSplits(**G, operator_id="in", splits="", complete=True),
    WatermarkTarget(**G, time_us=-(2**63)),
    Begin(**G),
    Peers(**G, peers=(Peer(endpoint="tcp://1.2.3.4:5", public_key="k"),)),
    Trigger(
        **G,
        checkpoint_id=9,
        kind=CheckpointKind.SAVEPOINT,
        created_ms=5,
        alignment_timeout_ms=None,
        unaligned=False,
    ),
    AlignmentTimeout(**G, checkpoint_id=9),
    Announce(**G, checkpoint_id=9),
    Abort(**G, checkpoint_id=9),
    Completed(**G, checkpoint_id=9),
    LoopWave(**G, round_number=4),
    LoopsOver(**G, loops=("retry", "settle")),
    Ping(**G),
    Hold(**G, held=True),
    Resume(**G),
    Finish(**G),
    Cancel(**G),
]
named = pytest.mark.parametrize("message", TO_COORDINATOR, ids=lambda message: message.type)


@named
def test_what_a_worker_says_comes_back_as_it_was(message) -> None:
    assert decode_to_coordinator(encode(message)) == message


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: message.type)
def test_what_the_coordinator_says_comes_back_as_it_was(message) -> None:
    assert decode_to_worker(encode(message)) == message
    assert decode_to_worker(encode(message)).worker == -1


@named
def test_no_direction_takes_messages_of_the_other(message) -> None:
    with pytest.raises(ProtocolError):
        decode_to_worker(encode(message))


def changed(**changes) -> bytes:
    message = WorkerFailed(**G, worker=1, code="null-key", reason="row 3", restart_helps=False)
    said = json.loads(encode(message))
    return json.dumps(said | changes).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"type": "register"',
        changed(type="unheard-of"),
        changed(type=None),
        changed(surprise=1),
        changed(generation="many"),
        changed(code=None),
    ],
)
def test_garbage_is_a_protocol_error_of_one_line(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message") as caught:
        decode_to_coordinator(data)
    assert "\n" not in str(caught.value)
    with pytest.raises(ProtocolError, match="not a message"):
        decode_to_worker(data)


@pytest.mark.parametrize("text", ["a", "Ω", "bm90IGEgdGFibGU=", "bm90IG EgdGFibGU="])
def test_a_text_that_has_no_splits_is_refused(text: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode_splits(text)


def test_a_trigger_becomes_the_barrier_that_it_describes() -> None:
    trigger = Trigger(
        **G,
        checkpoint_id=9,
        kind=CheckpointKind.MANUAL,
        created_ms=5,
        alignment_timeout_ms=250,
        unaligned=True,
    )
    assert trigger.barrier() == CheckpointBarrier(
        CheckpointId(9), CheckpointKind.MANUAL, 5, 250, unaligned=True
    )
