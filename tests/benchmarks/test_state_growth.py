"""Growth is relative to linear growth, and the table finds all figures."""

import pytest

from benchmarks.page_tables import TABLES
from benchmarks.state_growth import KEYS, results_of


def one_round(keys: int) -> dict[str, float]:
    return {
        "state_memory_pause_median": 0.1,
        "state_memory_pause_max": 0.2,
        "state_memory_first_checkpoint": keys / 1e6,
        "state_memory_restore_time": (keys / 1e6) ** 2,
        "state_memory_restore": 3.0,
        "state_memory_size": keys * 1e-7,
        "state_memory_peak_memory": 0.5,
    }


def test_twice_as_much_in_twice_the_time_is_one_and_a_square_is_more() -> None:
    results = {r.name: r for r in results_of({keys: [one_round(keys)] * 2 for keys in KEYS})}
    assert results["state_growth_100000_first_checkpoint_growth"].value == pytest.approx(1)
    squared = results["state_growth_100000_restore_time_growth"]
    assert squared.value == pytest.approx(10)
    assert squared.met is False
    table = TABLES["state-growth"]
    shown = {
        template.format(word)
        for word in table.rows.values()
        for template in table.columns.values()
        if not (template.endswith("_growth") and word == str(KEYS[0]))
    }
    assert shown <= results.keys()
