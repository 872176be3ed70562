"""A process reuses freed memory without page faults, and garbage collections skip its modules."""

import ctypes
import gc
import os
import subprocess
import sys

import pyarrow as pa
import pytest

from laminar_core.host import process_memory
from laminar_core.host.process_memory import (
    keep_freed_arrow_memory,
    keep_freed_memory,
    spare_what_is_loaded,
)

FAULTS = """
import ctypes, resource, sys
import numpy as np
from laminar_core.host.process_memory import keep_freed_memory

HUGE_PAGES_DISABLED = 41
ctypes.CDLL(None).prctl(HUGE_PAGES_DISABLED, 1, 0, 0, 0)
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit("this C library has no mallopt")

def batch():
    arrays = [np.ones(131_072) for _ in range(8)]
    return arrays[0][0]

for _ in range(3):
    batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    batch()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 50)
"""


ARROW_FAULTS = """
import os, resource, sys
from laminar_core.host.process_memory import keep_freed_arrow_memory

if sys.argv[1] == "default":  # The default is some milliseconds; a test cannot wait for them.
    os.environ["MIMALLOC_PURGE_DELAY"] = "0"
keep_freed_arrow_memory()
import pyarrow as pa

pa.set_memory_pool(pa.mimalloc_memory_pool())

def batch():
    return [pa.repeat(1, 131_072) for _ in range(8)][0][0]

for _ in range(3):
    batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    batch()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 50)
"""


def faults_of_a_batch(kept: str, script: str = FAULTS) -> float:
    """Return the page faults for 8 MB in eight arrays, in a process of its own."""
    command = [sys.executable, "-c", script, kept]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc has mallopt")
def test_memory_that_was_freed_is_used_again_without_page_faults():
    assert faults_of_a_batch("default") > 1_000  # So it would show.
    assert faults_of_a_batch("kept") < 20


@pytest.mark.skipif(
    "mimalloc" not in pa.supported_memory_backends(), reason="this pyarrow has no mimalloc"
)
def test_memory_of_arrow_that_was_freed_is_used_again_without_page_faults():
    assert faults_of_a_batch("default", ARROW_FAULTS) > 100
    assert faults_of_a_batch("kept", ARROW_FAULTS) < 20


def test_what_the_environment_says_about_memory_of_arrow_stays(monkeypatch):
    monkeypatch.setenv("MIMALLOC_PURGE_DELAY", "7")
    monkeypatch.delenv("MIMALLOC_ALLOW_THP", raising=False)
    keep_freed_arrow_memory()
    assert os.environ["MIMALLOC_PURGE_DELAY"] == "7"
    assert os.environ.pop("MIMALLOC_ALLOW_THP") == "0"


def test_a_library_without_the_setting_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()


def test_what_is_loaded_is_not_looked_at_again():
    spare_what_is_loaded()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 10_000
