"""The memory of a container is the smallest limit of its control groups."""

from pathlib import Path

import psutil
import pytest

from laminar_core.spark.doctor.memory import memory_limit_bytes

LIMIT = 64 << 20


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    "limit_file",
    ["memory.max", "kubepods/memory.max", "kubepods/pod7/memory.max"],
    ids=["root", "parent", "own"],
)
def test_the_limit_may_be_that_of_a_parent(tmp_path: Path, limit_file: str):
    write(tmp_path, "proc/self/cgroup", "0::/kubepods/pod7\n")
    write(tmp_path, "sys/fs/cgroup/kubepods/pod7/memory.max", "max\n")
    write(tmp_path, f"sys/fs/cgroup/{limit_file}", f"{LIMIT}\n")
    assert memory_limit_bytes(tmp_path) == LIMIT


def test_the_older_kind_of_groups_has_a_folder_for_memory(tmp_path: Path):
    write(tmp_path, "proc/self/cgroup", "7:cpu:/x\n5:memory:/docker/ab\n")
    write(tmp_path, "sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", f"{LIMIT}\n")
    assert memory_limit_bytes(tmp_path) == LIMIT


@pytest.mark.parametrize("groups", ["", "0::/\n", "not one\n", "0::/../../../etc\n"], ids=repr)
def test_without_a_limit_it_is_the_memory_of_the_machine(tmp_path: Path, groups: str):
    write(tmp_path, "proc/self/cgroup", groups)
    assert memory_limit_bytes(tmp_path) == psutil.virtual_memory().total
