"""A project as ``dg`` makes it, with one component in a file ``defs.yaml``."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox


@contextmanager
def project(defs_yaml: str) -> Iterator[tuple[dg.Component, dg.Definitions]]:
    """Load what a project defines whose folder ``defs/totals`` has this file."""
    with create_defs_folder_sandbox() as sandbox, warnings.catch_warnings():
        # Dagster's own, while it reads YAML, and about links to that YAML.
        warnings.filterwarnings("ignore", category=dg.BetaWarning)
        warnings.filterwarnings("ignore", message=".*parse_obj_as", category=DeprecationWarning)
        folder = sandbox.defs_folder_path / "totals"
        folder.mkdir()
        (folder / "defs.yaml").write_text(defs_yaml)
        with sandbox.load_component_and_build_defs(defs_path=folder) as found:
            yield found


def mistake_in(defs_yaml: str) -> str:
    """Return what Dagster says of this file, and why."""
    with pytest.raises(ComponentTreeException) as caught, project(defs_yaml):
        pass
    return f"{caught.value}\n{caught.value.__cause__}"
