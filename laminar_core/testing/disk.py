"""A simulated disk with the effects of crashes and decay.

It keeps the contract of a local store. A crash inside a write leaves a fragment of the data under a
temporary name that no listing shows, and nothing under the final name. A checkpoint's verification
must detect damage.
"""

from collections.abc import Collection
from random import Random

from laminar_core.errors import (
    CorruptCheckpointError,
    ErrorCode,
    LaminarError,
    StorageUnavailable,
)
from laminar_core.objectstore.contract import other_length, too_large
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.records.limits import RECORD_BYTES_MAX


class SimulatedDisk(MemoryObjectStore):
    """An object store in memory that can be torn, damaged, repaired and copied."""

    def __init__(self) -> None:
        super().__init__()
        self.temporaries: dict[str, bytes] = {}
        """Fragments left by crashes, by the intended name."""
        self.damaged: dict[str, bytes] = {}
        """The original contents of damaged objects."""
        self._away: dict[str, bytes] | None = None
        """The contents while a replacement is shown."""

        self.special: dict[str, int] = {}
        """Names that belong to a pipe, a link or a device, or to a file of holes; their length."""

    def unmount(self, instead: "SimulatedDisk | None" = None) -> None:
        """Take it away; in its place is what is on ``instead``, or an empty directory."""
        found = {} if instead is None else {k: instead.get(k) or b"" for k in instead.list("")}
        with self._lock:
            assert self._away is None, "it is away already"
            self._away, self._objects = self._objects, found

    def mount(self) -> None:
        """Show the original contents again; writes to the replacement disappear."""
        with self._lock:
            assert self._away is not None, "it is there"
            self._objects, self._away = self._away, None

    def get(self, key: str, size_max: int = RECORD_BYTES_MAX) -> bytes | None:
        """See ``ObjectStore.get``. Special files are refused as by the local store."""
        if key in self.special:
            raise self._refusal(key, size_max)
        return super().get(key, size_max)

    def get_range(self, key: str, start: int, stop: int, size_bytes: int) -> bytes | None:
        """See ``ObjectStore.get_range``. Special files are refused as by the local store."""
        if (special_bytes := self.special.get(key)) is not None:
            if special_bytes and special_bytes != size_bytes:
                raise other_length(key, special_bytes, size_bytes)
            raise self._refusal(key, special_bytes)
        return super().get_range(key, start, stop, size_bytes)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``. A new file replaces a special one."""
        self.special.pop(key, None)
        super().put(key, data)

    def delete(self, key: str) -> None:
        """See ``ObjectStore.delete``."""
        self.special.pop(key, None)
        super().delete(key)

    def size(self, key: str) -> int | None:
        """See ``ObjectStore.size``."""
        return self.special.get(key, super().size(key))

    def sizes(self, folder: str) -> dict[str, int]:
        """See ``ObjectStore.sizes``."""
        found = super().sizes(folder)
        return found | {key: size for key, size in self.special.items() if key in found}

    def make_special(self, key: str, size_bytes: int) -> None:
        """Put something there that no store contains; above 0 bytes it is a file of holes."""
        super().put(key, b"")
        self.special[key] = size_bytes

    def _refusal(self, key: str, size_max: int) -> LaminarError:
        size_bytes = self.special[key]
        if size_bytes > size_max:
            return too_large(key, size_bytes, size_max)
        if size_bytes:
            return StorageUnavailable(ErrorCode.STORE_IO, f"{key} does not fit into memory")
        return CorruptCheckpointError(ErrorCode.NOT_A_FILE, f"{key} is a pipe")

    def copy(self) -> "SimulatedDisk":
        """Return a separate disk with the same objects."""
        twin = SimulatedDisk()
        with self._lock:
            twin._objects = dict(self._objects)
            twin.special = dict(self.special)
        twin.damaged = dict(self.damaged)
        return twin

    def tear(self, key: str, data: bytes | memoryview, random: Random) -> int:
        """Leave a fragment of ``data``, as a crash would; return how many bytes were written."""
        written = random.randint(0, len(data))
        self.temporaries[key] = bytes(data)[:written]
        return written

    def damage(self, key: str, random: Random) -> str:
        """Flip a bit, truncate the object, or delete it; return a description."""
        data = self.get(key)
        assert data, f"nothing to damage at {key}"
        self.damaged.setdefault(key, data)
        place = random.randrange(len(data))
        how = random.choice(("flipped a bit of", "cut off", "lost"))
        if how == "lost":
            self.delete(key)
        elif how == "cut off":
            self.put(key, data[:place])
        else:
            flipped = bytes([data[place] ^ (1 << random.randrange(8))])
            self.put(key, data[:place] + flipped + data[place + 1 :])
        return how

    def repair(self, keys: Collection[str]) -> None:
        """Restore the original contents of damaged objects among these keys."""
        for key in sorted(self.damaged.keys() & set(keys)):
            self.put(key, self.damaged.pop(key))
