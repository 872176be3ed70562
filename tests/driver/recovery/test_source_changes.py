"""Sources come and go between runs; what does not fit is refused, by name."""

from dataclasses import replace

import pytest

from laminar_core.driver.recovery.acceptance import parse_acceptance
from laminar_core.driver.recovery.compatibility import mismatches
from laminar_core.driver.recovery.source_changes import SourceChanges, source_changes
from laminar_core.operators.base import JsonObject
from laminar_core.pipeline import Pipeline
from laminar_core.plan.plan import Plan
from laminar_core.protocol.types import WATERMARK_END_US
from laminar_core.records.channel_entries import ChannelEntry, EdgeRef, InflightEntry
from laminar_core.records.manifest import CheckpointManifest, fingerprint_of
from laminar_core.records.manifest_fields import CarriedOperator
from laminar_core.testing.jobs import DELAY, payments, windowed
from laminar_core.testing.ledger import Ledger, LedgerSink
from laminar_core.testing.memory_source import MemorySource
from laminar_core.worker.outputs import edge_entry
from tests.records.manifests import alignment, file_ref, files_of, manifest, subtask

WORKERS = 2
ROWS = {"a": 10, "b": 20, "c": 30}


def plan_of(*names: str, rows: dict[str, int] = ROWS, watermarks: str = "") -> Plan:
    """A union of these sources, each with its watermarks, in front of a window."""
    p = Pipeline("changing")
    first, *others = [
        p.source(name, MemorySource(payments(1, rows[name]))).watermark(
            "ts", max_delay=DELAY, name=f"{watermarks or name}-time"
        )
        for name in names
    ]
    windowed(first.union(*others, name="all")).sink("out", LedgerSink(Ledger(), "out"))
    return p.plan()


def checkpoint_of(plan: Plan, **changes: object) -> CheckpointManifest:
    """A checkpoint in which each source has a position and each watermark its time."""
    described = plan.descriptions()
    kept: dict[str, JsonObject] = {
        o: {"segments": (file_ref(f"checkpoints/7/{o}"),)} for o in ("a", "b", "c")
    }
    kept |= {f"{o}-time": {"properties": {"newest_us": 5}} for o in ("a", "b", "c")}
    entries = [
        alignment(
            vertex_id=vertex.vertex_id,
            subtask_index=n,
            channels=tuple(
                ChannelEntry(input_id=i, watermark_us=100 + i, idle=False)
                for i in range(len(plan.inputs_of(vertex.vertex_id)))
            ),
        )
        for vertex in plan.vertices
        for n in range(WORKERS)
    ]
    fields = {
        "parallelism": dict.fromkeys(described, WORKERS),
        "fingerprint": {o: fingerprint_of(d) for o, d in described.items()},
        "operators_description": described,
        "edges": tuple(edge_entry(plan, edge) for edge in plan.edges),
        "subtasks": tuple(
            subtask(o, n, **(kept.get(o, {}) if n == 0 else {}))
            for o in described
            for n in range(WORKERS)
        ),
        "alignment": tuple(entries),
    }
    return manifest(**fields | changes)


def channels_of(changes: SourceChanges) -> dict[int, int | None]:
    (entry, _) = [a for a in changes.fitted.alignment if a.vertex_id == "all"]
    return {channel.input_id: channel.watermark_us for channel in entry.channels}


def problems(checkpoint: CheckpointManifest, plan: Plan, *accepted: str) -> list[str]:
    changes = source_changes(checkpoint, plan, [parse_acceptance(text) for text in accepted])
    return [str(m.error) for m in mismatches(checkpoint, plan, WORKERS, changes)]


def carrying(*names: str, gone: str) -> CheckpointManifest:
    """A checkpoint of a pipeline that lacks a source, whose positions it carries."""
    every = checkpoint_of(plan_of(*names, gone))
    left = checkpoint_of(plan_of(*names))
    marks = {o: CarriedOperator(source=gone, checkpoint_id=3) for o in (gone, f"{gone}-time")}
    named = [*left.parallelism, *marks]
    return every.model_copy(
        update={
            "edges": left.edges,
            "alignment": left.alignment,
            "operators_description": left.operators_description
            | {o: every.operators_description[o] for o in marks},
            "parallelism": dict.fromkeys(named, WORKERS),
            "subtasks": tuple(e for o in named for e in every.subtasks if e.operator_id == o),
            "carried": marks,
        }
    )


def test_an_unchanged_pipeline_reads_its_checkpoint_as_it_is() -> None:
    checkpoint = checkpoint_of(plan_of("a", "b"))
    assert source_changes(checkpoint, plan_of("a", "b")) == SourceChanges(checkpoint)
    assert problems(checkpoint, plan_of("a", "b")) == []


@pytest.mark.parametrize(
    ("names", "channels"),
    [
        (("a", "b", "c"), {0: 100, 1: 101}),
        (("c", "a", "b"), {1: 100, 2: 101}),
        (("a", "c", "b"), {0: 100, 2: 101}),
    ],
)
def test_a_new_source_begins_and_the_others_keep_their_event_time(names, channels) -> None:
    checkpoint = checkpoint_of(plan_of("a", "b"))
    changes = source_changes(checkpoint, plan_of(*names))
    assert (changes.new, changes.gone, changes.back) == (("c",), (), ())
    assert changes.new_operators == {"c", "c-time"}
    assert channels_of(changes) == channels
    assert problems(checkpoint, plan_of(*names)) == []
    assert changes.facts() == {"sources_new": ["c"]}


@pytest.mark.parametrize(
    ("names", "channels"),
    [(("a", "b"), {0: 100, 1: 101}), (("a", "c"), {0: 100, 1: 102}), (("c",), {0: 102})],
)
def test_a_source_that_goes_is_carried_with_what_was_chained_to_it(names, channels) -> None:
    checkpoint = checkpoint_of(plan_of("a", "b", "c"))
    changes = source_changes(checkpoint, plan_of(*names))
    gone = tuple(name for name in ("a", "b", "c") if name not in names)
    assert (changes.new, changes.gone, changes.back) == ((), gone, ())
    assert changes.carried == {
        o: CarriedOperator(source=name, checkpoint_id=7)
        for name in gone
        for o in (name, f"{name}-time")
    }
    assert not {e.operator_id for e in changes.fitted.subtasks} & changes.carried.keys()
    assert channels_of(changes) == channels
    assert problems(checkpoint, plan_of(*names)) == []


def test_a_source_stays_carried_with_the_checkpoint_that_it_last_took_part_in() -> None:
    changes = source_changes(carrying("a", gone="b"), plan_of("a", "c"))
    assert (changes.new, changes.gone) == (("c",), ("b",))
    assert {c.checkpoint_id for c in changes.carried.values()} == {3}


def test_a_source_that_returns_continues() -> None:
    checkpoint = carrying("a", gone="b")
    changes = source_changes(checkpoint, plan_of("b", "a"))
    assert (changes.new, changes.gone, changes.back) == ((), (), ("b",))
    assert {"b", "b-time"} <= {e.operator_id for e in changes.fitted.subtasks}
    assert channels_of(changes) == {1: 100}
    assert changes.carried == {}
    assert problems(checkpoint, plan_of("b", "a")) == []


def test_dropped_positions_are_not_carried_and_the_source_begins_anew() -> None:
    drop = [parse_acceptance("source-drop:b")]
    for checkpoint in (carrying("a", gone="b"), checkpoint_of(plan_of("a", "b"))):
        changes = source_changes(checkpoint, plan_of("a"), drop)
        assert (changes.gone, changes.carried, list(changes.used)) == ((), {}, drop)
    changes = source_changes(carrying("a", gone="b"), plan_of("a", "b"), drop)
    assert (changes.new, changes.back, list(changes.used)) == (("b",), (), drop)
    assert "b" not in changes.fitted.parallelism


def test_to_drop_the_positions_of_a_source_that_runs_is_needed_by_nothing() -> None:
    drop = [parse_acceptance("source-drop:b")]
    assert source_changes(checkpoint_of(plan_of("a", "b")), plan_of("a", "b"), drop).used == ()


def test_a_source_under_another_name_would_read_everything_again() -> None:
    rows = ROWS | {"c": ROWS["b"]}
    checkpoint, renamed = checkpoint_of(plan_of("a", "b")), plan_of("a", "c", rows=rows)
    (problem,) = problems(checkpoint, renamed)
    assert "source c reads the same as b, whose positions are kept: call it b" in problem
    assert problems(checkpoint, renamed, "source-drop:b") == []


def test_state_of_a_source_that_went_does_not_serve_another_one() -> None:
    checkpoint = checkpoint_of(plan_of("a", "b"))
    moved = plan_of("a", "c")
    names = {"c-time": "b-time"}
    vertices = tuple(
        replace(
            vertex,
            operators=tuple(
                replace(o, operator_id=names.get(o.operator_id, o.operator_id))
                for o in vertex.operators
            ),
        )
        for vertex in moved.vertices
    )
    (problem,) = problems(checkpoint, replace(moved, vertices=vertices))
    assert problem == (
        "b-time has state of source b, which the pipeline lacks: give it another name"
    )


def test_a_source_returns_with_what_was_chained_to_it_or_not_at_all() -> None:
    back = plan_of("a", "b")
    bare = tuple(
        replace(vertex, operators=()) if vertex.vertex_id == "b" else vertex
        for vertex in back.vertices
    )
    (problem,) = problems(carrying("a", gone="b"), replace(back, vertices=bare))
    assert problem.startswith("source b returns, and b-time, which was chained to it, is not there")


def test_rows_in_flight_behind_a_source_that_went_are_refused_by_its_name() -> None:
    plan = plan_of("a", "b")
    (edge,) = [e for e in plan.edges if e.upstream == "b"]
    flying = InflightEntry(
        path="checkpoints/7/inflight",
        offset=0,
        size_bytes=1,
        sha256="0" * 64,
        operator_id="all",
        direction="input",
        subtask_index=0,
        input_id=1,
        edge=EdgeRef(upstream="b", downstream="all", input_index=1),
        sender=0,
        receiver=0,
        event_count=1,
        row_count=1,
    )
    assert edge.downstream == "all"
    checkpoint = checkpoint_of(
        plan,
        mode="switched",
        is_unaligned=True,
        inflight_data=(flying,),
        inflight_files=files_of(flying),
    )
    (problem,) = problems(checkpoint, plan_of("a"))
    assert "checkpoint 7 has rows in flight behind source b, which the pipeline lacks" in problem
    assert "`laminar stop`" in problem
    moved = source_changes(checkpoint, plan_of("c", "a", "b")).fitted.inflight_data
    assert [entry.edge.input_index for entry in moved] == [2], "it stays on its own edge"


def test_a_new_source_is_refused_where_event_time_has_ended() -> None:
    plan = plan_of("a")
    checkpoint = checkpoint_of(plan)
    over = tuple(
        entry.model_copy(update={"watermark_us": WATERMARK_END_US})
        for entry in checkpoint.alignment
    )
    (problem,) = problems(checkpoint.model_copy(update={"alignment": over}), plan_of("a", "b"))
    assert problem.startswith("all sources of all have ended, so rows of b would be too late")


def test_other_changes_of_a_union_are_refused_as_before() -> None:
    checkpoint = checkpoint_of(plan_of("a", "b"))
    assert "all is not what it was" in problems(checkpoint, plan_of("b", "a"))[0]
    assert "all is not what it was" in problems(checkpoint, plan_of("c", "b", "a"))[0]


def test_a_new_source_may_have_a_sink_of_its_own() -> None:
    p = Pipeline("changing")
    p.source("b", MemorySource(payments(1, 5))).sink("copy", LedgerSink(Ledger(), "copy"))
    rows = p.source("a", MemorySource(payments(1, 10))).watermark(
        "ts", max_delay=DELAY, name="a-time"
    )
    windowed(rows.union(name="all")).sink("out", LedgerSink(Ledger(), "out"))
    assert problems(checkpoint_of(plan_of("a")), p.plan()) == []
