"""``laminar config`` shows what is in force, and where it was set."""

import json


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


def test_a_secret_of_spark_is_not_printed(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli("config", "--conf", "spark.hadoop.fs.s3a.secret.key=abc", "--conf", "spark.a=b")
    assert "spark.a=b" in answer.out
    assert "abc" not in answer.out


def test_a_wrong_variable_is_named(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAMINAR_CHECKPOINT_INTERVAL", "5")
    answer = cli("config")
    assert answer.code == 2
    assert "LAMINAR_CHECKPOINT_INTERVAL in the environment: '5' has no unit" in answer.err
