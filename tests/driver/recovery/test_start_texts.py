import pytest

from laminar_core.driver.recovery.start_texts import Rename, ResetFrom
from laminar_core.errors import ConfigurationError


@pytest.mark.parametrize("text", ["totals", "=totals", "totals=", "a=a", "a.b=b", ".b=c", "a.=c"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is no rename.*OLD=NEW"):
        Rename.parse(text)


@pytest.mark.parametrize("text", ["sales=beginning", "sales=12", "sales=a=b"])
def test_a_position_is_all_that_follows_the_source(text: str) -> None:
    parsed = ResetFrom.parse(text)
    assert parsed.source == "sales"
    assert str(parsed) == text


@pytest.mark.parametrize("text", ["a", "a=", "=beginning"])
def test_a_position_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="give SOURCE=beginning"):
        ResetFrom.parse(text)
