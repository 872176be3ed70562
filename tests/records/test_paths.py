import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_core.errors import ConfigurationError
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.limits import NUMBER_MAX
from laminar_core.records.paths import (
    NAME_LENGTH_MAX,
    JobPaths,
    check_folder,
    check_job_name,
    check_key,
    check_operator_id,
    generation_in,
    number_in,
)

NUMBERS = st.integers(1, NUMBER_MAX)


def test_the_layout_is_the_documented_one():
    paths, generation, checkpoint = JobPaths("payments"), Generation(3), CheckpointId(12)
    assert [
        paths.claim(generation),
        paths.base(generation),
        paths.heartbeat(generation),
        paths.end(generation),
        paths.trigger(checkpoint),
        paths.manifest(checkpoint),
        paths.state(checkpoint, "window", 1),
        paths.state(checkpoint, "window", 1, 2),
        paths.shared_segment("window", generation, 1, 20),
        paths.inflight(checkpoint, 1),
        paths.inflight(checkpoint, 1, 2),
        paths.commit(checkpoint),
        paths.outcome(checkpoint),
    ] == [
        "payments/generations/0000000003.json",
        "payments/generations/0000000003.base.json",
        "payments/generations/0000000003.heartbeat.json",
        "payments/generations/0000000003.end.json",
        "payments/checkpoints/0000000012/trigger.json",
        "payments/checkpoints/0000000012/manifest.json",
        "payments/checkpoints/0000000012/operators/window/state_1.seg",
        "payments/checkpoints/0000000012/operators/window/state_1_2.seg",
        "payments/shared/window/0000000003-1-00000020.seg",
        "payments/checkpoints/0000000012/operators/inflight_1.buf",
        "payments/checkpoints/0000000012/operators/inflight_1_2.buf",
        "payments/commits/0000000012.json",
        "payments/history/0000000012.json",
    ]


def test_a_part_is_a_state_or_inflight_file_of_that_very_checkpoint():
    paths, checkpoint = JobPaths("payments"), CheckpointId(12)
    parts = [
        paths.state(checkpoint, "window", 1),
        paths.state(checkpoint, "window", 1, 2),
        paths.state(checkpoint, "window", 1).replace(".seg", ".arrow"),  # Of the first format.
        paths.inflight(checkpoint, 1),
        paths.inflight(checkpoint, 1, 2),
        f"{paths.parts(checkpoint)}window/1/inflight_4.buf",  # Of manifests up to 5.
        f"{paths.parts(checkpoint)}window/1/outflight_5.buf",
    ]
    assert all(key.startswith(paths.parts(checkpoint)) for key in parts)
    assert all(paths.is_part(checkpoint, key) for key in parts)
    assert not any(paths.is_part(CheckpointId(1), key) for key in parts)
    assert not any(paths.is_part(checkpoint, f"{key}\n") for key in parts)
    assert not paths.is_part(checkpoint, "operators/window/state_1.seg")
    others = [paths.trigger(checkpoint), paths.manifest(checkpoint), paths.parts(checkpoint)]
    assert not any(paths.is_part(checkpoint, key) for key in others)


@given(NUMBERS, NUMBERS)
def test_listing_order_is_numeric_order(first, second):
    paths = JobPaths("j")
    keys = sorted([paths.claim(Generation(first)), paths.claim(Generation(second))])
    numbers = [number_in(key.removeprefix(paths.generations)) for key in keys]
    assert numbers == sorted([first, second])


@given(NUMBERS)
def test_numbers_come_back_from_files_and_folders(number):
    assert number_in(f"{number:010}.json") == number_in(f"{number:010}/") == number


@pytest.mark.parametrize(
    "name",
    [
        "0000000003.base.json",
        "3.json",
        "00000000003.json",
        "x",
        "0000000003",
        "",
        "\u0663" * 10 + "/",
    ],
)
def test_other_names_have_no_number(name):
    assert number_in(name) is None


@pytest.mark.parametrize("number", [0, -1, NUMBER_MAX + 1, 10**10])
def test_a_number_that_no_name_has_is_refused_in_one_line(number):
    with pytest.raises(ConfigurationError, match="they go from 1 to 9000000000") as caught:
        JobPaths("j").claim(Generation(number))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("digits", ["0000000000", "9000000001", "9999999999"])
def test_a_name_with_a_number_that_is_never_used_has_none(digits):
    assert number_in(f"{digits}.json") is number_in(f"{digits}/") is None
    assert generation_in(f"{digits}.end.json") is None


@pytest.mark.parametrize("key", ["a" * 256, "/".join("a" * 500), "a/" + "b" * 5_000])
def test_a_key_that_some_store_could_not_hold_is_refused(key):
    with pytest.raises(ConfigurationError, match="is not an object name") as caught:
        check_key(key)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["a", "payments-2", "A_b", "9", "x" * NAME_LENGTH_MAX])
def test_good_names_pass(name):
    assert check_job_name(name) == check_operator_id(name) == name


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".", "a b", "a.b", "é", "a\n", "x" * (NAME_LENGTH_MAX + 1)]
)
def test_bad_names_are_refused_in_one_line(name):
    for check in (check_job_name, check_operator_id, JobPaths):
        with pytest.raises(ConfigurationError, match="letters, digits") as caught:
            check(name)
        assert "\n" not in str(caught.value)


def test_a_bad_operator_id_cannot_reach_another_folder():
    with pytest.raises(ConfigurationError):
        JobPaths("j").state(CheckpointId(1), "../../other", 0)


def test_no_job_can_be_the_probe_folder():
    with pytest.raises(ConfigurationError):
        check_job_name("_probe")


def test_relative_and_absolute_are_inverse():
    paths = JobPaths("j")
    key = paths.manifest(CheckpointId(1))
    assert paths.relative(key) == "checkpoints/0000000001/manifest.json"
    assert paths.absolute(paths.relative(key)) == key


@given(st.text(alphabet="a./-_ \n", max_size=8))
def test_a_key_that_passes_stays_below_the_root_and_is_visible(key):
    try:
        check_key(key)
    except ConfigurationError:
        return
    parts = key.split("/")
    assert all(part and not part.startswith(".") and part == part.strip() for part in parts)


@pytest.mark.parametrize("folder", ["", "a/", "a/b/"])
def test_folders_end_with_a_slash(folder):
    assert check_folder(folder) == folder


@pytest.mark.parametrize("folder", ["a", "/", "a//", "../", "a/./"])
def test_what_is_no_folder_is_refused(folder):
    with pytest.raises(ConfigurationError):
        check_folder(folder)
