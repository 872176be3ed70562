from pathlib import Path

import pytest

from laminar_core.errors import ConfigurationError
from laminar_core.retention.config import RetentionConfig
from laminar_core.retention.facts import DAY_MS, HOUR_MS, RetentionPolicy


def test_the_defaults_are_those_of_the_protocol() -> None:
    assert RetentionConfig().policy() == RetentionPolicy()


def test_everything_can_be_set() -> None:
    config = RetentionConfig(
        keep_last=5,
        hourly=24,
        daily=7,
        weekly=4,
        max_age="30 days",
        min_kept=2,
        savepoints="like-others",
        unreadable="delete",
        left_overs="report",
        quarantine="12 hours",
        history_keep=1000,
        history_max_age="90 days",
    )
    assert config.policy() == RetentionPolicy(
        keep_last=5,
        hourly=24,
        daily=7,
        weekly=4,
        max_age_ms=30 * DAY_MS,
        min_kept=2,
        keep_savepoints=False,
        delete_unreadable=True,
        delete_left_overs=False,
        quarantine_min_ms=12 * HOUR_MS,
        history_keep=1000,
        history_max_age_ms=90 * DAY_MS,
    )
    assert RetentionConfig(**config.model_dump()) == config


def test_left_over_files_may_still_be_called_orphans() -> None:
    older = RetentionConfig.model_validate({"orphans": "report"})
    assert older == RetentionConfig(left_overs="report")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.toml", 'keep_last = 5\nmax_age = "2 days"\n'),
        ("p.toml", '\ufeffkeep_last = 5\r\nmax_age = "2 days"\r\n'),
        ("p.json", '{"keep_last": 5, "max_age": "2 days"}'),
    ],
)
def test_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    config = RetentionConfig.read(tmp_path / name)
    assert (config.keep_last, config.max_age, config.min_kept) == (5, "2 days", 1)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.toml", "keep_last = ", "is not valid TOML"),
        ("P.TOML", "keep_last = ", "is not valid TOML"),
        pytest.param("p.toml", f"keep_last = {'[' * 5_000}", "is not valid TOML", id="deep"),
        pytest.param("p.toml", f"keep_last = {'9' * 5_000}", "is not valid TOML", id="long"),
        ("p.json", "{", "is not a retention policy: Invalid JSON"),
        ("p.json", '{"keep": 5}', "keep is unknown; there are: keep_last"),
        ("p.toml", "keep_last = 0", "keep_last: must be greater than or equal to 1"),
        ("p.toml", "keep_last = true", "keep_last: must be a whole number"),
        ("p.toml", 'max_age = "soon"', "'soon' is not a duration"),
        ("p.toml", 'quarantine = "0 days"', "a duration must be positive and at most"),
    ],
)
def test_what_is_no_policy_is_refused_in_one_line(tmp_path, name, text, said) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        RetentionConfig.read(tmp_path / name)
    assert said in str(refused.value)
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_default_policy_is_for_runs_that_announce_it() -> None:
    default = RetentionConfig.default()
    announced = default.announcement()
    assert announced is not None
    assert RetentionConfig(**announced) == default
    policy = default.policy()
    assert policy.only_announced
    assert (policy.keep_savepoints, policy.delete_left_overs) == (False, False)
    assert RetentionConfig(keep_last=3).announcement() is None


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        RetentionConfig.read(tmp_path / "p.toml")
