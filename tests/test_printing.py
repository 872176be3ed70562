"""House rule: what is printed for people is escaped."""

import ast

import pytest

from tests.test_tidy import MODULES, tree_of, unexpected

ECHOES = {
    "laminar_core/host/terminal.py": "escapes what it prints",
    "laminar_core/cli/tables.py": "escapes each cell, and colours it",
}
"""Where text for people is printed; everywhere else only JSON is."""
JSON_MAKERS = {"dumps", "model_dump_json", "to_json"}


def echoed(tree: ast.AST) -> list[str]:
    """Texts that are printed as they are, and are no JSON."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    printed = [call for call in calls if ast.unparse(call.func) in ("click.echo", "echo")]
    return [ast.unparse(call) for call in printed if not (call.args and is_json(call.args[0]))]


def is_json(node: ast.expr) -> bool:
    """Whether an expression is a call that makes JSON, or its decoded bytes."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "decode":
        return is_json(node.func.value)
    return ast.unparse(node.func).rpartition(".")[2] in JSON_MAKERS


def test_text_for_people_is_escaped() -> None:
    core = [module for module in MODULES if module.startswith("laminar_core/")]
    assert unexpected(core, ECHOES, lambda module: echoed(tree_of(module))) == {}


@pytest.mark.parametrize(
    ("line", "is_seen"),
    [
        ("click.echo(name)", True),
        ("click.echo()", True),
        ("click.echo(f'{name}')", True),
        ("click.echo(json.dumps(x) if as_json else name)", True),
        ("click.echo(json.dumps(x, indent=1))", False),
        ("click.echo(record.model_dump_json())", False),
        ("click.echo(to_json(x).decode())", False),
    ],
)
def test_a_text_that_is_printed_as_it_is_is_seen(line: str, *, is_seen: bool) -> None:
    assert bool(echoed(ast.parse(line))) is is_seen
