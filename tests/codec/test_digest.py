from laminar_core.codec.digest import sha256_hex


def test_the_digest_is_sha256():
    assert sha256_hex(memoryview(b"abc")).startswith("ba7816bf8f01cfea")
