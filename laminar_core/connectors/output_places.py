"""Choose where the output of a Parquet sink is, by its path or URI."""

from pathlib import Path

from laminar_core.connectors.locations import is_bucket
from laminar_core.connectors.output_directory import OutputDirectory
from laminar_core.connectors.output_place import OutputPlace
from laminar_core.host.extras import needs_extra


def output_place(path: str) -> OutputPlace:
    """Return the place at a path, or at an ``s3://bucket/prefix?region=…`` URI.

    Raises:
        ConfigurationError: the URI has a parameter that does not exist, or contains a secret.
        MissingExtraError: an ``s3://`` URI, and boto3 is not installed.
    """
    if not is_bucket(path):
        return OutputDirectory(Path(path))
    with needs_extra("s3", "s3:// output"):  # Imported here, because boto3 starts slowly.
        from laminar_core.connectors.output_bucket import OutputBucket  # noqa: PLC0415
    return OutputBucket(path)
