import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.objectstore.local import LocalObjectStore

SPECIAL = ["pipe", "socket", "device", "link", "broken link"]


@pytest.fixture
def objects(tmp_path):
    objects = LocalObjectStore(tmp_path / "store")
    objects.create()
    objects.put("job/a", b"1")
    (tmp_path / "secret").write_bytes(b"not of the store")
    return objects


def place(path: Path, kind: str) -> None:
    """Put something at ``path`` that Laminar never writes."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        case "device":  # What only root can make; a link to one is refused as a link.
            path.symlink_to("/dev/zero")
        case "link":
            path.symlink_to(path.parent.parent.parent / "secret")
        case _:
            path.symlink_to("nowhere")


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("read", ["get", "sha256"])
def test_what_is_no_file_is_refused_at_once(objects, kind, read):
    place(Path(objects.uri) / "job" / "b", kind)
    with pytest.raises(CorruptCheckpointError, match="which no store contains") as caught:
        getattr(objects, read)("job/b", 1 << 20)
    assert caught.value.code is ErrorCode.NOT_A_FILE
    assert "job/b" in str(caught.value)


@pytest.mark.parametrize("kind", SPECIAL)
def test_its_name_is_taken_like_any_other_and_can_be_freed(objects, kind):
    place(Path(objects.uri) / "job" / "b", kind)
    assert objects.list("job/") == ["job/a", "job/b"]
    assert objects.children("job/") == ["a", "b"]
    assert objects.size("job/b") is not None
    assert not objects.put_if_absent("job/b", b"mine")
    objects.delete("job/b")
    assert objects.put_if_absent("job/b", b"mine")
    assert (Path(objects.uri).parent / "secret").read_bytes() == b"not of the store"


def test_no_folder_of_a_store_is_a_link(objects, tmp_path):
    """Neither reading nor writing nor deleting leaves the store, and a job is not just empty."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"theirs")
    (Path(objects.uri) / "linked").symlink_to(outside)
    attempts = [
        lambda: objects.get("linked/a"),
        lambda: objects.size("linked/a"),
        lambda: objects.put("linked/a", b"x"),
        lambda: objects.put_if_absent("linked/b", b"x"),
        lambda: objects.delete("linked/a"),
        lambda: objects.list("linked/"),
        lambda: objects.children("linked/"),
    ]
    for attempt in attempts:
        with pytest.raises(CorruptCheckpointError, match="linked is a link") as caught:
            attempt()
        assert caught.value.code is ErrorCode.NOT_A_FILE
    assert objects.list("") == ["job/a", "linked"]
    assert [path.name for path in outside.iterdir()] == ["a"]


def test_the_root_may_be_a_link(objects, tmp_path):
    (tmp_path / "elsewhere").symlink_to(objects.uri)
    assert LocalObjectStore(tmp_path / "elsewhere").get("job/a") == b"1"


@pytest.mark.parametrize("name", [b"\xff\xfe", "ä b".encode(), b"new\nline", b"x" * 255])
def test_names_that_no_key_can_have_are_in_no_listing(objects, name):
    (Path(objects.uri) / "job" / os.fsdecode(name)).write_bytes(b"")
    listed = [key for key in objects.list("job/") if key != "job/a"]
    assert listed == ([f"job/{'x' * 255}"] if name == b"x" * 255 else [])


def test_a_huge_file_costs_no_memory_before_its_length_is_known(objects):
    """A terabyte of holes, in a process that may have 512 MiB more than it needs to start."""
    with (Path(objects.uri) / "job" / "b").open("wb") as file:
        file.truncate(1 << 40)
    script = (
        "import psutil, resource, sys\n"
        "from laminar_core.objectstore.local import LocalObjectStore\n"
        "objects = LocalObjectStore(sys.argv[1])\n"
        "used = psutil.Process().memory_info().vms\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)\n"
        "for size_max in (1 << 20, 1 << 40):\n"
        "    try:\n"
        "        objects.get('job/b', size_max)\n"
        "    except Exception as error:\n"
        "        print(error.code.value)\n"
    )
    command = [sys.executable, "-c", script, objects.uri]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["object-too-large", "store-io"]
