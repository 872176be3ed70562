"""How a field becomes an option: its names, what is allowed, and one line for what is not."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from laminar_core.errors import ConfigurationError
from laminar_core.options import NONE, Flag, Options, settings_of, words_of
from laminar_core.units import Duration, Size


class Inner(Options):
    count: Annotated[int, Field(ge=1)] = 1


class Example(Options):
    size: Size = Field(default="1MiB", kw_only=False)
    wait: Annotated[Duration | None, NONE, Flag("--max-wait", ("--wait",))] = Field(
        default="5s", description="How long."
    )
    mode: Literal["slow", "fast"] = "slow"
    on: bool = False
    many: tuple[str, ...] = Field(default=(), strict=False)
    pairs: dict[str, str] = Field(default_factory=dict)
    inner: Inner = Inner()


SETTINGS = {setting.name: setting for setting in settings_of(Example, "example")}


def test_a_field_has_a_name_in_every_place() -> None:
    setting = SETTINGS["wait"]
    assert setting.key == "example.wait"
    assert (setting.flag.name, setting.parameter) == ("--max-wait", "max_wait")
    assert setting.variable == "LAMINAR_MAX_WAIT"
    assert (setting.default, setting.description) == ("5s", "How long.")
    assert SETTINGS["size"].flag.name == "--size"
    assert "inner" not in SETTINGS


def test_what_is_allowed_can_be_shown() -> None:
    assert {name: setting.allowed for name, setting in SETTINGS.items()} == {
        "size": "SIZE",
        "wait": "DURATION|none",
        "mode": "slow|fast",
        "on": "",
        "many": "TEXT",
        "pairs": "KEY=VALUE",
    }


def test_what_a_model_was_given_becomes_words() -> None:
    example = Example(wait=None, on=False, many=("a", "b"), pairs={"k": "v"}, size=7)
    assert words_of(example) == [
        *("--size", "7", "--max-wait", "none", "--no-on", "--many", "a", "--many", "b"),
        *("--pairs", "k=v"),
    ]
    assert words_of(Example()) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"wait": 5}, "Example: wait: '5' has no unit"),
        ({"mode": "swift"}, "mode: must be 'slow' or 'fast', not 'swift'"),
        ({"pairs": 5}, "pairs: must be a table, not 5"),
        ({"many": 5}, "many: must be a list, not 5"),
        ({"inner": {"count": 0}}, "inner.count: must be greater than or equal to 1, not 0"),
        ({"inner": {"cuont": 1}}, "inner.cuont is unknown; there are: count"),
        ({"wiat": "5s"}, "wiat is unknown; there are: size, wait, mode, on, many, pairs, inner"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_that_names_the_field(values, said) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Example(**values)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_is_read_as_the_field_has_it() -> None:
    assert SETTINGS["wait"].parse("none") is None
    assert SETTINGS["wait"].parse("2h") == "2h"
    with pytest.raises(ValueError, match=r"has no unit: .* \(or none\)"):
        SETTINGS["wait"].parse("5")


def test_a_field_may_be_given_by_position_if_it_says_so() -> None:
    assert Example("2MiB", mode="fast") == Example(size="2MiB", mode="fast")
    with pytest.raises(TypeError, match="by name, once each"):
        Example("2MiB", size="1MiB")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="by name, once each"):
        Example("2MiB", "5s")  # pyright: ignore[reportCallIssue]
