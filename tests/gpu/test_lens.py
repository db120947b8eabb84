"""The lens drafter: the ridge solution, and its files."""

import pytest
import torch
from safetensors.torch import save_file

from gpu import drafters
from gpu.drafters import lens
from tests.gpu.tiny_drafters import root_logits


def test_lens_is_the_ridge_solution_whatever_the_pieces():
    generator = torch.Generator().manual_seed(0)
    hidden, features = (torch.randn(300, 6, generator=generator) for _ in range(2))
    pieces = lens.Ridge(6)
    for i in range(0, 300, 70):
        pieces.add(hidden[i : i + 70], features[i : i + 70])
    got = pieces.solve().double()
    x = torch.cat([hidden, torch.ones(300, 1)], 1).double()
    penalty = (x**2).sum(0) * lens.PENALTY + 1e-9
    penalty[-1] = 0
    residual = x.T @ (x @ got.T - features.double()) + penalty[:, None] * got.T  # the normal equations
    assert residual.abs().max() < 1e-4
    again = lens.Ridge(6)
    for i in range(0, 300, 70):
        again.add(hidden[i : i + 70], features[i : i + 70])
    assert torch.equal(pieces.solve(), again.solve())
    with pytest.raises(ValueError, match="no training text"):
        lens.Ridge(6).solve()


def test_lens_files(target, tmp_path):
    matrix = torch.randn(32, 33)
    path = tmp_path / "lens.safetensors"
    save_file(lens.packed(matrix, 1), path, {"kind": "lens"})
    expected = root_logits(lens.Lens(target.model, 1, matrix), target, [1, 2, 3])
    assert torch.equal(root_logits(drafters.make(f"lens:{path}", target), target, [1, 2, 3]), expected)
    save_file(lens.packed(torch.zeros(32, 32), 1), path, {"kind": "lens"})
    with pytest.raises(ValueError, match=r"tensor lens has shape \(32, 32\), expected \(32, 33\)"):
        lens.load(path, target)
    save_file({"lens": matrix, "layers": torch.tensor([1, 1])}, path, {"kind": "lens"})
    with pytest.raises(ValueError, match=r"tensor layers has shape \(2,\), expected \(\)"):
        lens.load(path, target)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="no lens or layers drafter"):
        lens.load(path, target)
    with pytest.raises(FileNotFoundError):
        lens.load(tmp_path / "absent", target)
