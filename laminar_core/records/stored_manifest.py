"""Format 7 of manifests: what is alike between channels is written once.

In memory, a manifest has an entry for each channel. In a store, event times have ranges of
receivers (``event_times``), and parts of in-flight files are columns (``inflight_parts``).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Self, cast

from pydantic import Field, model_validator

from laminar_core.records import event_times, inflight_parts
from laminar_core.records.event_times import (
    ChannelTimes,
    folded_times,
    problem_of_times,
    unfolded_times,
)
from laminar_core.records.inflight_parts import InflightFile, folded_files, unfolded_parts
from laminar_core.records.manifest_fields import ManifestFields
from laminar_core.records.record import FileRef, Many, Record

_NAMED_MAX = 20
_FOLDED = frozenset({"inflight_data"})
_FOLDED_OF_ENTRIES = {"channels"}
"""Fields of the manifest, and of its entries, that are empty here and not written."""


class StoredManifest(ManifestFields[InflightFile]):
    """A manifest in the form in which it is stored: one line for each entry of its lists."""

    event_times: Many[ChannelTimes] = Field(default=(), description="Of all channels.")

    @model_validator(mode="after")
    def _channels_are_folded(self) -> Self:
        if self.inflight_data or any(entry.channels for entry in self.alignment):
            raise ValueError("channels are in event_times, and parts in their files")
        subtasks = [(entry.vertex_id, entry.subtask_index) for entry in self.alignment]
        if len(set(subtasks)) < len(subtasks):
            raise ValueError("the alignment of a subtask is listed twice")
        if (problem := problem_of_times(self.event_times, self.alignment)) is not None:
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _files_are_listed_once(self) -> Self:
        paths = Counter(file.path for file in self.inflight_files)
        if repeated := sorted(path for path, count in paths.items() if count > 1):
            raise ValueError(f"listed twice: {repeated[:_NAMED_MAX]}")
        if (problem := inflight_parts.why_too_many(self.inflight_files)) is not None:
            raise ValueError(problem)
        return self

    @classmethod
    def of(cls, manifest: ManifestFields[FileRef]) -> Self:
        """Fold a manifest."""
        fields: dict[str, Any] = {n: getattr(manifest, n) for n in ManifestFields.model_fields}
        changes: dict[str, Any] = {
            "alignment": tuple(e.model_copy(update={"channels": ()}) for e in manifest.alignment),
            "event_times": tuple(folded_times(manifest.alignment)),
            "inflight_files": tuple(folded_files(manifest.inflight_files, manifest.inflight_data)),
            "inflight_data": (),
        }
        return cls.model_construct(**fields | changes)  # Its values were validated in memory.

    def unfolded(self) -> dict[str, Any]:
        """Return the fields of the manifest in memory."""
        channels = unfolded_times(self.event_times)
        vertices = [entry.vertex_id for entry in self.alignment]
        fields: dict[str, Any] = {n: getattr(self, n) for n in ManifestFields.model_fields}
        changes = {
            "alignment": tuple(
                entry.model_copy(
                    update={"channels": tuple(channels[entry.vertex_id, entry.subtask_index])}
                )
                for entry in self.alignment
            ),
            "inflight_files": tuple(
                FileRef(path=file.path, size_bytes=file.size_bytes, sha256=file.sha256)
                for file in self.inflight_files
            ),
            "inflight_data": unfolded_parts(self.inflight_files, vertices),
        }
        return fields | changes

    def to_bytes(self) -> bytes:
        """Return the manifest as sealed JSON.

        Raises:
            ConfigurationError: no reader would accept it.
        """
        times, files = self.event_times, self.inflight_files
        problem = event_times.why_too_many(times) or inflight_parts.why_too_many(files)
        if problem is not None:
            raise self.too_large(problem)
        return super().to_bytes()

    def as_json(self) -> str:
        """Return the manifest as JSON with a line for each field, and for each entry of a list."""
        return "{\n" + ",\n".join(self._lines()) + "\n}"

    def _lines(self) -> Iterator[str]:
        for name in type(self).model_fields:
            value: object = getattr(self, name)
            if isinstance(value, tuple) and value:
                entries = cast("tuple[Record, ...]", value)
                lines = (f"  {e.model_dump_json(exclude=_FOLDED_OF_ENTRIES)}" for e in entries)
                yield f' "{name}": [\n' + ",\n".join(lines) + "\n ]"
            elif name not in _FOLDED:
                field = self.model_dump_json(include={name})
                if field != "{}":  # Some are left out if they are empty.
                    yield field.replace(":", ": ", 1).replace("{", " ", 1)[:-1]
