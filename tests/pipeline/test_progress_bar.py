"""A run on a terminal: a bar that shows how far it is, and lines above it."""

from laminar_core.driver.events import ProgressMade, RestoreProgressed
from laminar_core.pipeline.progress_bar import ProgressBar


def test_a_bar_shows_rows_and_rate_and_what_is_restored(capsys):
    with ProgressBar(show_bar=True) as bar:
        bar.on_event(
            RestoreProgressed(
                time_ms=1,
                generation=3,
                files=1,
                files_total=2,
                size_bytes=1,
                bytes_total=2_000_000,
                percent=50,
            )
        )
        assert bar._bar.tasks[0].fields["rate"] == "restoring 50 % of 2.0 MB"
        bar.on_event(
            ProgressMade(
                time_ms=1,
                rows_in=1_000,
                rows_out=1,
                rows_late=0,
                rows_total=4_000,
                rows_per_s=500,
                watermark_us=None,
            )
        )
    said = capsys.readouterr().err
    assert "1,000 rows" in said
    assert "500 rows/s" in said
