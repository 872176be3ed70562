"""The task speaks for its host even where Laminar cannot be imported."""

import subprocess
import sys

from laminar_core._version import __version__
from laminar_core.spark.doctor import task


def test_a_host_without_laminar_says_so_and_nothing_is_tried_together(monkeypatch):
    monkeypatch.setitem(sys.modules, "laminar_core.spark.doctor.joint", None)
    said: list[str] = []

    def gather(text: str) -> list[str]:
        said.append(text)
        return [text, "yes"]

    facts = task.report(b"", 3, "h", gather)
    assert said == ["no"]
    assert "laminar_core.spark.doctor.joint" in str(facts["problem"])
    assert (facts["task"], facts["host"], "joint" in facts) == (3, "h", False)


def test_a_host_with_laminar_waits_for_those_without():
    facts = task.report(b"", 0, "h", lambda text: [text, "no"])
    assert "problem" not in facts
    assert "joint" not in facts


def test_versions_are_those_that_are_installed():
    assert task.versions()["laminar-core"] == __version__
    assert set(task.versions()) == set(task.DISTRIBUTIONS)


def test_the_module_needs_the_standard_library_alone():
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('laminar_core', 'pyspark', 'pyarrow')))\n"
        f"source = open({task.__file__!r}).read()\n"
        "names = {}; exec(compile(source, 'task', 'exec'), names)\n"
        "found = names['report'](b'', 1, 'h', lambda text: [text])\n"
        "assert found['problem'] and found['versions']['laminar-core'] is None, found\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, timeout=60)
