"""House rules that no linter knows: short code, no loose ends, a test for each module."""

import ast
import gc
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
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

TESTED = FOLDERS[:7]
PRODUCT = [module for module in MODULES if not module.startswith("tests/")]


@cache
def source_of(module: str) -> str:
    return (ROOT / module).read_text()


@cache
def tree_of(module: str) -> ast.Module:
    """Return what a module says. Looking for garbage among millions of nodes takes minutes."""
    gc.disable()
    try:
        return ast.parse(source_of(module))
    finally:
        gc.freeze()
        gc.enable()


def broken(modules: Iterable[str], rule: Callable[[str], object]) -> dict[str, object]:
    """Return the modules that break a rule, each with what the rule found."""
    return {module: said for module in modules if (said := rule(module))}


def unexpected(
    modules: Iterable[str], expected: Iterable[str], find: Callable[[str], object]
) -> dict[str, object]:
    """Return the modules with unexpected findings, and those that lack an expected one."""
    found = broken(modules, find)
    missing = dict.fromkeys({*expected} - found.keys(), "nothing is found here any more")
    return {m: what for m, what in found.items() if m not in {*expected}} | missing


"""Folders whose modules have a test each; ``laminar bench`` and make run the rest."""

COVERED_ELSEWHERE = {
    "laminar_core/pipeline/stream.py": "tests/pipeline/test_builder.py",
    "laminar_core/_version.py": "tests/test_version.py",
    "laminar_core/connectors/outlook.py": "tests/driver/recovery/test_sinks.py",
    "laminar_core/connectors/files/arrow_file.py": "tests/connectors/files/test_parquet_rows.py",
    "laminar_core/connectors/output_directory.py": "tests/connectors/test_parquet_recovery.py",
    "laminar_core/connectors/output_place.py": "tests/connectors/test_parquet_commit.py",
    "laminar_core/connectors/output_places.py": "tests/connectors/test_output_bucket.py",
    "laminar_core/objectstore/azure_requests.py": "tests/objectstore/test_azure.py",
    "laminar_core/objectstore/bucket_options.py": "tests/objectstore/test_s3_options.py",
    "laminar_core/objectstore/sending.py": "tests/objectstore/test_s3_requests.py",
    "laminar_core/objectstore/s3_staged.py": "tests/connectors/test_output_bucket.py",
    "laminar_core/driver/recovery/sources.py": "tests/driver/recovery/test_gaps.py",
    "laminar_core/protocol/alignment_events.py": "tests/protocol/test_alignment.py",
    "laminar_core/protocol/alignment_state.py": "tests/protocol/test_alignment.py",
    "laminar_core/protocol/coordinator_config.py": "tests/protocol/test_coordinator.py",
    "laminar_core/protocol/coordinator_events.py": "tests/protocol/test_coordinator.py",
    "laminar_core/protocol/recovery_facts.py": "tests/protocol/test_recovery.py",
    "laminar_core/protocol/types.py": "tests/protocol/test_alignment.py",
    "laminar_core/records/channel_entries.py": "tests/records/test_manifest_versions.py",
    "laminar_core/records/manifest_fields.py": "tests/records/test_manifest_versions.py",
    "laminar_core/records/drill.py": "tests/records/test_golden_records.py",
    "laminar_core/records/pin.py": "tests/retention/test_decision.py",
    "laminar_core/records/record.py": "tests/records/test_limits.py",
    "laminar_core/records/segment.py": "tests/state/test_segment_chain.py",
    "laminar_core/store/checkpoint_copy.py": "tests/driver/drill/test_drill.py",
    "laminar_core/store/generation_summary.py": "tests/store/test_generations.py",
    "laminar_core/store/savepoint_import.py": "tests/driver/recovery/test_importing.py",
    "laminar_core/connectors/base.py": "tests/worker/test_sinks.py",
    "laminar_core/connectors/kafka/cluster.py": "tests/connectors/kafka/test_search.py",
    "laminar_core/connectors/kafka/facts.py": "tests/connectors/kafka/test_partitions.py",
    "laminar_core/connectors/kafka/marker_log.py": "tests/connectors/kafka/test_committer.py",
    "laminar_core/connectors/kafka/producing.py": "tests/connectors/kafka/test_committer.py",
    "laminar_core/metrics/changes.py": "tests/metrics/test_mapping.py",
    "laminar_core/operators/base.py": "tests/operators/test_running.py",
    "laminar_core/operators/process/declared.py": "tests/operators/process/test_kept_entries.py",
    "laminar_core/operators/process/given.py": "tests/operators/process/test_values.py",
    "laminar_core/plan/state_options.py": "tests/test_configuration.py",
    "laminar_core/worker/progress.py": "tests/simulated/test_exactly_once.py",
    "laminar_core/driver/hosting.py": "tests/driver/test_checkpointing.py",
    "laminar_core/driver/options.py": "tests/pipeline/test_job.py",
    "laminar_core/driver/drill/stand_ins.py": "tests/driver/drill/test_drill.py",
    "laminar_core/retention/apply.py": "tests/retention/test_crashes.py",
    "laminar_core/retention/facts.py": "tests/retention/test_decision.py",
    "laminar_core/retention/files.py": "tests/retention/test_decision.py",
    "laminar_core/retention/view.py": "tests/retention/test_decision.py",
    "laminar_core/testing/aggregate_jobs.py": "tests/testing/test_scenarios.py",
    "laminar_core/testing/disaster_kinds.py": "tests/testing/test_disasters.py",
    "laminar_core/testing/restored_view.py": "tests/verification/test_corruption_campaign.py",
    "laminar_core/pipeline/event_lines.py": "tests/pipeline/test_display.py",
    "jobs/loop_data.py": "tests/jobs/test_loop.py",
    "jobs/payments.py": "tests/spark/test_recovery.py",
    "resources/checkpoints.py": "tests/orchestration/launching/test_move_job.py",
    "resources/drivers/launcher.py": "tests/resources/drivers/test_kubernetes_launcher.py",
    "resources/drivers/process.py": "tests/resources/drivers/test_supervised.py",
    "sensors/alignment/facts.py": "tests/sensors/alignment/test_sensor.py",
    "sensors/facts/audit_follower.py": "tests/sensors/observer/test_job_observations.py",
    "sensors/facts/integrity_records.py": "tests/sensors/recovery/test_candidates.py",
    "sensors/facts/job_facts.py": "tests/orchestration/test_checks.py",
    "sensors/facts/stored_checkpoints.py": "tests/sensors/observer/test_checkpoint_metadata.py",
    "sensors/observer/new_records.py": "tests/sensors/observer/test_observer_of_jobs.py",
    "sensors/recovery/facts.py": "tests/sensors/recovery/test_sensor.py",
    "sensors/source_retention/sensor.py": "tests/sensors/source_retention/test_decision.py",
    "orchestration/factory.py": "tests/orchestration/test_assets.py",
    "orchestration/streams.py": "tests/orchestration/test_definitions.py",
    "orchestration/housekeeping/chores.py": "tests/orchestration/housekeeping/test_audit_jobs.py",
    "orchestration/housekeeping/definitions.py": "tests/orchestration/test_watching.py",
    "orchestration/launching/launch.py": "tests/orchestration/launching/test_deployment.py",
    "orchestration/launching/restart.py": "tests/orchestration/launching/test_recovery.py",
    "orchestration/launching/restore_forms.py": "tests/orchestration/launching/test_recovery.py",
    "orchestration/launching/supervised_run.py": "tests/orchestration/launching/test_deployment.py",
    "verification/brokers/cases.py": "tests/verification/brokers/test_campaign.py",
    "verification/brokers/incoming.py": "tests/verification/brokers/test_campaign.py",
    "verification/brokers/outgoing.py": "tests/verification/brokers/test_campaign.py",
    "verification/brokers/relay_driver.py": "tests/verification/brokers/test_kills.py",
    "verification/brokers/relay_run.py": "tests/verification/brokers/test_kills.py",
    "verification/processes/cluster.py": "tests/verification/brokers/test_kills.py",
    "verification/brokers/place.py": "tests/verification/brokers/test_campaign.py",
    "verification/corruption.py": "tests/verification/test_corruption_campaign.py",
    "verification/forged_stores.py": "tests/verification/commands/test_forgeries.py",
    "verification/hosts/faults.py": "tests/hosts/test_faults.py",
    "verification/hosts/host.py": "tests/verification/hosts/test_network.py",
    "verification/hosts/namespaces.py": "tests/verification/hosts/test_network.py",
    "verification/hosts/spark_cluster.py": "tests/hosts/test_faults.py",
    "verification/hosts/stream.py": "tests/hosts/test_faults.py",
    "examples/operations/stream.py": "tests/examples/operations/test_steps.py",
}
"""Modules without a mirror, and the test that imports them and would fail if they were wrong."""

RUN_BY_NAME = {
    "laminar_core/cli/recovery_view.py": "tests/cli/test_recover.py",
    "laminar_core/cli/top_view.py": "tests/cli/test_top.py",
    "laminar_core/cli/retention_view.py": "tests/cli/test_retention.py",
    "laminar_core/cli/__main__.py": "tests/spark/test_kills.py",
    "resources/drivers/guard.py": "tests/resources/drivers/test_supervised.py",
    "verification/__main__.py": "tests/verification/conftest.py",
    "examples/exactly_once/__main__.py": "tests/examples/exactly_once/test_main.py",
    "examples/kafka_to_kafka/__main__.py": "tests/examples/kafka_to_kafka/test_main.py",
    "examples/operations/__main__.py": "tests/orchestration/test_operations.py",
    "examples/operations/definitions.py": "tests/examples/operations/test_server.py",
    "examples/operations/screenshots.py": "tests/examples/operations/test_browser.py",
}
"""Programs and commands without a mirror, and the test that runs them."""


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
        or (call.args and ast.unparse(call.func) in {"pytest.skip", "pytest.xfail"})
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in explained:
            continue
        if node.attr in ("skip", "skipif", "xfail") and SKIP.fullmatch(ast.unparse(node)):
            yield node.lineno


def test_what_breaks_a_rule_and_what_is_exempt_without_need_are_named() -> None:
    found = {"a.py": ["socket"], "b.py": ["socket"], "c.py": []}
    assert unexpected(found, ["b.py", "c.py"], found.get) == {
        "a.py": ["socket"],
        "c.py": "nothing is found here any more",
    }


SOCKETS = "laminar_core/link/sockets.py"
MAKES_SOCKETS = re.compile(
    r"zmq\.Context|\.socket$|socket\.(socketpair|fromfd|create_\w+)|(Server|start_server)$"
)


def made_sockets(tree: ast.AST) -> list[str]:
    """Calls that make a socket, or something that listens on one."""
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if MAKES_SOCKETS.search(call)]


def test_sockets_are_made_in_one_place_that_bounds_them() -> None:
    core = [module for module in MODULES if module.startswith("laminar_core/")]
    assert unexpected(core, [SOCKETS], lambda module: made_sockets(tree_of(module))) == {}


FOREIGN_READERS = re.compile(r"pyarrow\.(csv|dataset|feather|json|orc|parquet)\b")
"""Native code that reads what somebody else wrote; a fault in it ends the process."""

GUARDED_READERS = {
    "laminar_core/connectors/formats/csv_lines.py": "one line per message, and lines around them",
    "laminar_core/connectors/formats/json_decoding.py": "wraps each message, examines what it must",
    "laminar_core/connectors/files/parquet_rows.py": "reads in workers: a crash costs one process",
    "laminar_core/connectors/parquet_files.py": "types of footers only",
    "laminar_core/connectors/parquet_footers.py": "in the driver: only the format's checks",
    "laminar_core/connectors/parquet_reading.py": "reads in workers: a crash costs one process",
    "laminar_core/connectors/parquet_sink.py": "writes",
    "laminar_core/cli/savepoint_create.py": "reads what its user gives it, in a command",
    "laminar_core/connectors/parquet_commit.py": "reads what the sink wrote and listed",
    "jobs/loop_data.py": "writes its own input",
    "jobs/slippage_answer.py": "reads what slippage_data wrote",
    "jobs/data_sets.py": "writes",
    "examples/oracle.py": "reads the output of its own job",
    "benchmarks/payments_systems/bytewax_flow.py": "writes",
    "benchmarks/join_systems/batch.py": "reads what question.py wrote",
    "benchmarks/join_systems/job.py": "reads the output of its own job",
    "benchmarks/join_systems/question.py": "writes",
    "benchmarks/payments_systems/by_hand.py": "reads what question.py wrote",
    "benchmarks/payments_systems/question.py": "reads what the benchmark's own systems wrote",
    "benchmarks/topics/client.py": "reads messages that the benchmark wrote",
    "verification/brokers/incoming.py": "wrong on purpose, and reads its own messages",
    "verification/hosts/answer.py": "reads the output of its own job",
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


def test_readers_of_foreign_bytes_are_imported_where_they_are_guarded() -> None:
    assert unexpected(PRODUCT, GUARDED_READERS, lambda m: foreign_readers(tree_of(m))) == {}


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


PROSE = {"actor", "reason", "description", "message", "problem", "why", "detail"}
"""Names of texts that are for people; a fact that decides something has a field of its own."""
SEARCHES = {"startswith", "endswith", "find", "rfind", "index", "count"}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer"}

READS_PROSE = {
    "laminar_core/objectstore/s3_errors.py": "boto's error has no field for the cause",
    "laminar_core/operators/stateless.py": "pyarrow's error has no field for the column",
    "laminar_core/worker/imports.py": "Spark carries a Python error in words only",
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


def test_nothing_is_decided_by_a_text_that_is_for_people() -> None:
    assert unexpected(PRODUCT, READS_PROSE, lambda module: prose_searches(tree_of(module))) == {}


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


RIDDLE = re.compile(
    r"\s*(What|That of|Those (of|that)|The same|Whose|Of|So (many|long|often|far)|As many)\b"
)
"""Beginnings that leave open who does what; a docstring names its subject."""

COINED = re.compile(
    r"\b(told|telling|mandates?|wish(es|ed)?|taker|desk|troubles?|nobody|somebody|whoever|that of"
    r"|of which|of whom)\b",
    re.IGNORECASE,
)
"""Words in place of the field's own: report, owner, lease, and whom or what one means."""


CODE = re.compile(r"``.*?``", re.DOTALL)
"""A name in a docstring: the rules are for its words."""


def docstrings(tree: ast.AST, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield qualified name and text of each docstring of a public definition, attributes too."""
    body = tree.body if isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef) else []
    for before, node in zip([None, *body], body, strict=False):
        match before, node:
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                yield f"{name}{ast.unparse(target)}", text
            case None, ast.Expr(value=ast.Constant(value=str(text))):
                yield name.rstrip("."), text
            case _, ast.ClassDef(name=inner) | ast.FunctionDef(name=inner):
                if not inner.startswith("_") or inner.endswith("__"):
                    yield from docstrings(node, f"{name}{inner}.")


def riddles(module: str) -> list[tuple[str, str]]:
    return [(name, text) for name, text in docstrings(tree_of(module)) if RIDDLE.match(text)]


def coined_words(module: str) -> list[tuple[str, str]]:
    said = docstrings(tree_of(module))
    return [(name, text) for name, text in said if COINED.search(CODE.sub("", text))]


def test_a_docstring_says_who_does_what() -> None:
    assert broken(MODULES, riddles) == {}


def test_a_docstring_has_the_words_of_the_field() -> None:
    assert broken(PRODUCT, coined_words) == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""What the store says."""',
        'def f():\n    """Return the one that nobody claimed."""',
        'class C:\n    """The same in JSON."""',
        'class C:\n    n: int = 0\n    """Of the record that it is about."""',
        'class C:\n    def f(self):\n        """Refuse two wishes at once."""',
    ],
)
def test_every_kind_of_riddle_is_seen(source: str) -> None:
    ((_, text),) = docstrings(ast.parse(source))
    assert RIDDLE.match(text) or COINED.search(text)


DESCRIBES_INPUTS = {
    "laminar_core/plan/plan.py": "writes the words that the fingerprint is of",
    "laminar_core/driver/recovery/compatibility.py": "compares fingerprints",
    "laminar_core/driver/recovery/source_changes.py": "compares the inputs that stay",
    "laminar_core/driver/recovery/rechaining.py": "writes the inputs of another chain",
    "laminar_core/driver/recovery/renaming.py": "writes the inputs with other names",
    "laminar_core/driver/recovery/column_names.py": "writes the inputs with keys of other names",
    "laminar_core/driver/recovery/inserting.py": "compares and writes the inputs that moved",
    "laminar_core/records/manifest_versions.py": "translates manifests that have no edges",
}


NAMES_INPUTS = re.compile(r"""["']inputs["']|\bINPUTS_KEY\b""")


def test_how_inputs_are_described_is_known_where_it_must_be() -> None:
    found = unexpected(PRODUCT, DESCRIBES_INPUTS, lambda m: NAMES_INPUTS.findall(source_of(m)))
    assert found == {}


def test_a_module_is_short() -> None:
    lines = {module: source_of(module).count("\n") for module in MODULES}
    assert {module: n for module, n in lines.items() if n > MODULE_LINES_MAX} == {}


def test_a_function_is_short() -> None:
    def long(module: str) -> list[tuple[str, int]]:
        return [(name, n) for name, n in functions(tree_of(module)) if n > FUNCTION_LINES_MAX]

    assert broken(MODULES, long) == {}


def test_there_are_no_loose_ends() -> None:
    assert broken(MODULES, lambda module: LOOSE_ENDS.findall(source_of(module))) == {}


def test_a_test_that_is_skipped_says_why() -> None:
    assert broken(MODULES, lambda module: [*unexplained_skips(tree_of(module))]) == {}


ELSEWHERE = COVERED_ELSEWHERE | RUN_BY_NAME


def mirror_of(module: str) -> str:
    """Return where the test of a module is."""
    path = Path(module)
    folders = path.parts[1:-1] if path.parts[0] == "laminar_core" else path.parts[:-1]
    return str(Path("tests", *folders, f"test_{path.name}"))


@cache
def places_of(name: str) -> list[str]:
    """Return where a module is; one in a folder that is linked is in two places."""
    path = name.replace(".", "/")
    inner = path.removeprefix("laminar_core/")
    places = (f"{path}.py", f"{path}/__init__.py", f"{inner}.py", f"{inner}/__init__.py")
    return [place for place in dict.fromkeys(places) if (ROOT / place).exists()]


@cache
def imported_by(module: str) -> frozenset[str]:
    """Return the modules of this repository that a module imports, wherever it does."""
    return frozenset(_imported_by(module))


def _imported_by(module: str) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            yield from places_of(name)


def reached_from(test: str) -> set[str]:
    """Return every module that is imported when ``test`` is."""
    reached, left = set[str](), [test]
    while left:
        module = left.pop()
        if module not in reached:
            reached.add(module)
            left.extend(imported_by(module))
    return reached


def test_a_module_has_its_own_test() -> None:
    modules = [m for m in MODULES if m.startswith(TESTED) and Path(m).name != "__init__.py"]
    assert unexpected(modules, ELSEWHERE, lambda m: not (ROOT / mirror_of(m)).exists()) == {}


def test_every_test_that_stands_in_for_another_is_there() -> None:
    assert [test for test in ELSEWHERE.values() if not (ROOT / test).exists()] == []
    assert [module for module in ELSEWHERE if not (ROOT / module).exists()] == []


def test_a_test_that_stands_in_for_another_reaches_the_module() -> None:
    missed = [m for m, test in COVERED_ELSEWHERE.items() if m not in reached_from(test)]
    assert missed == []


@pytest.mark.parametrize(("document", "least"), [("CONTRIBUTING.md", 12), ("ARCHITECTURE.md", 15)])
def test_every_place_in_the_tables_for_newcomers_is_there(document: str, least: int) -> None:
    text = (ROOT / document).read_text()
    rows = [re.split(r"(?<!\\)\|", line)[2:-1] for line in text.splitlines() if line[:2] == "| "]
    cells = [[name for cell in row for name in re.findall(r"`([^`]+)`", cell)] for row in rows]
    named = [[name for name in row if "/" in name or name.endswith(".py")] for row in cells]
    assert len([row for row in named if row]) >= least
    names = {name for row in named for name in row}
    assert [name for name in sorted(names) if not is_somewhere(name)] == []


def is_somewhere(name: str) -> bool:
    """A place from the top, or within the package, or a test that is called by its file's name."""
    places = [ROOT / name, ROOT / "laminar_core" / name]
    return any(place.exists() for place in places) or any((ROOT / "tests").rglob(name))


LINUX_ONLY = re.compile(
    r"/(proc|sys|dev/shm)\b|\b(ctypes|eventfd\w*|pidfd_\w+|memfd_create|sched_\w+|posix_fadvise"
    r"|copy_file_range|prctl|waitid|signalfd|sigtimedwait|pipe2|SO_PEERCRED|O_DIRECT|O_TMPFILE|O_PATH"
    r"|SOCK_CLOEXEC|SOCK_NONBLOCK)\b"
)
"""Names that type checking for macOS (``make check``) overlooks, or meets most often."""

ASKS_FIRST = {
    "laminar_core/host/process_memory.py": "asks the library first; without: memory is returned",
    "laminar_core/store/owner.py": "looks at the platform first; without: owners are unknown",
    "laminar_core/link/doors.py": "looks at the platform first; without: the limit of descriptors",
    "resources/drivers/guard.py": "looks at the platform first; without: the driver lives on",
    "verification/hosts/host.py": "hosts are namespaces of Linux; needs.py asks first",
    "verification/hosts/namespaces.py": "hosts are namespaces of Linux; needs.py asks first",
}


def test_nothing_is_for_linux_alone() -> None:
    """``psutil`` knows processes and open files on macOS as well."""
    modules = [module for module in MODULES if module.split("/")[0] in TESTED]
    assert unexpected(modules, ASKS_FIRST, lambda m: LINUX_ONLY.findall(source_of(m))) == {}


def test_types_are_checked_for_macos_too() -> None:
    """The standard library's types say which names each platform has."""
    assert "check-types-macos" in commands_of("check")
    assert "pyright --pythonplatform Darwin --pythonversion 3.11\n" in commands_of("check")


def commands_of(target: str) -> str:
    """Return what ``make`` would run."""
    command = ["make", "--dry-run", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
