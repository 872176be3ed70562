import errno
from pathlib import Path

import pytest

from laminar_core.errors import ConfigurationError, ErrorCode, StorageUnavailable
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.objectstore.opening import (
    absolute_uri,
    address,
    bucket_options,
    folders_between,
    names_at,
    open_object_store,
    place_below,
    probe,
)
from laminar_core.objectstore.s3 import S3ObjectStore
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "file://localhost{}"])
def test_a_directory_is_opened_by_path_or_file_uri(tmp_path, form):
    open_object_store(form.format(tmp_path)).put("a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_file_uri_is_unquoted_and_a_path_is_not(tmp_path):
    open_object_store(f"file://{tmp_path}/a%20b").create()
    assert [path.name for path in tmp_path.iterdir()] == ["a b"]
    open_object_store(f"{tmp_path}/a%20b").create()
    assert (tmp_path / "a%20b").is_dir()


def test_a_place_means_the_same_to_a_process_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_uri("below/s") == f"{tmp_path}/below/s"
    for uri in ("s3://bucket/s?region=x", "file:///data/s", "file:/data/s", "/data/s"):
        assert absolute_uri(uri) == uri


def test_opening_touches_nothing(tmp_path):
    open_object_store(str(tmp_path / "later"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "uri",
    ["", "hdfs://host/x", "file://otherhost/x", "file://", "memory://none", "a\0"],
)
def test_anything_else_is_refused_with_advice(uri):
    with pytest.raises(ConfigurationError, match="give a directory") as caught:
        open_object_store(uri)
    assert caught.value.code is ErrorCode.INVALID_OPTION


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_file_is_no_store(tmp_path, form):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ConfigurationError, match=r"notes.txt is a file, not a store: give a dir"):
        open_object_store(form.format(tmp_path / "notes.txt"))


def test_a_bucket_is_opened_by_its_uri_and_nothing_is_sent():
    objects = open_object_store("s3://bucket/prefix/?region=eu-central-1")
    assert isinstance(objects, S3ObjectStore)
    assert objects.uri == "s3://bucket/prefix?region=eu-central-1"
    assert objects.counts.puts == objects.counts.gets == 0


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket?region=eu-central-1", "s3://bucket/job/a"),
        ("s3://bucket/deep/prefix?region=eu-central-1", "s3://bucket/deep/prefix/job/a"),
        ("/data/what?", "/data/what?/job/a"),
    ],
)
def test_the_address_of_an_object_has_no_parameters(uri, shown):
    assert address(open_object_store(uri), "job/a") == shown


@pytest.mark.parametrize(
    ("uri", "below"),
    [
        ("s3://bucket?region=r", "s3://bucket/a/b?region=r"),
        ("s3://bucket/prefix/", "s3://bucket/prefix/a/b"),
        ("/data/what?", "/data/what?/a/b"),
    ],
)
def test_a_folder_of_a_store_is_a_store_with_the_same_parameters(uri, below):
    assert place_below(uri, "a/b/") == below


@pytest.mark.parametrize("name", ["before upgrade", "50%", "a%20b", "v=2", "what?", "no#1", "ü"])
def test_a_folder_may_have_any_name(tmp_path, name):
    bucket = bucket_options(place_below("s3://bucket/top?region=r", f"{name}/"))
    assert (bucket.prefix, bucket.region) == (f"top/{name}", "r")
    for uri in (str(tmp_path), f"file://{tmp_path}"):
        assert open_object_store(place_below(uri, f"{name}/")).uri == str(tmp_path / name)


def test_names_that_no_object_can_have_are_known_and_hidden_ones_are_not(tmp_path):
    for name in ("a", "my report (1).pdf", ".hidden", ".host-1-2"):
        (tmp_path / name).touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "latest").symlink_to(".git")
    found = names_at(open_object_store(str(tmp_path)))
    assert found == ["a", "latest/", "my report (1).pdf"]
    assert names_at(open_object_store(str(tmp_path / "nowhere"))) == []


@pytest.mark.parametrize(
    ("uri", "place", "folders"),
    [
        ("s3://bucket", "s3://bucket/a/b?region=r", ("a", "b")),
        ("s3://bucket/store", "s3://bucket/store-2/a", None),
        ("s3://bucket/store", "az://bucket/store/a", None),
        ("/data/store", "/data/store/a/b", ("a", "b")),
        ("/data/store", "/data/store", ()),
        ("/data/store", "/data/store-2/a", None),
        ("/data/store", "s3://bucket/data/store/a", None),
        ("memory://one", "memory://two", None),
    ],
)
def test_the_way_from_a_store_to_a_place_in_it(uri, place, folders):
    assert folders_between(uri, place) == folders


class TestProbe:
    def test_a_store_that_ignores_the_condition_is_refused(self):
        careless = FaultyStore(
            MemoryObjectStore(), Fault("put_if_absent", Effect.OVERWRITE, last=100)
        )
        with pytest.raises(ConfigurationError, match="4 of 4 writers created") as caught:
            probe(careless)
        assert caught.value.code is ErrorCode.STORE_IGNORES_CONDITIONS

    def test_a_store_that_ignores_the_condition_without_a_race_is_refused(self):
        careless = FaultyStore(
            MemoryObjectStore(), Fault("put_if_absent", Effect.OVERWRITE, first=5, last=5)
        )
        with pytest.raises(ConfigurationError, match="created twice"):
            probe(careless)

    def test_a_store_that_denies_its_winner_is_refused(self):
        with pytest.raises(ConfigurationError, match="0 of 4 writers"):
            probe(FaultyStore(MemoryObjectStore(), Fault("put_if_absent", Effect.DENY)))

    def test_a_read_only_store_is_a_wrong_configuration(self):
        read_only = FaultyStore(
            MemoryObjectStore(),
            Fault("put_if_absent", Effect.FAIL, last=100, code=ErrorCode.STORE_READ_ONLY),
        )
        with pytest.raises(ConfigurationError) as caught:
            probe(read_only)
        assert caught.value.code is ErrorCode.STORE_NOT_WRITABLE

    def test_a_store_that_denies_access_later_is_a_wrong_configuration(self):
        denied = Fault("list", Effect.FAIL, last=100, code=ErrorCode.STORE_ACCESS_DENIED)
        with pytest.raises(ConfigurationError) as caught:
            probe(FaultyStore(MemoryObjectStore(), denied))
        assert caught.value.code is ErrorCode.STORE_ACCESS_DENIED

    def test_a_store_may_know_of_another_way_in_which_it_is_careless(self):
        class Careless(MemoryObjectStore):
            def check_conditions(self, key):
                assert self.get(key) is not None
                return "large ones are replaced"

        with pytest.raises(ConfigurationError, match="large ones are replaced") as caught:
            probe(Careless())
        assert caught.value.code is ErrorCode.STORE_IGNORES_CONDITIONS

    @pytest.mark.parametrize("code", [ErrorCode.STORE_FULL, ErrorCode.STORE_IO])
    def test_a_full_or_failing_store_is_unavailable(self, code):
        failing = FaultyStore(
            MemoryObjectStore(), Fault("put_if_absent", Effect.FAIL, last=100, code=code)
        )
        with pytest.raises(StorageUnavailable) as caught:
            probe(failing)
        assert caught.value.code is code


@pytest.mark.parametrize(
    "uri",
    [
        "foo://[bar",
        "//[bar",
        "foo://\u2100",
        "~nobody-has-this-name/x",
        "file:///tmp/x%00",
        "a" * 300,
    ],
)
def test_what_is_no_valid_path_or_uri_is_one_line(uri):
    with pytest.raises(ConfigurationError, match="check the path or URI") as caught:
        open_object_store(uri)
    assert caught.value.code is ErrorCode.INVALID_OPTION
    assert "\n" not in str(caught.value)


def test_a_circle_of_links_is_one_line(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(ConfigurationError, match="check the path or URI"):
        open_object_store(str(tmp_path / "a" / "store"))


def test_a_working_directory_that_is_gone_is_one_line(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for use in (absolute_uri, open_object_store):
        with pytest.raises(ConfigurationError, match="cannot open 'below': "):
            use("below")


def test_a_place_that_may_not_be_looked_at_is_not_called_wrong(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(StorageUnavailable, match="give this user access") as caught:
        open_object_store(str(tmp_path))
    assert caught.value.code is ErrorCode.STORE_READ_ONLY


def test_a_target_that_is_no_text_is_refused():
    with pytest.raises(ConfigurationError, match="check the path or URI"):
        absolute_uri("below/\udcff")
