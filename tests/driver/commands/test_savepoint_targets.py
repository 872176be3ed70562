"""A command chooses a folder below a place of the driver's start, and nothing else."""

import pytest

from laminar_core.driver.commands.savepoint_targets import SavepointTargets
from laminar_core.errors import ConfigurationError

STORE = "s3://bucket/checkpoints?region=eu-central-1&profile=laminar"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def refused(targets: SavepointTargets, target: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        targets.resolve(target)
    return str(caught.value)


def test_beside_the_store_and_below_the_folder_of_the_driver_without_a_word(tmp_path):
    targets = SavepointTargets(str(tmp_path / "data/store"))
    for target in (tmp_path / "data/savepoints/one", tmp_path / "work/backups/last"):
        assert targets.resolve(str(target)) == str(target)
    assert targets.resolve(f"file://{tmp_path}/data/s") == f"{tmp_path}/data/s"


@pytest.mark.parametrize(
    "target",
    ["/etc/cron.d/x", "{0}/elsewhere", "{0}/data/../elsewhere", "{0}/data", "file:///etc/x"],
)
def test_elsewhere_is_refused_with_what_to_do(tmp_path, target):
    targets = SavepointTargets(str(tmp_path / "data/store"))
    said = refused(targets, target.format(tmp_path))
    assert "--savepoints-under" in said
    assert "laminar savepoint export" in said


@pytest.mark.parametrize("target", ["~/s", "~root/s", "file:~/s", "file://elsewhere/{0}/data/s"])
def test_no_way_to_write_a_place_leads_elsewhere(tmp_path, monkeypatch, target):
    """A store that is opened in ``~`` is in a home directory, and not below the driver's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    targets = SavepointTargets(str(tmp_path / "data/store"))
    assert "--savepoints-under" in refused(targets, target.format(tmp_path))


def test_a_home_directory_may_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    targets = SavepointTargets(str(tmp_path / "data/store"), ("~/safe",))
    assert targets.resolve("~/safe/s") == str(tmp_path / "home/safe/s")


def test_a_link_that_changes_later_changes_nothing(tmp_path):
    (tmp_path / "data/real").mkdir(parents=True)
    (tmp_path / "data/link").symlink_to(tmp_path / "data/real")
    targets = SavepointTargets(str(tmp_path / "data/store"))
    assert targets.resolve(f"{tmp_path}/data/link/s") == f"{tmp_path}/data/real/s"


def test_a_link_out_of_the_place_is_followed_and_refused(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/link").symlink_to("/etc")
    targets = SavepointTargets(str(tmp_path / "data/store"))
    assert "none of the places" in refused(targets, str(tmp_path / "data/link/x"))


def test_a_store_in_the_root_of_the_file_system_opens_nothing_beside_it(tmp_path):
    targets = SavepointTargets("/checkpoints")
    assert "none of the places" in refused(targets, "/etc/x")
    assert targets.resolve(str(tmp_path / "work/s")) == str(tmp_path / "work/s")


def test_what_is_named_takes_the_place_of_the_default(tmp_path):
    targets = SavepointTargets(str(tmp_path / "data/store"), (str(tmp_path / "safe"),))
    assert targets.resolve(str(tmp_path / "safe/s")) == str(tmp_path / "safe/s")
    assert "none of the places" in refused(targets, str(tmp_path / "data/s"))


def test_in_the_bucket_of_the_store_with_the_parameters_of_the_start():
    targets = SavepointTargets(STORE)
    opened = "s3://bucket/savepoints/one?region=eu-central-1&profile=laminar"
    assert targets.resolve("s3://bucket/savepoints/one") == opened
    assert targets.resolve(opened) == opened


@pytest.mark.parametrize(
    "parameters",
    [
        "endpoint_url=http://attacker.example",
        "profile=admin",
        "region=eu-central-1&profile=laminar&endpoint_url=http://attacker.example",
        "sse_kms_key_id=theirs&sse=aws:kms",
    ],
)
def test_no_parameter_comes_from_a_command(parameters):
    said = refused(SavepointTargets(STORE), f"s3://bucket/savepoints/one?{parameters}")
    assert "remove them" in said
    assert "attacker" not in said


@pytest.mark.parametrize(
    "target", ["s3://other/x", "s3://bucket/safe", "s3://bucket/safety/x", "s3://bucket/x/safe/y"]
)
def test_another_bucket_or_folder_is_refused(target):
    targets = SavepointTargets(STORE, ("s3://bucket/safe?region=x", "/safe"))
    assert "none of the places" in refused(targets, target)
    assert targets.resolve("s3://bucket/safe/x") == "s3://bucket/safe/x?region=x"


def test_a_container_of_azure_is_no_bucket_of_s3():
    targets = SavepointTargets("az://bucket/checkpoints?account_name=me")
    assert targets.resolve("az://bucket/s/one") == "az://bucket/s/one?account_name=me"
    assert "none of the places" in refused(targets, "s3://bucket/s/one")
    assert "remove them" in refused(targets, "az://bucket/s/one?account_name=theirs")


def test_a_store_of_this_process_is_commanded_by_this_process_alone():
    assert SavepointTargets("memory://x").resolve("/anywhere") == "/anywhere"


@pytest.mark.parametrize("target", ["http://host/x", "memory://other", "a\0b"])
def test_what_is_no_place_is_refused(tmp_path, target):
    assert "neither a directory nor a bucket" in refused(
        SavepointTargets(str(tmp_path / "data/store")), target
    )
