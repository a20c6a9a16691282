"""Lines and bars as SVG has them."""

from ignis_console.charts import bars, line


def test_a_line_goes_from_the_lower_left_to_the_upper_right():
    drawn = line([(0, 0), (5, 5), (10, 10)], 0, 10, 100, 20, gap=10)

    assert drawn.path == "M0 19L50 10L100 1"
    assert drawn.area == "M0 20L0 19L50 10L100 1L100 20Z"
    assert (drawn.lowest, drawn.highest, drawn.latest) == (0, 10, 10)


def test_a_line_breaks_where_a_figure_is_unknown_or_missing():
    unknown = line([(0, 1), (1, None), (2, 1), (3, 1)], 0, 10, 100, 20, gap=5)
    missing = line([(0, 1), (1, 1), (9, 1), (10, 1)], 0, 10, 100, 20, gap=5)

    assert unknown.path.count("M") == 2
    assert missing.path.count("M") == 2
    # One figure alone can still be seen.
    assert unknown.path.startswith("M0 1L1.5 1M")


def test_a_line_without_figures_has_no_extremes():
    assert line([(1, None), (99, 3)], 0, 10, 100, 20, gap=5) == ("", "", None, None, None)


def test_a_line_of_zeros_is_at_the_bottom():
    assert line([(0, 0), (10, 0)], 0, 10, 100, 20, gap=20).path == "M0 19L100 19"


def test_bars_show_that_more_than_nothing_is_more():
    found = bars([0, 1, 1000], 90, 48)

    assert [each[3] for each in found] == [0, 1, 48]
    assert [each[0] for each in found] == [0, 30, 60]
    assert bars([], 90, 48) == []
