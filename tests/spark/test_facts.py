"""Settings of Spark are read as Spark reads them, with its defaults."""

import pytest

from laminar_core.spark.facts import SparkFacts


@pytest.mark.parametrize(
    ("text", "is_on"), [("true", True), (" True ", True), ("false", False), ("1", False)]
)
def test_a_switch_is_off_unless_it_says_true(text: str, is_on: bool) -> None:  # noqa: FBT001 - a case
    assert SparkFacts("yarn", {"a": text}).is_on("a") is is_on
    assert not SparkFacts("yarn").is_on("a")


@pytest.mark.parametrize(("text", "number"), [("3", 3), (" 4 ", 4), ("many", 7), ("-1", 7)])
def test_what_is_no_number_has_the_default(text: str, number: int) -> None:
    assert SparkFacts("yarn", {"a": text}).number("a", 7) == number
    assert SparkFacts("yarn").number("a") is None


@pytest.mark.parametrize(
    ("master", "one_host"),
    [("local[2]", True), ("local-cluster[2,1,1024]", True), ("spark://h:7077", False)],
)
def test_a_local_master_has_everything_on_one_host(master: str, one_host: bool) -> None:  # noqa: FBT001 - a case
    assert SparkFacts(master).on_one_host is one_host
