"""Audit records that were written are read for ever; the document says how, without Laminar."""

import re
from pathlib import Path

import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.actor import ActorKind
from laminar_core.records.audit import parse_audit_record, parse_head
from laminar_core.records.seal import seal, unseal
from tests.records.test_audit import chain, verify

GOLDEN = Path(__file__).parents[1] / "golden"


def test_golden_records_are_read_and_written_as_they_were():
    records = [
        parse_audit_record(data := (GOLDEN / f"audit_record_v1{name}.json").read_bytes())
        for name in ("", "_signed")
    ]
    assert [record.number for record in records] == [1, 2]
    assert records[0].reason == "deployed \u201cblue\u201d"
    assert (records[1].outcome, records[1].intent, records[1].head_lost) == ("failed", 1, True)
    assert records[1].is_signed_with(b"golden")
    assert data == records[1].to_bytes()
    head = parse_head((GOLDEN / "audit_head_v1.json").read_bytes())
    assert (head.number, head.is_signed_with(b"golden")) == (2, True)


def test_golden_records_are_a_chain():
    stored = {
        number: (GOLDEN / f"audit_record_v1{name}.json").read_bytes()
        for number, name in ((1, ""), (2, "_signed"))
    }
    head = (GOLDEN / "audit_head_v1.json").read_bytes()
    assert [finding.kind for finding in verify(stored, head, b"golden").findings] == ["head"]
    stored[3] = (GOLDEN / "audit_record_v2_signed.json").read_bytes()
    problems = [finding.problem for finding in verify(stored, head, b"golden").findings]
    assert len(problems) == 1, "a record of format 2 goes on where those of format 1 end"


@pytest.mark.parametrize(
    ("name", "actor", "kind"),
    [
        ("v1", "ann", ActorKind.PERSON),
        ("v2", "sensor payments_recovery", ActorKind.SENSOR),
        ("v2_signed", "sensor of all things", ActorKind.PERSON),
    ],
)
def test_a_record_says_what_kind_of_actor_acted(name, actor, kind):
    data = (GOLDEN / f"audit_record_{name}.json").read_bytes()
    record = parse_audit_record(data)
    assert (record.actor, record.actor_kind, record.by.kind) == (actor, kind, kind)
    assert record.to_bytes() == data


def test_a_format_that_is_not_known_is_refused():
    plain = (GOLDEN / "audit_record_v2.json").read_bytes()
    with pytest.raises(CorruptCheckpointError, match="format_version"):
        parse_audit_record(seal(unseal(plain).replace(b'version": 2', b'version": 3')))


@pytest.mark.parametrize(("written", "claimed"), [(1, 2), (2, 1)])
def test_the_kind_of_the_actor_is_there_since_format_2_and_not_before(written, claimed):
    plain = unseal((GOLDEN / f"audit_record_v{written}.json").read_bytes())
    data = seal(plain.replace(b'version": %d' % written, b'version": %d' % claimed))
    with pytest.raises(CorruptCheckpointError, match="actor_kind came with format 2"):
        parse_audit_record(data)


@pytest.mark.parametrize("harm", [None, "edit", "cut"])
def test_the_program_in_the_document_checks_the_chain(tmp_path, monkeypatch, harm):
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (program,) = (program for program in programs if "previous_sha256" in program)
    stored, head = chain(3)
    if harm == "edit":
        stored[2] = stored[2].replace(b"reason 2", b"reason 3")
    elif harm == "cut":
        del stored[3]
    (tmp_path / "audit").mkdir()
    for number, data in stored.items():
        (tmp_path / f"audit/{number:010}.json").write_bytes(data)
    (tmp_path / "audit/head.json").write_bytes(head)
    monkeypatch.chdir(tmp_path)
    code = compile(program, "docs/formats.md", "exec")
    if harm is None:
        exec(code, {})
    else:
        with pytest.raises(AssertionError):
            exec(code, {})
