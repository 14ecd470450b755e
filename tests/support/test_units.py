"""Sizes and durations: what is accepted, exactly what it means, and what the refusal says."""

import pytest

from whywait.errors import ConfigError
from whywait.kernel.durations import parse_duration_ns
from whywait.support.units import format_ms, format_size, parse_size, parse_written_size, shown
from whywait.support.words import counted


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (0, 0),
        (512, 512),
        (10**30, 10**30),
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("512MB", 512 * 10**6),
        ("4GiB", 4 * 2**30),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("2TB", 2 * 10**12),
        ("1PiB", 2**50),
        ("8 gb", 8 * 10**9),
        ("1.5GB", 1_500_000_000),
        (" 0.5 MiB ", 2**19),
        ("0.1GB", 100_000_000),
    ],
)
def test_size_means_exactly_what_it_says(written, size):
    """B6: ints are bytes, MB is 10^6, GiB is 2^30; no binary rounding of decimals."""
    assert parse_size(written) == size
    assert type(parse_size(written)) is int


@pytest.mark.parametrize(
    "written",
    [-1, True, None, 1.5, "", "MB", "-1MB", "1,5GB", "1e3", "12 parsecs", "1GB2", "0x10", "٣GB", [1], "9" * 5000],
)
def test_size_that_makes_no_sense_is_refused_with_the_value_and_what_is_expected(written):
    """B6: anything else is an error that quotes the value."""
    with pytest.raises(ConfigError, match="not a size: expected an int >= 0") as refusal:
        parse_size(written)
    assert shown(written) in str(refusal.value)


@pytest.mark.parametrize(("written", "number"), [(10, "10"), ("10", "10"), (" 1.5 ", "1.5"), (10**30, str(10**30))])
def test_a_written_size_needs_its_unit(written, number):
    """B6: on the command line and in workflow files; 0 needs none."""
    with pytest.raises(ConfigError) as refused:
        parse_written_size(written)
    assert str(refused.value) == f"{number} what? write {number}GB, or {number}B for bytes"
    assert parse_size(written) > 0
    assert [parse_written_size(each) for each in (0, "0", "0GB", "10GB", "10B")] == [0, 0, 0, 10**10, 10]


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        (0, 0),
        (2, 2_000_000_000),
        (0.5, 500_000_000),
        (1.001, 1_001_000_000),
        (0.1 + 0.2, 300_000_000),
        ("500ms", 500_000_000),
        ("2s", 2_000_000_000),
        ("5m", 300_000_000_000),
        ("1h", 3_600_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1d 2h", 93_600_000_000_000),
        ("0.1s", 100_000_000),
        ("7us", 7_000),
        ("7µs", 7_000),
        ("3ns", 3),
    ],
)
def test_duration_means_exactly_what_it_says(written, ns):
    assert parse_duration_ns(written) == ns
    assert type(parse_duration_ns(written)) is int


@pytest.mark.parametrize(
    "written", [-1, -0.1, float("nan"), float("inf"), True, None, "", "5", "5 minutes", "ms", "-5s", "1s2", [1]]
)
def test_duration_that_makes_no_sense_is_refused(written):
    with pytest.raises(ConfigError, match="not a duration: expected a number of seconds"):
        parse_duration_ns(written)


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (0, "0 ms"),
        (0.25, "0.25 ms"),
        (7, "7 ms"),
        (850, "850 ms"),
        (999.6, "1.0 s"),
        (1000, "1.0 s"),
        (12_340, "12.3 s"),
        (59_949, "59.9 s"),
        (59_960, "1m 00s"),
        (60_000, "1m 00s"),
        (3_599_600, "1h 00m"),
        (245_000, "4m 05s"),
        (3_600_000, "1h 00m"),
        (7_380_000, "2h 03m"),
        (273_600_000, "3d 04h"),
    ],
)
def test_durations_are_told_in_units_people_use(ms, told):
    assert format_ms(ms) == told


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 B"),
        (40, "40 B"),
        (1000, "1.0 kB"),
        (1_500_000_000, "1.5 GB"),
        (2 * 10**12, "2.0 TB"),
        (10**21, "1000.0 EB"),
    ],
)
def test_sizes_are_told_in_units_people_use(size, told):
    assert format_size(size) == told


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ("a\x1b[31m\n", '"a\\x1b[31m\\n"'),
        (10**400, "an int of 1329 bits"),
    ],
)
def test_a_quoted_value_is_harmless(value, text):
    assert shown(value) == text


def test_a_quoted_value_is_never_longer_than_a_line():
    assert len(shown("x" * 10_000)) == 60
    assert len(shown(["x"] * 10_000)) == 60


@pytest.mark.parametrize(
    ("text", "ways"), [("2k", '"2KB" (10^3) or "2KiB" (2^10)'), ("8G", '"8GB" (10^9) or "8GiB" (2^30)')]
)
def test_a_size_that_could_mean_two_says_both(text, ways):
    """B6: with their exponents."""
    with pytest.raises(ConfigError) as caught:
        parse_size(text)
    assert str(caught.value) == f'"{text}" could mean two sizes: write {ways}'


@pytest.mark.parametrize(("number", "told"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (1200, "1,200 tasks")])
def test_one_is_not_told_as_many(number, told):
    """V1: what people read."""
    assert counted(number, "task") == told
