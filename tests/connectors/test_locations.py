"""Paths become absolute, URIs of buckets are checked at once, and others are refused."""

from pathlib import Path

import pytest

from laminar_core.connectors.locations import checked_location
from laminar_core.errors import ConfigurationError


def test_a_path_is_absolute_and_a_uri_stays(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checked_location(Path("in")) == str(tmp_path / "in")
    assert checked_location("s3://bucket/in?region=x") == "s3://bucket/in?region=x"


@pytest.mark.parametrize(
    "location",
    ["gs://bucket/in", "file:///in", "s3://bucket/in?colour=red", "s3://bucket/?token=x"],
)
def test_what_cannot_be_opened_later_is_refused_at_once(location: str) -> None:
    with pytest.raises(ConfigurationError):
        checked_location(location)
