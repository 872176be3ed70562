"""Find Parquet files, and the columns and types that a source declares of them."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_core.connectors.files.places import FileChangedError, is_utf8
from laminar_core.connectors.formats.messages import one_line
from laminar_core.connectors.parquet_reading import ENCODED_STRING
from laminar_core.errors import ConfigurationError, DataError, ErrorCode
from laminar_core.operators.base import JsonObject


def reading_properties(*, verify_pages: bool) -> JsonObject:
    """Return what checkpoints record of how files are read; nothing if every page is verified."""
    return {} if verify_pages else {"pages_verified": False}


def declared_schema(
    footer: pq.FileMetaData, columns: Sequence[str] | None, path: Path | str
) -> pa.Schema:
    """Return the schema of batches of this file: chosen columns, strings dictionary-encoded.

    Raises:
        ConfigurationError: a column is missing or its name is ambiguous.
    """
    stored = footer.schema.to_arrow_schema()
    names = list(stored.names if columns is None else columns)
    for name in names:
        count = stored.names.count(name)
        if count == 0 or names.count(name) > 1 or count > 1:
            problem = "has no column" if count == 0 else "has more than one column"
            raise ConfigurationError(
                ErrorCode.WRONG_SCHEMA,
                f"{path} {problem} {name!r}; its columns are {', '.join(stored.names)}",
            )
    return pa.schema([(name, _emitted_type(stored.field(name).type)) for name in names])


def _emitted_type(stored: pa.DataType) -> pa.DataType:
    values = stored.value_type if pa.types.is_dictionary(stored) else stored
    is_text = pa.types.is_string(values) or pa.types.is_large_string(values)
    return ENCODED_STRING if is_text or pa.types.is_string_view(values) else stored


def list_files(path: str) -> list[Path]:
    """Return the files at ``path``, sorted by name.

    Raises:
        ConfigurationError: there are none, or one has a name that is not UTF-8.
    """
    matches = [Path(path)] if Path(path).exists() else _match(path)
    with unreadable_at_discovery(path):
        files = sorted({file for match in matches for file in _expand(match)})
    for file in files:
        if not is_utf8(str(file)):
            problem = f"{one_line(str(file))} has a name that is not UTF-8: rename it"
            raise ConfigurationError(ErrorCode.NO_SUCH_PATH, problem)
    if files:
        return files
    if Path(path).is_dir():
        raise ConfigurationError(
            ErrorCode.NO_SUCH_PATH, f"no *.parquet file in {path}: is it the right directory?"
        )
    raise ConfigurationError(ErrorCode.NO_SUCH_PATH, f"no such file, directory or pattern: {path}")


def is_of_input(path: str, file: str) -> bool:
    """Return whether ``list_files(path)`` could have listed ``file``: it lies below ``path``.

    >>> is_of_input("/data/day=*/x", "/data/day=1/x/a.parquet")
    True
    >>> is_of_input("/data", "/data/../etc/passwd")
    False
    """
    named, parts = _named_parts(path), Path(file).parts
    return parts[: len(named)] == named and ".." not in parts[len(named) :]


def name_below(path: str, file: str) -> str:
    """Return the name of a file of the input without the directory that the input names.

    >>> name_below("/data/payments", "/data/payments/day=1/a.parquet")
    'day=1/a.parquet'
    >>> name_below("/data/a.parquet", "/data/a.parquet")
    'a.parquet'
    """
    return "/".join(Path(file).parts[len(_named_parts(path)) :]) or Path(file).name


def _named_parts(pattern: str) -> tuple[str, ...]:
    return tuple(takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts))


def _match(pattern: str) -> list[Path]:
    """Paths that match, unless a part that the pattern left open is a hidden name."""
    named = _named_parts(pattern)
    paths = map(Path, glob.glob(pattern, recursive=True))  # noqa: PTH207 - the pattern is absolute
    return [path for path in paths if not any(map(_is_hidden, path.parts[len(named) :]))]


def _expand(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=_reraise):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        for name in names:
            file = Path(folder, name)
            if name.endswith(".parquet") and not _is_hidden(name) and not file.is_fifo():
                yield file


def _reraise(error: OSError) -> None:
    raise error


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def check_same_schema(first: str, wanted: pa.Schema, file: str, found: pa.Schema) -> None:
    """Compare ``found``, the schema of ``file``, with ``wanted``, the schema of ``first``.

    Raises:
        ConfigurationError: they differ; the message names the first difference.
    """
    if found != wanted:
        raise ConfigurationError(
            ErrorCode.WRONG_SCHEMA,
            f"{file} has {difference(wanted, found)} than {first}: move it elsewhere, "
            f"or choose columns that all files share with columns=[...]",
        )


def difference(wanted: pa.Schema, found: pa.Schema) -> str:
    """Describe the difference of ``found`` in words to be followed by "than"."""
    if missing := [name for name in wanted.names if name not in found.names]:
        return f"fewer columns (no {', '.join(missing)})"
    if extra := [name for name in found.names if name not in wanted.names]:
        return f"more columns (also {', '.join(extra)})"
    for field in wanted:
        if (other := found.field(field.name).type) != field.type:
            return f"another type of {field.name!r} ({other} instead of {field.type})"
    return "another order of columns"


def skip_rows(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Drop the first ``count`` rows; Parquet cannot seek inside a row group."""
    for batch in batches:
        if count >= batch.num_rows:
            count -= batch.num_rows
        else:
            yield batch.slice(count)
            count = 0


@contextmanager
def unreadable(path: Path | str, part: str = "") -> Iterator[None]:
    """Turn failures to read ``part`` of ``path`` into a DataError that names both."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(ErrorCode.UNREADABLE_FILE, f"{path} is gone") from error
    except (OSError, FileChangedError, pa.ArrowException) as error:
        raise DataError(
            ErrorCode.UNREADABLE_FILE, f"cannot read {part}{path}: {_one_line(error)}"
        ) from error


@contextmanager
def unreadable_at_discovery(path: Path | str) -> Iterator[None]:
    """Turn failures to read ``path`` into a ConfigurationError that says what to do."""
    try:
        yield
    except (OSError, FileChangedError, pa.ArrowException) as error:
        raise ConfigurationError(
            ErrorCode.UNREADABLE_FILE,
            f"cannot read {path}: {_one_line(error)}; repair it, or move it elsewhere",
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
