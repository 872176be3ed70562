import json
from random import Random

import pytest

from laminar_core.errors import CorruptCheckpointError
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.seal import unseal
from tests.records.manifests import folded
from verification.forgery import forge, forge_beyond

HONEST = folded().to_bytes()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(200))
def test_a_forged_manifest_has_a_digest_that_is_right_and_is_read_or_refused(seed):
    forged = forge(HONEST, Random(seed))
    if forged != HONEST + b"\0":
        assert json.loads(unseal(forged)) is not None
    said = ""
    try:
        parse_manifest(forged)
    except CorruptCheckpointError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 1_000


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(100))
def test_a_number_beyond_every_bound_is_never_accepted(seed):
    forged = forge_beyond(HONEST, Random(seed))
    assert unseal(forged) != forged, "its digest is right"
    with pytest.raises(CorruptCheckpointError):
        parse_manifest(forged)


def test_what_is_no_record_is_damaged_in_some_other_way():
    for data in (b"", b"\x00ARROW1", b"[1]", b"7"):
        assert forge_beyond(data, Random(1)) != data
        assert forge(data, Random(1)) != data or not data


def test_equal_seeds_forge_equally():
    assert forge(HONEST, Random(5)) == forge(HONEST, Random(5))
