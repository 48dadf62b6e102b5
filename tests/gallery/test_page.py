"""docs/gallery.md shows the programs as they are, and how many lines their loops have."""

from tests.gallery.lines import PAGE, ROW, all_counts, page_with


def test_the_page_has_a_row_for_each_program():
    assert {row[1] for row in ROW.finditer(PAGE.read_text())} >= all_counts().keys()


def test_the_page_shows_what_is_so():
    found = all_counts()
    assert page_with(found) == PAGE.read_text(), "run python -m tests.gallery.lines --write"
