"""The summary says of each figure whether what is wanted is met, or by how much it is missed."""

from benchmarks.page import updated
from benchmarks.record import figures_of
from benchmarks.result import Result
from benchmarks.summary import HEADINGS, NOT_MEASURED, ROWS, lines, markdown
from tests.benchmarks.test_record import record

RECORDS = {
    "start": record(
        benchmark="start",
        figures=figures_of(
            [
                [
                    Result.of_rounds("start_import", [0.2, 0.1, 0.25], "s", "lower"),
                    Result("start_import_cpu", 0.08, "s", "lower"),
                ]
            ]
        ),
    ),
    "backpressure": record(
        benchmark="backpressure",
        load_before=None,
        load_after=None,
        conditions="nothing else ran",
        figures=figures_of(
            [
                [
                    Result.of_rounds(
                        "checkpoint_unaligned_slow_100x", [60.0, 20.0, 100.0], "ms", "lower"
                    )
                ]
            ]
        ),
    ),
    "payments-workers": record(
        benchmark="payments-workers",
        figures=figures_of([[Result("second_worker_laminar", 1.36, "ratio", "higher")]]),
    ),
}


def test_a_row_has_value_range_target_verdict_and_conditions() -> None:
    assert lines(RECORDS, missing=False) == [
        (
            "two workers to one",
            "1.36 ratio",
            "at least 1.70",
            "missed: 0.800 times the target",
            "",
            "2026-11-28 09:30, load 0.5 to 1.5",
        ),
        (
            "unaligned checkpoint behind a slow operator",
            "60 ms (20 to 100)",
            "at most 30",
            "missed: 2 times the target",
            "",
            "2026-11-28 09:30, load not noted",
        ),
        (
            "the longest of these",
            "100 ms",
            "at most 50",
            "missed: 2 times the target",
            "",
            "2026-11-28 09:30, load not noted",
        ),
        (
            "import of the command line",
            "0.200 s (0.100 to 0.250)",
            "at most 0.300",
            "met",
            "CPU 0.0800",
            "2026-11-28 09:30, load 0.5 to 1.5",
        ),
    ]


def test_a_median_alone_has_no_longest() -> None:
    median = figures_of([[Result("checkpoint_unaligned_slow_100x", 70.0, "ms", "lower")]])
    (line,) = lines({"backpressure": record(figures=median)}, missing=False)
    assert line[0] == "unaligned checkpoint behind a slow operator"


def test_what_was_not_measured_says_so_on_the_page() -> None:
    assert len(lines({})) == len(ROWS)
    assert {line[1] for line in lines({})} == {NOT_MEASURED}
    page = "before\n\n<!-- summary -->\n| old |\n<!-- end of summary -->\n\nbehind\n"
    parts = ["before\n", "<!-- summary -->\n", markdown(RECORDS), "<!-- end of summary -->\n"]
    assert updated(page, RECORDS) == "\n".join([*parts, "behind\n"])
    assert markdown(RECORDS).splitlines()[0] == "|" + "".join(
        f" {heading} |" if heading else " |" for heading in HEADINGS
    )
