"""A peer that is absent is named, with the reason."""

from pathlib import Path

from benchmarks.peers import is_there, python_environment


def test_a_peer_is_there_if_its_folder_is(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("benchmarks.peers.PEERS", tmp_path)
    (tmp_path / "duckdb").mkdir()
    (tmp_path / "flink.absent").write_text("no Maven\n")
    assert [is_there(peer, "joins") for peer in ("duckdb", "flink", "polars")] == [
        True,
        False,
        False,
    ]
    assert capsys.readouterr().err.splitlines() == [
        "joins: without flink: no Maven",
        "joins: without polars: make peers gets it",
    ]


def test_a_peer_comes_first_on_the_path_and_gets_its_threads(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("benchmarks.peers.PEERS", tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/ours")
    environment = python_environment("polars", 2)
    assert environment["PYTHONPATH"] == f"{tmp_path}/polars:/ours"
    assert environment["POLARS_MAX_THREADS"] == "2"
