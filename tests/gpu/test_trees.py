import json

import numpy as np
import pytest

from gpu import trees


@pytest.mark.parametrize(
    ("spec", "size", "depth", "width"),
    [
        ("plain", 1, 0, 0),
        ("chain:4", 5, 4, 1),
        ("kary:2x4", 31, 4, 2),
        ("kary:4x3", 85, 3, 4),
        ("eagle-sparse", 26, 5, 4),
    ],
)
def test_known_trees(spec, size, depth, width):
    tree = trees.parse(spec)
    assert (tree.size, tree.depth, tree.width) == (size, depth, width)
    assert tree.name == spec
    assert sum(map(len, tree.children)) == size - 1
    for slot, children in enumerate(tree.children):
        assert [tree.paths[child] for child in children] == [(*tree.paths[slot], r) for r in range(len(children))]
    assert tree.ancestors.sum(axis=1).tolist() == [d + 1 for d in tree.depths]
    assert all(tree.ancestors[s, a] == (tree.paths[s][: len(tree.paths[a])] == tree.paths[a])
               for s in range(size) for a in range(size))  # fmt: skip
    assert [s for level in tree.inner for s in level] == [s for s in range(size) if tree.children[s]]


def test_eagle_sparse_is_the_published_one():
    tree = trees.parse("eagle-sparse")
    assert [len(level) for level in tree.inner] == [1, 4, 4, 1, 1]
    assert np.bincount(tree.depths).tolist() == [1, 4, 8, 8, 3, 2]


def test_json_file(tmp_path):
    file = tmp_path / "tree.json"
    file.write_text(json.dumps([[0, 0], [0], [1]]))
    assert trees.parse(str(file)).paths == ((), (0,), (1,), (0, 0))


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        ([[0, 0]], "no parent"),
        ([[1]], "no sibling of rank 0"),
        ([[0], [0]], "twice"),
        ([[]], "not a path"),
        ([[-1]], "integer >= 0"),
        ([[0.5]], "integer >= 0"),
        ([[True]], "integer >= 0"),
        ({"a": 1}, "list of child-rank paths"),
    ],
)
def test_bad_paths_are_refused(tmp_path, paths, says):
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(paths))
    with pytest.raises(ValueError, match=says):
        trees.parse(str(file))


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("kary:0x4", "at least 1"),
        ("chain:0", "at least 1"),
        ("kary:10x10", "4096"),
        ("chain:99999999999", "4096"),
        ("star:3", "known: plain"),
        ("kary:2", "known: plain"),
    ],
)
def test_bad_names_are_refused(spec, says):
    with pytest.raises(ValueError, match=says):
        trees.parse(spec)


def test_a_file_that_is_no_json_or_not_there(tmp_path):
    file = tmp_path / "tree.json"
    file.write_text("[[0]")
    with pytest.raises(ValueError, match="not readable JSON"):
        trees.parse(str(file))
    with pytest.raises(OSError, match=r"none\.json"):
        trees.parse(str(tmp_path / "none.json"))
