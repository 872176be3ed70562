"""docs/formats.md is right about binary files: its examples run, its tables add up."""

import re
import struct
import zlib
from hashlib import sha256
from pathlib import Path

from laminar_core.codec.arrow import SEGMENT_VERSION, encode_table
from laminar_core.codec.envelope import DIGEST_BYTES, HEADER_BYTES, Content
from laminar_core.codec.inflight import FORMAT_VERSION, MAGIC
from tests.codec.golden_segments import ROWS, TABLE
from tests.codec.inflight_files import ELEMENTS, INPUT_ID, file
from tests.records.manifests import inflight, unaligned

DOCUMENT = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


def test_the_example_reads_what_laminar_writes(tmp_path, monkeypatch, capsys) -> None:
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    (program,) = (program for program in programs if "inflight_0.buf" in program)
    rows = [
        {"merchant": "a", "amount": 1},
        {"merchant": "b", "amount": None},
        {"merchant": None, "amount": 2},
    ]
    folder = tmp_path / "checkpoints/0000000012"
    path = folder / "operators/inflight_0.buf"
    path.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for compression in (None, "lz4", "zstd"):
        before, part = file(ELEMENTS[:1]), file(compression=compression)
        path.write_bytes(before + part + before)
        entry = inflight(
            path=str(path.relative_to(tmp_path)),
            offset=len(before),
            size_bytes=len(part),
            sha256=sha256(part).hexdigest(),
        )
        (folder / "manifest.json").write_bytes(unaligned(inflight_data=(entry,)).to_bytes())
        exec(compile(program, "docs/formats.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == [
            "{b'laminar.element': b'watermark', b'laminar.watermark_us': b'-9223372036854775808'}",
            str(rows),
            "{b'laminar.element': b'idle'}",
            "[{'merchant': 'c', 'amount': 3}]",
            "[]",
            "{b'laminar.element': b'watermark', b'laminar.watermark_us': b'9223372036854775807'}",
        ]


def test_the_table_of_bytes_is_what_is_written() -> None:
    section = DOCUMENT.partition("## In-flight files")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+|\*n\*) \| (.*) \|$", section, re.MULTILINE)
    offsets = [(int(offset), what.split(",")[0].split(":")[0]) for offset, _, what in rows]
    assert offsets == [
        (0, "magic `LMRFLT\\r\\n`"),
        (8, "format version"),
        (10, "compression of the Arrow buffers"),
        (11, "0"),
        (12, "input id"),
        (16, "number of events"),
        (24, "checksum of bytes 0 to 23"),
        (28, "length *n* of the first frame's data"),
        (32, "one encapsulated Arrow IPC message; the first is the schema"),
    ]
    lengths = [int(length) for _, length, _ in rows[:-1]]
    assert [sum(lengths[:n]) for n in range(len(rows))] == [offset for offset, _ in offsets]
    data = file()
    assert data[0:8] == MAGIC
    assert struct.unpack_from("<H", data, 8) == (FORMAT_VERSION,)
    assert struct.unpack_from("<I", data, 12) == (INPUT_ID,)
    assert struct.unpack_from("<Q", data, 16) == (len(ELEMENTS),)


def test_the_example_reads_a_segment_without_laminar(tmp_path, monkeypatch) -> None:
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    (program,) = (program for program in programs if "LMRSEG" in program)
    path = tmp_path / "shared/window/0000000003-0-00000007.seg"
    path.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for compression in (None, "lz4", "zstd"):
        path.write_bytes(encode_table(TABLE, compression=compression))
        found: dict = {}
        exec(compile(program, "docs/formats.md", "exec"), found)
        assert found["table"].num_rows == len(ROWS)
        assert found["table"].equals(TABLE)


def test_the_header_in_the_table_is_the_one_that_is_written() -> None:
    section = DOCUMENT.partition("## State files")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+|\*n\*) \| (.*) \|$", section, re.MULTILINE)
    lengths = [int(length) for _, length, _ in rows[:-1]]
    offsets = [int(offset) for offset, _, _ in rows]
    assert offsets == [sum(lengths[:n]) for n in range(len(rows))]
    assert offsets[-1] == HEADER_BYTES
    assert f"| {HEADER_BYTES} + *n* | {DIGEST_BYTES} |" in section
    data = encode_table(TABLE, compression="zstd")
    magic, version, codec = struct.unpack_from("<8sHB", data)
    assert (magic, version, codec) == (Content.SEGMENT.value, SEGMENT_VERSION, 2)
    assert struct.unpack_from("<Q", data, 16) == (len(data) - HEADER_BYTES,)
    assert struct.unpack_from("<I", data, 56) == (zlib.crc32(data[:56]),)
