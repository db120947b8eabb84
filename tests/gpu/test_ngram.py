"""The n-gram drafter: its law, its datastore and its names."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpu import drafters
from gpu.drafters.base import ROOT_PARENT
from gpu.drafters.ngram import NGram
from gpu.samplers import Sampler
from tests.gpu.decoded_texts import P_VALUE, VOCABULARY, make_method, p_value
from tests.gpu.tiny_drafters import root_logits


def test_ngram_law_by_hand():
    """Text 0 1 0 1 2 0, then root 1, order 2, V = 4. After 1 came 0 and 2; alone, 0 came 3 times, 1 twice, 2 once."""
    drafter = NGram(4, 2)
    session = drafter.begin([[0, 1, 0, 1, 2, 0]])
    got = torch.softmax(session.expand(torch.tensor([[1]]), torch.tensor([[ROOT_PARENT]])), -1)[0, 0].double().numpy()
    unigram = (np.array([3, 2, 1, 0]) + 3 * np.full(4, 1 / 4)) / (6 + 3)
    expected = (np.array([1, 0, 1, 0]) + 2 * unigram) / (2 + 2)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert got.min() > 0


def test_ngram_reads_its_datastore_and_what_was_generated(target):
    files = NGram(8, 3, [[4, 5, 6, 4, 5, 6, 4, 5, 6]])
    assert root_logits(files, target, [1, 4, 5]).argmax() == 6
    assert root_logits(NGram(8, 3), target, [1, 2, 3, 0, 1, 2]).argmax() == 3


def test_top_candidates_of_a_datastore_are_lossless(target, tmp_path):
    """As REST drafts: the two likeliest continuations in the datastore, always the same, in a tree of three levels."""
    method = make_method(tmp_path, Sampler("top-then-sample", 2), "greedy", "kary")
    assert p_value(target, NGram(VOCABULARY, 3, [[1, 5, 2, 3, 1, 5, 2, 4]]), method, 2000) > P_VALUE


def test_ngram_by_name(target, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    named = SimpleNamespace(vocab_size=8, tokenizer=lambda text: SimpleNamespace(input_ids=[4, 5, 6, 4, 5]))
    assert drafters.make(f"ngram:3,{tmp_path / 'a.txt'}", named).store.after((4, 5)) == {6: 1}
    assert drafters.make("ngram", named).order == 4
    for spec in ("ngram:x", "ngram:0"):
        with pytest.raises(ValueError, match="order"):
            drafters.make(spec, named)
    (tmp_path / "b.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"b\.txt is not UTF-8"):
        drafters.make(f"ngram:3,{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}", named)
    with pytest.raises(OSError):
        drafters.make(f"ngram:3,{tmp_path / 'absent.txt'}", named)
