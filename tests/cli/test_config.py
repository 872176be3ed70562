"""``laminar config`` shows what is in force, and where it was set."""

import json

import pytest


def test_the_strongest_source_wins_and_is_named(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("LAMINAR_CONFIG")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "laminar.toml").write_text("store = 's'\nworkers = 4\n[state]\nmemory = '1GiB'\n")
    monkeypatch.setenv("LAMINAR_WORKERS", "5")
    answer = cli("config", "--json", "--state-memory", "64MB")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert found["store"] == {"value": "s", "source": "laminar.toml"}
    assert found["workers"] == {"value": 5, "source": "environment (LAMINAR_WORKERS)"}
    assert found["state.memory"] == {"value": "64MB", "source": "command line"}
    assert found["recovery.restarts"] == {"value": 10, "source": "default"}
    assert "environment (LAMINAR_WORKERS)" in cli("config").out


@pytest.mark.parametrize(
    "name",
    [
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "fs.azure.account.key.mine.dfs.core.windows.net",
        "fs.azure.sas.rows.mine.blob.core.windows.net",
        "fs.gs.auth.service.account.private.key",
        "x.passphrase",
        "x.passwd",
        "x.api-key",
        "fs.s3a.server-side-encryption.key",
        "fs.azure.saskey",
        "x.shared.key",
    ],
)
def test_a_secret_of_spark_is_not_printed(cli, tmp_path, monkeypatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli("config", "--conf", f"spark.hadoop.{name}=abc", "--conf", "spark.a=b")
    assert "spark.a=b" in answer.out
    assert "abc" not in answer.out


def test_a_setting_of_spark_without_quotes_is_refused_and_not_printed(cli, tmp_path) -> None:
    """TOML takes the dots for tables, and Spark would get one setting named ``spark``."""
    file = tmp_path / "other.toml"
    file.write_text('[spark.conf]\nspark.hadoop.fs.s3a.secret.key = "abc"\n')
    answer = cli("config", "--config", file)
    assert (answer.code, answer.out) == (2, "")
    assert "spark.conf: spark must be a text" in answer.err
    assert '"spark.executor.memory"' in answer.err
    assert "abc" not in answer.err


def test_a_wrong_variable_is_named(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMINAR_CHECKPOINT_INTERVAL", "5")
    answer = cli("config")
    assert answer.code == 2
    assert "LAMINAR_CHECKPOINT_INTERVAL in the environment: '5' has no unit" in answer.err
