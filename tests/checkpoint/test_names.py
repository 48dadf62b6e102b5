"""Names of arrays, and new names for old ones."""

import pytest

from runhooks.checkpoint.names import Only, Renaming


@pytest.mark.parametrize(
    ("rename", "name", "new"),
    [
        ({"a": "b"}, "a", "b"),
        ({"a": "b"}, "a/x", "b/x"),
        ({"a": "b"}, "a.x", "b.x"),
        ({"a": "b"}, "ab/x", "ab/x"),
        ({"a": "b", "a/x": "c"}, "a/x/y", "c/y"),
        ({"": "model/"}, "w", "model/w"),
        ({"bert.": "model/"}, "bert.w.b", "model/w.b"),
        ({"state/": ""}, "state/w", "w"),
    ],
)
def test_new_names_and_the_way_back(rename, name, new):
    renaming = Renaming(rename)
    assert renaming.new(name) == new
    assert renaming.old(new) == name


def test_a_name_that_nothing_gets():
    assert Renaming({"": "model/"}).old("optimizer/x") is None
    assert Renaming({"a": "b"}).old("a") is None


def test_a_name_ends_where_a_separator_is():
    names = ["conv", "conv1.weight", "conv1.bias", "conv10.weight"]
    assert Only("conv1").of(names, "") == names[1:3]
    assert Only("conv1").relative(names, "") == {"weight": names[1], "bias": names[2]}


def test_a_name_with_the_signs_of_a_pattern():
    assert Only("a[0]").of(["a[0]/x", "a0/x"], "") == ["a[0]/x"]
    assert Only("a[*]").of(["a[0]/x", "a0/x"], "") == ["a[0]/x"]
