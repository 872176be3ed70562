"""Places where a command from the store may put a savepoint.

Any writer of the store can leave a command there, and the driver carries it out with its own
permissions and credentials. So the places are fixed at the driver's start, and a command only
chooses a folder below one of them: server, profile and all other parameters of a bucket are those
of the start.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from laminar_core.errors import ConfigurationError, ErrorCode
from laminar_core.objectstore.bucket_options import BucketOptions
from laminar_core.objectstore.opening import bucket_options, is_bucket, place_errors


@dataclass(frozen=True, slots=True)
class SavepointTargets:
    """The places of one driver: those that were named, else those near the store."""

    store_uri: str
    named: tuple[str, ...] = ()
    """Directories and buckets, as the user who started the driver named them."""

    def resolve(self, target: str) -> str:
        """Return the URI to open for ``target``: the very directory that was looked at.

        Raises:
            ConfigurationError: it is in none of the places, brings parameters of its own, or is no
                valid path or URI.
            StorageUnavailable: it may not be looked at.
        """
        if self.store_uri.startswith("memory://"):
            return target  # Only this process can leave a command there.
        if is_bucket(target):
            return self._in_bucket(bucket_options(target))
        if (path := _local(target)) is None:
            raise self._refused(target, "is neither a directory nor a bucket")
        if not any(_is_below(path, root) for root in self._directories()):
            raise self._refused(target, "is in none of the places that this driver may write to")
        return str(path)

    def _in_bucket(self, wanted: BucketOptions) -> str:
        roots = [bucket_options(place) for place in self._places() if is_bucket(place)]
        near = [root for root in roots if _holds(root, wanted)]
        if not near:
            problem = "is in none of the places that this driver may write to"
            raise self._refused(wanted.place, problem)
        plain = bucket_options(wanted.place)
        for root in near:
            found = root.model_copy(update={"prefix": wanted.prefix})
            if wanted in (plain, found):
                return found.uri
        problem = "has parameters, but the driver uses those of its start: remove them"
        raise self._refused(wanted.place, problem)

    def _places(self) -> tuple[str, ...]:
        if self.named:
            return self.named
        if is_bucket(self.store_uri):
            bucket = bucket_options(self.store_uri).model_copy(update={"prefix": ""})
            return (bucket.uri, str(Path.cwd()))
        return (str(Path(self.store_uri).absolute().parent), str(Path.cwd()))

    def _directories(self) -> list[Path]:
        """The named ones, or those near the store that are not the root of the file system."""
        paths = [path for path in map(_local, self._places()) if path is not None]
        return [path for path in paths if self.named or path != Path(path.anchor)]

    def _refused(self, target: str, problem: str) -> ConfigurationError:
        places = ", ".join(dict.fromkeys(place.partition("?")[0] for place in self._places()))
        return ConfigurationError(
            ErrorCode.INVALID_OPTION,
            f"{target} {problem} ({places}): choose a folder there, start the driver with "
            "--savepoints-under, or copy the checkpoint with `laminar savepoint export`",
        )


def _local(place: str) -> Path | None:
    """The directory as a store opens it, with all links followed; None if it is no directory."""
    with place_errors(place):
        parts = urlsplit(place)
        if parts.scheme == "file":
            is_here = parts.netloc in {"", "localhost"}
            return Path(unquote(parts.path)).expanduser().resolve() if is_here else None
        no_path = "://" in place or "\0" in place
        return None if no_path else Path(place).expanduser().resolve()


def _is_below(path: Path, root: Path) -> bool:
    return path != root and path.is_relative_to(root)


def _holds(root: BucketOptions, wanted: BucketOptions) -> bool:
    below = f"{root.prefix}/" if root.prefix else ""
    is_same = (root.scheme, root.bucket) == (wanted.scheme, wanted.bucket)
    return is_same and wanted.prefix.startswith(below) and wanted != root
