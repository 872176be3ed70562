"""Messages that were made to confuse: pieces of wrappers, halves of objects, and plain noise."""

import pyarrow as pa
from hypothesis import strategies as st

from laminar_core.connectors.formats.messages import Decoded, Decoder, Messages

PIECES = (
    *(
        b'{"id":1',
        b"}",
        b'{"id":2}',
        b'{"id":2} {"id":3}',
        b'{"id":2},{"id":3}',
        b"null",
        b"",
        b" ",
    ),
    *(
        b"5",
        b'"',
        b'{"id":4}} {"m":{"id":5}',
        b'1, "k":{"a":2',
        b'{"id":6}, "m":{"id":7}',
        b"[",
        b"]",
    ),
    *(b'{"id":8,"v":"', b'"}', b"\n", b'{"id":9}\n', b"{}", b'{"id":1},"x":{"y":1}', b'{"id":10}}'),
    *(b'{"m":{"id":3}}', b"\\", b"/*", b"*/", b'{"id":11,"id":12}', b"\x00", b"\xef\xbb\xbf{}"),
    *(b'{"id":1}],"x":[{}', b'{"id":1}]\n,"x":[2', b'{"id":1}],"m":[{"id":2}', b'{"id":1}],"x":["'),
    *(
        b'{"id":1}]} {"m":[{"id":7}]}\x00',
        b'{"id":1}]}\n{"m":[{"id":7}',
        b"]}",
        b'{"m":[',
        b"]}\n{",
    ),
    *(b'{"id":1.0}', b'{"id":1e3}', b'{"id":99999999999999999999}', b'{"id":-0}', b'{"id":"1"}'),
    *(
        b'{"f":1e400}',
        b'{"f":NaN}',
        b'{"u":NaN}',
        b'{"u":-Infinity}',
        b'{"u":1e400}',
        b'{"v":"NaN"}',
    ),
    *(b'{"f":1e-400}', b'{"f":.5}', b'{"f":0x1}', b'{"id":01}', b'{"id":1,}', b"{'id':1}", b"\r\n"),
    *(b'{"v":"\xff"}', b'{"u":"\xff"}', b'{"\xff":1}', b'{"v":"\\ud800"}', b'{"v":"\\u0000"}'),
    *(b'{"u":"\\ud800"}', b'{"v":"\\ud83d\\ude00"}', b'{"l":[1,null]}', b'{"l":[1],"l":[2]}'),
    *(
        b'{"s":{"x":1,"x":2}}',
        b'{"s":{"x":3,"y":[{}],"z":1}}',
        b'{"s":[]}',
        b'{"l":{}}',
        b'{"s":null}',
    ),
    *(b'{"u":[[[[[[]]]]]]}', b'{"u":1,"u":2}', b'{"id":\n1}', b'\t{"id":1}\r', b"\x0b{}", b"true"),
)

TORN = st.sampled_from(PIECES).flatmap(
    lambda piece: st.integers(0, len(piece)).map(lambda end: piece[:end])
)
MESSAGE = st.one_of(
    st.sampled_from(PIECES),
    st.lists(st.sampled_from(PIECES), min_size=2, max_size=3).map(b"".join),
    TORN,
    st.binary(max_size=12),
    st.none(),
)
BATCH = st.lists(MESSAGE, max_size=6)


def messages(values: list[bytes | None]) -> Messages:
    """Number the messages from 100."""
    return Messages(pa.array(values, pa.binary()), pa.array(range(100, 100 + len(values))))


def check_invariants(decoder: Decoder, values: list[bytes | None]) -> Decoded:
    """Check I1 to I4 of ``messages.py`` for these messages."""
    decoded = decoder.decode(messages(values))
    bad = decoded.letters.column("index").to_pylist()
    origins = decoded.origins.to_pylist()
    assert set(bad).isdisjoint(origins)
    assert bad == sorted(set(bad))
    assert origins == sorted(origins)
    assert len(origins) == decoded.rows.num_rows
    assert decoded.letters.column("value").to_pylist() == [values[index] for index in bad]
    assert decoded.letters.column("position").to_pylist() == [100 + index for index in bad]
    assert decoded.rows.schema.equals(decoder.schema, check_metadata=True)
    decoded.rows.validate(full=True)
    rows = decoded.rows.to_pylist()
    for index, value in enumerate(values):
        alone = decoder.decode(messages([value]))
        mine = [row for row, origin in zip(rows, origins, strict=True) if origin == index]
        assert repr(alone.rows.to_pylist()) == repr(mine), value
        assert alone.letters.num_rows == (index in bad)
    return decoded


IPC_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("k", pa.dictionary(pa.int32(), pa.string())),
        ("l", pa.list_(pa.int32())),
    ]
)


def ipc_rows(first: int, count: int) -> pa.RecordBatch:
    """Rows with these numbers."""
    return pa.RecordBatch.from_pylist(
        [{"id": n, "v": f"v{n}", "k": "k", "l": [n, None]} for n in range(first, first + count)],
        schema=IPC_SCHEMA,
    )


def ipc_stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Write batches as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def no_lists_at_an_offset() -> pa.Array:
    """Return one list without items; the lists that would be inside begin at the offset 1."""
    inner = pa.list_(pa.field("item", pa.int32(), nullable=False))
    offsets = pa.py_buffer((1).to_bytes(4, "little"))
    nothing = pa.Array.from_buffers(inner, 0, [None, offsets], children=[pa.array([], pa.int32())])
    return pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), nothing)
