"""Which figures count as typed and never shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.programs.grounding import FIGURES_LIMIT, Seen, figures, typed_text, ungrounded


def seen(*texts: str) -> Seen:
    remembered = Seen()
    for text in texts:
        remembered.add(text)
    return remembered


def refused(code: str, value: str, *shown: str) -> list[str]:
    return ungrounded(code, value, seen(*shown))


def test_a_figure_typed_into_submit_is_found() -> None:
    assert refused('SUBMIT("There were 4711 failures")', "There were 4711 failures") == ["4711"]


def test_a_computed_figure_is_grounded() -> None:
    assert refused('SUBMIT(f"There were {n} failures")', "There were 4711 failures") == []


def test_a_shown_figure_is_grounded() -> None:
    assert refused('SUBMIT("There were 4711 failures")', "There were 4711 failures", "count: 4711") == []


def test_small_whole_numbers_are_no_figures() -> None:
    assert refused('SUBMIT("3 of 9 services")', "3 of 9 services") == []


def test_small_decimals_are_figures() -> None:
    assert refused('SUBMIT("about 3.7 s")', "about 3.7 s") == ["3.7"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("12.3 %", "12.345"),
        ("12.34", "12.349"),
        ("35 %", "0.3512"),
        ("35%", "share 0.35"),
        ("1,234,567", "1234567"),
        ("1.234.567", "1234567"),
        ("1\u202f234", "1234"),
        ("12 s", "11.87"),
        ("1.2 million", "1234567"),
        ("12k", "12480"),
        ("2.3 MB", "2345678"),
        ("about 1,200", "1187"),
        ("2024-05-17", "17 May 2024"),
        ("10:42:13", "2025-03-04T10:42:13.555Z"),
        ("app.log:2534", "app.log:2534: it broke"),
        ("12.50 €", "12.5"),
        ("1.234,5", "1,234.5"),
        ("0815", "815"),
    ],
)
def test_other_ways_to_write_a_shown_figure(written: str, shown: str) -> None:
    assert refused(f"SUBMIT({written!r})", written, shown) == []


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("12.4", "12.345"),
        ("36 %", "0.3512"),
        ("1.3 million", "1234567"),
        ("app.log:2535", "app.log:2534"),
        ("1000", "1042"),
    ],
)
def test_figures_that_only_look_alike_are_not_grounded(written: str, shown: str) -> None:
    assert refused(f"SUBMIT({written!r})", written, shown)


def test_an_index_or_a_size_in_submit_is_no_claim() -> None:
    assert refused('SUBMIT("\\n".join(lines[:500])[:20000])', "some lines") == []


def test_arithmetic_on_invented_numbers_is_a_claim() -> None:
    assert refused('SUBMIT(f"{1200 * 3} in all")', "3600 in all") == ["1200"]


def test_a_number_typed_in_an_earlier_cell_as_text() -> None:
    earlier = typed_text('answer = "It took 4711 seconds"')
    assert ungrounded("SUBMIT(answer)", "It took 4711 seconds", seen(), earlier) == ["4711"]


def test_code_that_does_not_parse_is_still_searched() -> None:
    assert refused("SUBMIT('4711' ", "4711") == ["4711"]


def test_a_number_of_20_000_digits_is_one_figure() -> None:
    number = "7" * 20_000
    assert refused(f"SUBMIT('{number}')", number) == [f"{'7' * 18}…{'7' * 18}"]
    assert refused(f"SUBMIT('{number}')", number, f"result {number}") == []
    assert refused(f"SUBMIT({number})", number, f"result {number}") == []


def test_memory_is_bounded_and_then_nothing_is_refused() -> None:
    remembered = seen("\n".join(str(100 + number) for number in range(FIGURES_LIMIT + 10)))
    assert remembered.full
    assert ungrounded("SUBMIT('987654321')", "987654321", remembered) == []


@pytest.mark.parametrize("text", ["1," * 300_000, "1.1" * 200_000, "9" * 1_000_000, "1:" * 300_000, "a1" * 300_000])
def test_hostile_text_is_read_in_one_pass(text: str) -> None:
    """Quadratic scanners took minutes for these."""
    remembered = seen(text)
    assert len(list(figures(text))) <= FIGURES_LIMIT
    assert isinstance(remembered.full, bool)


@given(st.integers(min_value=10, max_value=10**30), st.sampled_from(["{}", "{:,}", "{:_}", "x={}", "{} %"]))
def test_what_was_shown_is_always_grounded(number: int, form: str) -> None:
    text = form.format(number)
    assert refused(f"SUBMIT({text!r})", text, f"shown: {number}") == []


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_can_be_checked(code: str, value: str) -> None:
    assert refused(code, value, value) == []
