"""Who shares a host with a worker reaches its unix sockets, and nobody else is taken for one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from laminar_core.link import unix_sockets
from laminar_core.link.unix_sockets import NearEndpoint, NearSocket


@contextmanager
def listening() -> Iterator[NearSocket]:
    with zmq.Context() as context:
        opened = NearSocket.open(context, 2)
        assert opened is not None
        yield opened
        opened.close()


def test_a_process_that_shares_kernel_and_directory_is_on_the_host() -> None:
    with listening() as near:
        assert near.at.is_here()
        assert NearEndpoint.model_validate_json(near.at.model_dump_json()).is_here()
        assert near.connections().accepted == 0  # The proof costs no connection.


def test_the_same_directory_on_another_host_has_another_proof() -> None:
    """Containers may have equal names of hosts and of folders."""
    with listening() as near:
        assert not near.at.model_copy(update={"proof": "0" * 12}).is_here()
        assert not near.at.model_copy(update={"directory": near.at.directory + "-"}).is_here()


def test_a_name_that_no_open_socket_of_this_kernel_has_is_no_proof() -> None:
    """As seen through a network file system, in a copied image, or after the process has died."""
    with listening() as near:
        proof = Path(near.at.directory) / near.at.proof
        near._proof.close()
        assert proof.is_socket()
        assert not near.at.is_here()
        proof.unlink()
        proof.touch()
        assert not near.at.is_here()
        shutil.rmtree(near.at.directory)
        assert not near.at.is_here()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_can_open_is_not_trusted(mode: int) -> None:
    with listening() as near:
        Path(near.at.directory).chmod(mode)
        assert not near.at.is_here()


def test_a_directory_of_another_user_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the same name, made by somebody who has seen it on the network."""
    with listening() as near:
        monkeypatch.setattr(unix_sockets.os, "geteuid", lambda: os.getuid() + 1)
        assert not near.at.is_here()


def test_a_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    with listening() as near:
        link = tmp_path / "link"
        link.symlink_to(near.at.directory)
        assert not near.at.model_copy(update={"directory": str(link)}).is_here()


@pytest.mark.parametrize("directory", ["", "/" + "long" * 40, "nul\0byte", "../relative"])
def test_paths_that_cannot_be_are_elsewhere(directory: str) -> None:
    assert not NearEndpoint(directory=directory, proof="0" * 12).is_here()
