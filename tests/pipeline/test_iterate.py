"""How a loop is drawn, what plan it becomes, and which loops are refused."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from laminar_core.connectors.collect import CollectSink
from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.operators import agg, windows
from laminar_core.pipeline import Pipeline, Stream
from laminar_core.plan.plan import Broadcast, Keyed, Plan, Rebalance
from laminar_core.testing.memory_source import MemorySource

TIMES = pa.array([0], pa.timestamp("us", tz="UTC"))
ROWS = pa.table({"id": [1], "attempt": [0], "at": TIMES})
AGAIN, DONE = pc.field("attempt") < 3, pc.field("attempt") >= 3


def source(p: Pipeline, name: str = "in") -> Stream:
    return p.source(name, MemorySource([ROWS]))


def retry(rows: Stream) -> tuple[Stream, Stream]:
    tried = rows.map(lambda batch: batch, name="try")
    return tried.filter(AGAIN, name="again"), tried.filter(DONE, name="done")


def spell(plan: Plan) -> str:
    """One line an edge: ends, feedback, loop, whether barriers may overtake."""
    return "\n".join(
        f"{e.upstream} -> {e.downstream}"
        + (" feedback" if e.feedback else "")
        + (f" in {e.loop}" if e.loop else "")
        + (" overtakes" if e.may_overtake else "")
        for e in plan.edges
    )


def test_a_loop_is_a_head_a_body_and_an_edge_back() -> None:
    p = Pipeline("p")
    source(p).rebalance().iterate(retry, name="retry").rebalance().sink("out", CollectSink())
    plan = p.plan()
    assert [v.vertex_id for v in plan.vertices] == ["in", "retry", "again", "done", "out"]
    assert list(plan.vertices[1].operator_ids()) == ["retry", "try"]
    assert spell(plan) == (
        "in -> retry overtakes\n"
        "retry -> again in retry\n"
        "retry -> done\n"
        "done -> out overtakes\n"
        "again -> retry feedback in retry"
    )
    assert plan.loops() == {"retry": "retry", "again": "retry"}


def test_the_pipeline_has_the_same_method() -> None:
    plans = []
    for draw in (
        lambda _, rows: rows.iterate(retry, name="retry"),
        lambda p, rows: p.iterate(rows, retry, name="retry"),
    ):
        p = Pipeline("p")
        draw(p, source(p)).sink("out", CollectSink())
        plans.append(spell(p.plan()))
    assert plans[0] == plans[1]


def test_no_exchange_inside_a_loop_lets_barriers_overtake() -> None:
    def shuffled(rows: Stream) -> tuple[Stream, Stream]:
        again, done = retry(rows.rebalance())
        return again.rebalance(), done

    p = Pipeline("p")
    source(p).iterate(shuffled, name="retry").sink("out", CollectSink())
    plan = p.plan()
    inside = [e for e in plan.edges if e.loop is not None]
    assert [type(e.partitioning) for e in inside].count(Rebalance) == 2
    assert not any(e.may_overtake for e in inside)


def test_several_streams_may_come_back() -> None:
    def body(rows: Stream) -> tuple[list[Stream], Stream]:
        tried = rows.map(lambda batch: batch, name="try")
        soon = tried.filter(pc.field("attempt") == 0, name="soon")
        later = tried.filter(pc.field("attempt") == 1, name="later")
        return [soon, later.broadcast()], tried.filter(DONE, name="done")

    p = Pipeline("p")
    source(p).iterate(body, name="retry").sink("out", CollectSink())
    feedback = [e for e in p.plan().edges if e.feedback]
    assert [e.upstream for e in feedback] == ["soon", "later"]
    assert isinstance(feedback[1].partitioning, Broadcast)
    assert [e.edge_id for e in p.plan().edges] == list(range(len(p.plan().edges)))


def test_several_streams_may_leave() -> None:
    def body(rows: Stream) -> tuple[Stream, tuple[Stream, Stream]]:
        again, done = retry(rows)
        return again, (done, rows)

    p = Pipeline("p")
    done, every = source(p).iterate(body, name="retry")
    done.sink("settled", CollectSink())
    every.sink("every", CollectSink())
    assert len(p.plan().sinks()) == 2


def test_nested_loops_are_one_that_ends_together() -> None:
    def outer(rows: Stream) -> tuple[Stream, Stream]:
        inner = rows.iterate(retry, name="inner")
        return inner.filter(AGAIN, name="out-again"), inner.filter(DONE, name="out-done")

    p = Pipeline("p")
    source(p).iterate(outer, name="outer").sink("out", CollectSink())
    loops = p.plan().loops()
    assert set(loops.values()) == {"outer"}
    assert {"outer", "inner", "again", "out-again"} <= loops.keys()


def test_loops_in_a_row_end_one_after_the_other() -> None:
    def second(rows: Stream) -> tuple[Stream, Stream]:
        tried = rows.map(lambda batch: batch, name="try-2")
        return tried.filter(AGAIN, name="again-2"), tried.filter(DONE, name="done-2")

    p = Pipeline("p")
    first = source(p).iterate(retry, name="first")
    first.iterate(second, name="second").sink("out", CollectSink())
    assert set(p.plan().loops().values()) == {"first", "second"}


def test_a_body_that_does_nothing_is_a_vertex_that_feeds_itself() -> None:
    p = Pipeline("p")
    source(p).iterate(lambda rows: (rows, rows), name="for-ever").sink("out", CollectSink())
    assert spell(p.plan()) == (
        "in -> for-ever\nfor-ever -> out\nfor-ever -> for-ever feedback in for-ever"
    )


def test_a_restore_compares_what_comes_back() -> None:
    p = Pipeline("p")
    source(p).iterate(retry, name="retry").sink("out", CollectSink())
    described = p.plan().descriptions()["retry"]
    assert described == {"kind": "loop", "inputs": ["in, forward", "again, forward, feedback"]}


# --- refused --------------------------------------------------------------------------------------


def draw_and_plan(draw) -> None:
    p = Pipeline("p")
    draw(p)
    p.plan()


def refusal(draw) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        draw_and_plan(draw)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_loop_without_a_way_back_is_refused() -> None:
    def draw(p: Pipeline) -> None:
        source(p).iterate(lambda rows: ([], rows), name="retry").sink("out", CollectSink())

    assert "nothing leads back to loop retry" in str(refusal(draw))


def test_feedback_that_has_never_left_the_loop_is_refused() -> None:
    def draw(p: Pipeline) -> None:
        other = source(p, "other")
        source(p).iterate(lambda rows: (other, rows), name="retry").sink("out", CollectSink())

    assert "from other has never left it" in str(refusal(draw))


def test_feedback_with_another_schema_is_refused() -> None:
    def draw(p: Pipeline) -> None:
        source(p).iterate(lambda rows: (rows.select("id"), rows), name="retry")

    error = refusal(draw)
    assert error.code is ErrorCode.WRONG_SCHEMA
    assert "loop retry needs one schema" in str(error)


def test_feedback_of_another_pipeline_is_refused() -> None:
    def draw(p: Pipeline) -> None:
        other = source(Pipeline("other"))
        source(p).iterate(lambda rows: (other, rows), name="retry")

    assert "loop retry is of streams of one pipeline, not of p and other" in str(refusal(draw))


def windowed(rows: Stream) -> tuple[Stream, Stream]:
    window = rows.key_by("id").window(windows.tumbling("1 minute"), time="at")
    counted = window.aggregate("per-id", agg.count())
    again = counted.map(lambda batch: batch, schema=ROWS.schema, name="again")
    return again, counted


@pytest.mark.parametrize(
    ("body", "name"),
    [(windowed, "per-id-combine"), (lambda rows: (rows.watermark("at"), rows), "watermark-1")],
    ids=["window", "watermark"],
)
def test_event_time_inside_a_loop_is_refused(body, name: str) -> None:
    def draw(p: Pipeline) -> None:
        source(p).iterate(body, name="retry").sink("out", CollectSink())

    assert f"{name} needs event time, and in loop retry there is none" in str(refusal(draw))


def test_event_time_behind_a_loop_has_to_be_assigned_anew() -> None:
    def draw(p: Pipeline) -> None:
        rows = source(p).watermark("at").iterate(retry, name="retry")
        rows.key_by("id").window(windows.tumbling("1 minute"))

    assert "windows need event time" in str(refusal(draw))


def test_windows_behind_a_loop_are_planned() -> None:
    p = Pipeline("p")
    rows = source(p).iterate(retry, name="retry").watermark("at")
    counted = rows.key_by("id").window(windows.tumbling("1 minute")).aggregate("n", agg.count())
    counted.sink("out", CollectSink())
    keyed = [e for e in p.plan().edges if isinstance(e.partitioning, Keyed)]
    assert [e.may_overtake for e in keyed] == [True]


def test_a_body_may_return_any_two() -> None:
    rows = source(Pipeline("p"))
    leaving = rows.iterate(lambda inner: map(inner.filter, (AGAIN, DONE)))
    assert leaving.schema == rows.schema


def test_a_body_that_does_not_return_two_is_refused() -> None:
    for made in (lambda rows: rows, lambda _: None):
        with pytest.raises(ConfigurationError, match="loop-1 returns what goes round again"):
            source(Pipeline("p")).iterate(made)
