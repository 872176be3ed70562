"""Archives of the PySpark that is installed are left out of the path, and no others."""

from pathlib import Path

import pytest

from laminar_core.spark.installed_pyspark import without_archives


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with both packages, and the archives where pip puts them."""
    site = tmp_path / "site"
    for package in ("pyspark", "py4j"):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").touch()
    archives = site / "pyspark" / "python" / "lib"
    archives.mkdir(parents=True)
    for name in ("pyspark.zip", "py4j-src.zip"):
        (archives / name).touch()
    (tmp_path / "job.zip").touch()
    return site


def archives_of(site: Path) -> list[str]:
    return [str(path) for path in sorted((site / "pyspark" / "python" / "lib").iterdir())]


def test_archives_of_the_installed_one_are_left_out(site: Path, tmp_path: Path) -> None:
    job, nowhere = str(tmp_path / "job.zip"), str(tmp_path / "nowhere")
    path = ["", *archives_of(site), job, nowhere, str(site)]
    assert without_archives(path) == ["", job, nowhere, str(site)]


def test_archives_of_another_spark_stay(site: Path, tmp_path: Path) -> None:
    """It may have another version."""
    other = tmp_path / "opt" / "pyspark.zip"
    other.parent.mkdir()
    other.touch()
    assert without_archives([str(other), str(site)]) == [str(other), str(site)]


@pytest.mark.parametrize("package", ["pyspark", "py4j"])
def test_archives_stay_where_a_package_is_only_in_them(site: Path, package: str) -> None:
    (site / package / "__init__.py").unlink()
    path = [*archives_of(site), str(site)]
    assert without_archives(path) == path


def test_a_link_to_the_installation_is_the_installation(site: Path, tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.symlink_to(site / "pyspark")
    path = [str(home / "python" / "lib" / "pyspark.zip"), str(site)]
    assert without_archives(path) == [str(site)]
