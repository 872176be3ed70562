"""``python -m verification corruptions`` counts what became of each, and how to see it again."""

import json

import pytest

from verification.corruption import Corruption
from verification.corruption_campaign import Verdict


@pytest.mark.large
def test_corruptions_are_counted_by_outcome(verify):
    answer = verify("corruptions", 12, "--json")
    assert answer.exit_code == 0
    *lines, summary = [json.loads(line) for line in answer.stdout.splitlines()]
    assert summary["corruptions"] == sum(summary["outcomes"].values()) == 12
    assert len(lines) == 12 - summary["outcomes"]["harmless"]
    assert all(line["keys"] and line["outcome"] == "recovered" for line in lines)


def test_a_wrong_answer_is_shown_with_its_seed(verify, monkeypatch):
    wrong = Verdict(7, "windows", Corruption("lost", "base", ("a/b",)), "violation", 3, "it is odd")
    tried = "verification.commands.corruptions.try_corruptions"
    monkeypatch.setattr(tried, lambda *_: iter([wrong]))
    answer = verify("corruptions", 1, "--from", 7)
    assert answer.exit_code == 1
    assert "seed 7, windows: lost: a/b\n  it is odd\n" in answer.stdout
    assert "again: python -m verification corruptions 1 --from 7" in answer.stdout
