"""Hostile messages in a process that may die, hang or take all memory: each is a problem."""

import json

import pytest

from verification.commands import messages
from verification.commands.messages import MessageProblem, try_messages

SEEDS = range(30)
"""``python -m verification messages 5000`` tries more."""


@pytest.mark.large
def test_every_format_survives_hostile_messages_and_judges_each_by_itself(verify) -> None:
    assert list(try_messages(SEEDS)) == []
    result = verify("messages", 2, "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == {
        "event": "summary",
        "batches": 2,
        "formats": 6,
        "problems": 0,
    }


DIES_AT_THREE = """
import os, sys
from verification.commands import messages
real = messages.draw_batch
messages.decode.__globals__["problem_of"] = lambda decoder, values: None
def draw(random, draw):
    return []
class Seeded:
    def __init__(self, text):
        if text.endswith(" 3"):
            ENDING
messages.decode.__globals__["Random"] = Seeded
messages.decode.__globals__["draw_batch"] = lambda random, draw: []
messages.decode()
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("ending", "problem"),
    [
        ("os.kill(os.getpid(), 11)", "exit code -11 "),
        ("print('problem 3 wrong', flush=True)", "wrong"),
        ("bytearray(3 << 30)", "exit code 1 MemoryError"),
        ("raise ValueError('oops')", "exit code 1 ValueError: oops"),
    ],
)
def test_a_process_that_ends_is_a_problem_of_its_seed_and_the_rest_is_tried(
    monkeypatch: pytest.MonkeyPatch, ending: str, problem: str
) -> None:
    monkeypatch.setattr(messages, "_DECODE", DIES_AT_THREE.replace("ENDING", ending))
    found = list(try_messages(range(6)))
    assert set(found) == {MessageProblem(3, problem)}


def test_the_exit_code_says_that_something_was_wrong(monkeypatch, verify) -> None:
    monkeypatch.setattr(messages, "try_messages", lambda _: [MessageProblem(7, "wrong")])
    result = verify("messages", 9)
    assert result.exit_code == 1
    assert "seed 7: wrong; again: python -m verification messages 1 --from 7" in result.output
    assert json.loads(verify("messages", 9, "--json").output.splitlines()[0])["seed"] == 7
