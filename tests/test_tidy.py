"""House rules that no linter knows: short code, no loose ends, a test for each module."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = (
    "laminar_core",
    "jobs",
    "resources",
    "sensors",
    "orchestration",
    "verification",
    "examples",
    "benchmarks",
    "scripts",
    "tests",
)
MODULES = sorted(str(p.relative_to(ROOT)) for f in FOLDERS for p in (ROOT / f).rglob("*.py"))
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 50
LOOSE_ENDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
SKIP = re.compile(r"pytest\.(mark\.)?(skip|skipif|xfail)")

COVERED_ELSEWHERE = {
    "laminar_core/protocol/alignment_events.py": "tests/protocol/test_alignment.py",
    "laminar_core/protocol/alignment_state.py": "tests/protocol/test_alignment.py",
    "laminar_core/protocol/coordinator_config.py": "tests/protocol/test_coordinator.py",
    "laminar_core/protocol/coordinator_events.py": "tests/protocol/test_coordinator.py",
    "laminar_core/_version.py": "tests/driver/recovery/test_start.py",
    "laminar_core/records/pin.py": "tests/retention/test_decision.py",
    "laminar_core/protocol/recovery_facts.py": "tests/protocol/test_recovery.py",
    "laminar_core/retention/facts.py": "tests/retention/test_decision.py",
    "laminar_core/retention/files.py": "tests/retention/test_decision.py",
    "laminar_core/retention/view.py": "tests/retention/test_decision.py",
    "laminar_core/protocol/types.py": "tests/protocol/test_alignment.py",
    "laminar_core/cli/__main__.py": "tests/spark/test_kills.py",
    "laminar_core/cli/recovery_view.py": "tests/cli/test_recover.py",
    "laminar_core/driver/drill/stand_ins.py": "tests/driver/drill/test_drill.py",
    "laminar_core/store/checkpoint_copy.py": "tests/driver/drill/test_drill.py",
    "laminar_core/store/generation_summary.py": "tests/store/test_generations.py",
    "laminar_core/store/drills.py": "tests/driver/drill/test_drill.py",
    "laminar_core/records/drill.py": "tests/driver/drill/test_drill.py",
    "laminar_core/connectors/base.py": "tests/connectors",
    "laminar_core/operators/base.py": "tests/operators",
    "laminar_core/store/savepoint_import.py": "tests/driver/recovery/test_importing.py",
    "laminar_core/retention/apply.py": "tests/retention/test_crashes.py",
    "laminar_core/cli/retention_view.py": "tests/cli/test_retention.py",
    "laminar_core/records/record.py": "tests/records/test_manifest.py",
    "laminar_core/records/segment.py": "tests/records/test_manifest_versions.py",
    # Worker and coordinator are tested as what they are: parts of one simulated job.
    "laminar_core/driver/checkpointing.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/driver/commits.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/driver/coordination.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/driver/coordinator_thread.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/driver/options.py": "tests/pipeline/test_job.py",
    "laminar_core/worker/snapshots.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/spark/stage.py": "tests/spark/test_kills.py",
    "laminar_core/plan/state_options.py": "tests/pipeline/test_state_config.py",
    "laminar_core/worker/task.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/worker/wiring.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/worker/worker.py": "tests/driver/test_execution.py",
    "laminar_core/worker/progress.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/testing": "tests/simulated/test_exactly_once.py",
}
"""Modules, or whole packages, without a mirror, and the test that would fail if they were wrong."""


def functions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Name and length in lines, docstring excluded, of each function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            said = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) else 0
            yield node.name, node.end_lineno - node.lineno + 1 - said


def unexplained_skips(tree: ast.AST) -> Iterator[int]:
    """Lines where a test is skipped, or expected to fail, without a reason in words."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    explained = {
        id(call.func)
        for call in calls
        if any(keyword.arg == "reason" for keyword in call.keywords)
        or (ast.unparse(call.func) in {"pytest.skip", "pytest.xfail"} and call.args)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and SKIP.fullmatch(ast.unparse(node)):
            yield from [] if id(node) in explained else [node.lineno]


SOCKETS = "laminar_core/link/sockets.py"
MAKES_SOCKETS = re.compile(
    r"zmq\.Context|\.socket$|socket\.(socketpair|fromfd|create_\w+)|(Server|start_server)$"
)


def made_sockets(tree: ast.AST) -> list[str]:
    """Calls that make a socket, or something that listens on one."""
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if MAKES_SOCKETS.search(call)]


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("laminar_core/")])
def test_sockets_are_made_in_one_place_that_bounds_them(module: str) -> None:
    made = made_sockets(ast.parse((ROOT / module).read_text()))
    assert bool(made) is (module == SOCKETS), made


FOREIGN_READERS = re.compile(r"pyarrow\.(csv|dataset|feather|json|orc|parquet)\b")
"""Native code that reads what somebody else wrote; a fault in it ends the process."""

GUARDED_READERS = {
    "laminar_core/connectors/parquet_files.py": "footers, in the driver: only the format's checks",
    "laminar_core/connectors/parquet_source.py": "reads in workers: a crash costs one process",
    "laminar_core/connectors/parquet_sink.py": "writes",
    "laminar_core/connectors/parquet_commit.py": "reads what the sink wrote and listed",
    "jobs/loop_data.py": "writes its own input",
    "jobs/payments_data.py": "writes its own input",
    "examples/oracle.py": "reads the output of its own job",
}
"""Where readers of foreign bytes may be imported, and why that is well (CONTRIBUTING)."""


def foreign_readers(tree: ast.AST) -> set[str]:
    """Readers of foreign bytes that a module imports, in whatever way."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and "import" in ast.unparse(node.func):
            names |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
    return {name for name in names if FOREIGN_READERS.match(name)}


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith("tests/")])
def test_readers_of_foreign_bytes_are_imported_where_they_are_guarded(module: str) -> None:
    found = foreign_readers(ast.parse((ROOT / module).read_text()))
    assert bool(found) is (module in GUARDED_READERS), found


@pytest.mark.parametrize(
    "line",
    [
        "import pyarrow.json",
        "import pyarrow.csv as c",
        "from pyarrow import dataset",
        "from pyarrow.orc import ORCFile",
        "importlib.import_module('pyarrow.json')",
        "def late():\n    import pyarrow.feather",
    ],
)
def test_every_way_to_import_such_a_reader_is_seen(line: str) -> None:
    assert foreign_readers(ast.parse(line))


PROSE = {"reason", "description", "message", "problem", "why", "detail", "complaint"}
"""Names of texts that are for people; a fact that decides something has a field of its own."""
SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "count"}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer"}

READS_PROSE = {
    "laminar_core/objectstore/s3_errors.py": "boto's error has no field for the cause",
    "laminar_core/operators/stateless.py": "pyarrow's error has no field for the column",
}
"""Where a foreign library says something in words only."""


def is_prose(node: ast.expr) -> bool:
    """Whether an expression is such a text, or what an error says."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in PROSE
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id="error")]):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr="lower" | "casefold" | "strip")):
            return is_prose(inner)
    return False


def is_words(node: ast.expr) -> bool:
    """Whether an expression is a text that is not empty."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value
    return bool(is_text) or isinstance(node, ast.JoinedStr)


def prose_searches(tree: ast.AST) -> list[str]:
    """Calls and comparisons that look for words in a text for people."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments):
                searched = [value] if method in SEARCHES else []
                searched += arguments if method in PATTERNS else []
                found += [node for each in searched if is_prose(each)]
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[right]):
                found += [node] if is_prose(right) and not is_prose(left) else []
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                sides = {is_prose(left) and is_words(right), is_prose(right) and is_words(left)}
                found += [node] if any(sides) else []
    return [ast.unparse(node) for node in found]


@pytest.mark.parametrize(
    "module", [m for m in MODULES if not m.startswith(("tests/", "laminar_core/cli/"))]
)
def test_nothing_is_decided_by_a_text_that_is_for_people(module: str) -> None:
    found = prose_searches(ast.parse((ROOT / module).read_text()))
    assert bool(found) is (module in READS_PROSE), found


@pytest.mark.parametrize(
    "line",
    [
        "counts = not reason.startswith('subsumed')",
        "'no space' in answer.reason",
        "error.message.lower().endswith('again')",
        "'keyed by' not in description",
        "re.search('gone', problem)",
        "GONE.match(result.reason)",
        "record.reason == 'restarted'",
        "f'by {name}' != why",
        "'throttled' in str(error)",
    ],
)
def test_every_way_to_search_a_text_is_seen(line: str) -> None:
    assert prose_searches(ast.parse(line))


@pytest.mark.parametrize(
    "line", ["reason == before.reason", "reason in (None, '')", "not reason", "reason != ''"]
)
def test_comparing_texts_and_asking_whether_there_is_one_is_no_search(line: str) -> None:
    assert prose_searches(ast.parse(line)) == []


DESCRIBES_INPUTS = {
    "laminar_core/plan/plan.py": "writes the words that the fingerprint is of",
    "laminar_core/driver/recovery/compatibility.py": "compares fingerprints",
    "laminar_core/records/manifest_versions.py": "translates manifests that have no edges",
}


@pytest.mark.parametrize("module", [m for m in MODULES if not m.startswith("tests/")])
def test_how_inputs_are_described_is_known_where_it_must_be(module: str) -> None:
    names = re.search(r"""["']inputs["']|\bINPUTS_KEY\b""", (ROOT / module).read_text())
    assert bool(names) is (module in DESCRIBES_INPUTS)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_short_and_has_no_loose_ends(module: str) -> None:
    source = (ROOT / module).read_text()
    tree = ast.parse(source)
    assert source.count("\n") <= MODULE_LINES_MAX
    assert [(name, n) for name, n in functions(tree) if n > FUNCTION_LINES_MAX] == []
    assert LOOSE_ENDS.findall(source) == []
    assert list(unexplained_skips(tree)) == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("laminar_core/")])
def test_a_module_has_its_own_test(module: str) -> None:
    path = Path(module)
    mirror = Path("tests", *path.parts[1:-1], f"test_{path.name}")
    elsewhere = [COVERED_ELSEWHERE.get(str(place)) for place in (path, path.parent)]
    tests = [mirror, *filter(None, elsewhere)]
    assert path.name == "__init__.py" or any((ROOT / test).exists() for test in tests)


def test_every_test_that_stands_in_for_another_is_there() -> None:
    assert [test for test in COVERED_ELSEWHERE.values() if not (ROOT / test).exists()] == []
    assert [module for module in COVERED_ELSEWHERE if not (ROOT / module).exists()] == []
