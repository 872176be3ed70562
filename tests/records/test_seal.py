"""A sealed object is what was sealed, or it is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import CorruptCheckpointError, ErrorCode
from laminar_core.records.manifest_versions import parse_manifest
from laminar_core.records.seal import seal, unseal
from tests.records.manifests import manifest

PLAIN = b'{\n "a": 1,\n "b": "x"\n}\n'


def test_the_digest_is_the_last_field_and_the_rest_is_as_it_was() -> None:
    sealed = seal(PLAIN)
    assert list(json.loads(sealed)) == ["a", "b", "sha256"]
    assert unseal(sealed) == PLAIN


def test_what_has_no_seal_is_left_alone() -> None:
    assert unseal(PLAIN) == PLAIN
    assert unseal(b"") == b""


def test_something_else_under_a_whole_seal_is_refused() -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        unseal(seal(PLAIN).replace(b": 1,", b": 2,"))
    assert caught.value.code is ErrorCode.DIGEST_DIFFERS


def test_only_the_last_line_is_a_seal() -> None:
    twice = seal(seal(PLAIN))
    assert unseal(twice) == seal(PLAIN)


@given(st.data())
def test_no_flipped_bit_in_a_manifest_gets_through(data) -> None:
    written = bytearray(manifest().to_bytes())
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptCheckpointError):
        parse_manifest(bytes(written))


@given(st.data())
def test_no_cut_in_a_manifest_gets_through(data) -> None:
    written = manifest().to_bytes()
    kept = data.draw(st.integers(0, len(written) - 2))
    with pytest.raises(CorruptCheckpointError):
        parse_manifest(written[:kept])
