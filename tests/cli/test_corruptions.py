"""``laminar simulate --corruptions`` counts what became of each, and says how to see it again."""

import json

from laminar_core.testing.corruption import Corruption
from laminar_core.testing.corruption_campaign import Verdict


def test_corruptions_are_counted_by_outcome(cli):
    answer = cli("simulate", "--corruptions", 12, "--json")
    assert answer.code == 0
    *lines, summary = [json.loads(line) for line in answer.out.splitlines()]
    assert summary["corruptions"] == sum(summary["outcomes"].values()) == 12
    assert len(lines) == 12 - summary["outcomes"]["harmless"]
    assert all(line["keys"] and line["outcome"] == "recovered" for line in lines)


def test_a_wrong_answer_is_shown_with_its_seed(cli, monkeypatch):
    wrong = Verdict(7, "windows", Corruption("lost", "base", ("a/b",)), "violation", 3, "it is odd")
    monkeypatch.setattr("laminar_core.cli.corruptions.try_corruptions", lambda *_: iter([wrong]))
    answer = cli("simulate", "--corruptions", 1, "--from", 7)
    assert answer.code == 1
    assert "seed 7, windows: lost: a/b\n  it is odd\n" in answer.out
    assert "again: laminar simulate --corruptions 1 --from 7" in answer.out


def test_seeds_are_another_thing(cli):
    answer = cli("simulate", "--corruptions", 3, "--seeds", 4)
    assert (answer.code, "leave --seeds out" in answer.err) == (2, True)
