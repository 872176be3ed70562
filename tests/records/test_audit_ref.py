"""A record is named by its bytes: no other one has this name."""

from hashlib import sha256

import pytest
from pydantic import ValidationError

from laminar_core.records.audit import START, follow
from laminar_core.records.audit_ref import AuditRef
from tests.records.test_audit import KEY, entry


def test_it_is_of_the_stored_bytes():
    record = follow(START, entry(1), key=KEY)
    digest = sha256(record.to_bytes()).hexdigest()
    assert record.reference() == AuditRef(number=1, sha256=digest)
    assert follow(START, entry(2)).reference().sha256 != digest


@pytest.mark.parametrize("fields", [{"number": 0}, {"sha256": "00"}, {"number": True}])
def test_nonsense_is_refused(fields):
    with pytest.raises(ValidationError):
        AuditRef.model_validate({"number": 1, "sha256": "0" * 64, **fields})
