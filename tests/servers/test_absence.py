"""A server that is not there is a failure where it could be, and else a skip that says why."""

from pathlib import Path

import pytest

from tests.servers.absence import verdict


@pytest.mark.parametrize(("demand", "is_failure"), [(None, False), ("required", True)])
def test_what_make_servers_was_not_asked_for_fails_where_servers_are_required(
    tmp_path: Path, demand: str | None, *, is_failure: bool
) -> None:
    assert verdict("kafka", tmp_path, demand) == (is_failure, "no kafka: `make servers` gets it")


@pytest.mark.parametrize("demand", [None, "required"])
def test_what_the_machine_cannot_have_is_skipped_with_the_reason(
    tmp_path: Path, demand: str | None
) -> None:
    (tmp_path / "build" / "servers").mkdir(parents=True)
    (tmp_path / "build" / "servers" / "kafka.absent").write_text("mvn is missing\n")
    assert verdict("kafka", tmp_path, demand) == (False, "no kafka: mvn is missing")
