"""Checkpoints as text: what differs is shown, what is long is shortened, nothing is misread."""

import pytest

from laminar_core.cli.views import (
    VALUE_LENGTH_MAX,
    print_manifest,
    print_report,
    print_summaries,
)
from laminar_core.protocol.types import WATERMARK_END_US, CheckpointId
from laminar_core.records.channel_entries import AlignmentEntry, ChannelAlignment, ChannelEntry
from laminar_core.store.summaries import CheckpointSummary
from laminar_core.store.verification import PartReport, VerifyReport
from tests.records.manifests import edge, file_ref, inflight, manifest, subtask, unaligned


def shown(capsys: pytest.CaptureFixture, **changes) -> str:
    print_manifest(manifest(**changes))
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())


def with_properties(**values) -> dict:
    """Subtasks whose properties are these, one value per subtask."""
    pairs = [{name: both[n] for name, both in values.items()} for n in (0, 1)]
    return {
        "subtasks": (
            *(subtask("window", n, properties=pairs[n]) for n in (0, 1)),
            *(subtask("sink", n) for n in (0, 1)),
        )
    }


def waiting(vertex_id: str, index: int, watermark_us: int | None) -> AlignmentEntry:
    return AlignmentEntry(
        vertex_id=vertex_id,
        subtask_index=index,
        mode="aligned",
        start_delay_ms=0,
        alignment_ms=0,
        watermark_us=watermark_us,
        channels=(ChannelEntry(input_id=0, watermark_us=watermark_us, idle=False),),
    )


def test_a_checkpoint_is_one_screen(capsys) -> None:
    parts = (
        subtask(
            "window",
            0,
            file_ref().model_copy(update={"row_count": 12_345}),
            properties={"late": 3, "size": None},
        ),
        subtask("window", 1, properties={"late": 4, "size": None}),
        subtask("sink", 0),
        subtask("sink", 1, sync_ms=1.25),
    )
    assert shown(capsys, subtasks=parts).splitlines() == [
        "checkpoint 7 of payments: periodic, aligned, generation 2, parent 6",
        (
            "triggered 2023-11-14 22:13:20, complete after 40 ms, 1.2KiB (1.2KiB new), "
            "written by 0.1.0"
        ),
        "event time of keyed: 1970-01-01 00:00:01.000000",
        "",
        "operator  subtask  files    rows    size  written  sync ms  async ms",
        "window          0      1  12,345  1.2KiB   1.2KiB     0.50      12.2",
        "window          1      0       0      0B       0B     0.50      12.2",
        "sink            0      0       0      0B       0B     0.50      12.2",
        "sink            1      0       0      0B       0B     1.25      12.2",
        "",
        "operator  property  value, by subtask if they differ",
        "window    late      3 | 4",
        "          size      null",
    ]


def test_what_was_in_flight_is_listed_by_queue(capsys) -> None:
    logged = inflight(
        path="x.buf",
        edge=edge(upstream="tail", downstream="head", feedback=True),
        event_count=1_000,
        row_count=2_000,
        size_bytes=1_000_000,
    )
    print_manifest(
        unaligned("switched", inflight_data=(inflight(edge=edge(upstream="in")), logged))
    )
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "checkpoint 7 of payments: periodic, switched, generation 2, parent 6"
    start = lines.index("", 5) + 1
    assert lines[start : start + 3] == [
        "operator  subtask  queue in flight  from               to       events   rows      size",
        "window          0  input 1          in 1               keyed 0       3    200       99B",
        "window          0  input 1          tail 1 (fed back)  head 0    1,000  2,000  976.6KiB",
    ]


def test_without_properties_there_is_no_table_of_them(capsys) -> None:
    assert "property" not in shown(capsys, subtasks=with_properties()["subtasks"])


def test_a_long_value_is_cut_and_says_so(capsys) -> None:
    long = list(range(100))
    line = shown(capsys, **with_properties(groups=(long, long))).splitlines()[-1]
    value = line.removeprefix("window    groups    ")
    assert len(value) == VALUE_LENGTH_MAX
    assert value.startswith("[0, 1, 2")
    assert value.endswith("…")


def test_brackets_are_no_markup(capsys) -> None:
    text = shown(capsys, **with_properties(note=("[red]x[/]", "[red]x[/]")))
    assert '"[red]x[/]"' in text


def test_event_time_is_that_of_the_slowest_subtask(capsys) -> None:
    alignment = (
        waiting("a", 0, 86_400_000_000),
        waiting("a", 1, 3_000_001),
        waiting("b", 0, None),
        waiting("b", 1, 5),
        waiting("c", 0, WATERMARK_END_US),
        waiting("d", 0, -(2**63)),
    )
    lines = shown(capsys, alignment=alignment).splitlines()[2:6]
    assert lines == [
        "event time of a: 1970-01-01 00:00:03.000001",
        "event time of b: not yet known",
        "event time of c: the end of the input",
        "event time of d: before all time",
    ]


def test_a_source_has_no_event_time_of_its_own(capsys) -> None:
    source = waiting("in", 0, None).model_copy(update={"channels": ()})
    assert "event time" not in shown(capsys, alignment=(source,))


def test_a_summary_of_which_little_is_known_is_a_line_all_the_same(capsys) -> None:
    print_summaries(
        [
            CheckpointSummary(CheckpointId(1), "pending"),
            CheckpointSummary(CheckpointId(2), "pending", problem="/a [b] is no JSON"),
        ]
    )
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["1", "pending"]
    assert second.split(maxsplit=2)[1:] == ["unreadable", "/a [b] is no JSON"]


def test_lines_in_a_file_are_not_broken(capsys) -> None:
    reason = "word " * 200
    print_summaries([CheckpointSummary(CheckpointId(1), "declined", reason=reason)])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_report_counts_files_and_bytes_and_names_what_is_damaged(capsys) -> None:
    parts = (PartReport("a", 1_000, None), PartReport("b", 234, "/store/b is missing"))
    print_report(VerifyReport(CheckpointId(7), parts))
    print_report(VerifyReport(CheckpointId(8), parts[:1]))
    assert capsys.readouterr().out.splitlines() == [
        "checkpoint 7 is damaged: 2 files, 1.2KiB",
        "  /store/b is missing",
        "checkpoint 8 is intact: 1 file, 1000B",
    ]


def test_the_channel_that_was_waited_for_longest_is_named_per_vertex(capsys) -> None:
    def met(index: int, alignment_ms: float, barrier_ms: float | None) -> AlignmentEntry:
        slow = ChannelAlignment(input_id=1, upstream="in", sender=3, barrier_ms=barrier_ms)
        entry = waiting("window", index, 7)
        return entry.model_copy(update={"alignment_ms": alignment_ms, "slowest_channels": (slow,)})

    said = shown(capsys, alignment=(met(0, 12.0, 11.6), met(1, 5.0, 4.0)))
    assert "alignment of window 0: 12 ms, in 3 brought its barrier 12 ms after the first" in said
    assert "alignment of window 1" not in said
    assert "in 3 was overtaken" in shown(capsys, alignment=(met(0, 12.0, None),))
    assert "alignment of" not in shown(capsys, alignment=(waiting("window", 0, 7),))
