"""A process reuses freed memory without page faults, and garbage collections skip its modules."""

import ctypes
import gc
import subprocess
import sys

import pytest

from laminar_core.host import process_memory
from laminar_core.host.process_memory import keep_freed_memory, spare_what_is_loaded

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


def faults_of_a_batch(kept: str) -> float:
    """Return the page faults for 8 MB in eight arrays, in a process of its own."""
    command = [sys.executable, "-c", FAULTS, kept]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc has mallopt")
def test_memory_that_was_freed_is_used_again_without_page_faults():
    assert faults_of_a_batch("default") > 1_000  # So it would show.
    assert faults_of_a_batch("kept") < 20


def test_a_library_without_the_setting_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda _: object())
    assert not keep_freed_memory()


def test_what_is_loaded_is_not_looked_at_again():
    spare_what_is_loaded()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 10_000
