"""Archives of the classes of servers in Java, and the empty store of a broker, beside their jars.

They are made once, by ``archive_making``, and each start takes less with them. A server without an
archive that fits this Java and these jars starts as ever (ADR 0087).
"""

from pathlib import Path

from laminar_core.spark.class_archive import SILENT, name_for


def archive_of(program: str, java_home: Path, jars: Path) -> Path:
    """Return where the archive of a server is, or would be."""
    jars = jars.resolve()  # Java compares the path, too.
    return jars / name_for(program, java_home, jars, "**/*.jar")


def archive_options(program: str, java_home: Path, jars: Path) -> tuple[str, ...]:
    """Return the options with which Java uses the archive; none without an archive."""
    archive = archive_of(program, java_home, jars)
    return (f"-XX:SharedArchiveFile={archive}", SILENT) if archive.is_file() else ()


def archiving_options(draft: Path) -> tuple[str, ...]:
    """Return the options with which Java writes an archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={draft}", SILENT)


def formatted_store(jars: Path) -> Path:
    """Return where the empty store of a broker is, or would be: what the first start makes."""
    return jars / "formatted"
