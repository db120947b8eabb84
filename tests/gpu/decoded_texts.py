"""Whether decoded texts follow the target's law: every short text enumerated, against many that were decoded."""

import itertools
import json

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from gpu import verification
from gpu.decoding import decode_batch
from gpu.method import Method
from gpu.samplers import SAMPLERS, Sampler
from mdsd_theory import verifiers

P_VALUE = 1e-9  # false alarm rate of each test: all of them together stay far below 1e-6
VOCABULARY, LENGTH, TEXTS = 8, 3, 4000
PROMPT = [1, 5, 2]

UNEVEN = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
TREES = {"chain": "chain:3", "kary": "kary:2x3", "uneven": "uneven.json"}


def target_law(target, sampling):
    """Probability of every text of LENGTH tokens, (V ** LENGTH,), by plain forwards."""
    texts = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))
    inputs = torch.cat([torch.tensor(PROMPT).expand(len(texts), -1), texts], dim=1)
    with torch.no_grad():
        p = sampling(target.model(input_ids=inputs).logits[:, len(PROMPT) - 1 : -1].double())
    return p.gather(2, texts[..., None]).squeeze(-1).prod(1).numpy()


def p_value(target, drafter, method, texts=TEXTS):
    records = decode_batch(
        target, drafter, [PROMPT] * texts, method, max_tokens=LENGTH + 1, eos=[], generators=range(texts)
    )
    powers = VOCABULARY ** np.arange(LENGTH)[::-1]
    seen = np.bincount([np.dot(record.tokens[:LENGTH], powers) for record in records], minlength=VOCABULARY**LENGTH)
    expected = texts * target_law(target, method.sampling)
    assert not seen[expected == 0].any()
    rare = expected < 5  # one cell for all of them, or none where they are impossible
    seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (seen, expected))
    return chisquare(seen[expected > 0], expected[expected > 0] * texts / expected.sum()).pvalue


def every_pair():
    """All samplers with all verifiers that may serve them, on every tree that both allow."""
    samplers = [Sampler(name, top) for name in SAMPLERS for top in ((1, 2) if name == "top-then-sample" else (1,))]
    for sampler, verifier, tree in itertools.product(samplers, verification.VERIFIERS, TREES):
        if sampler.name == "spechub" and tree != "kary":
            continue
        try:
            n = {"chain": [1], "kary": [2], "uneven": [3, 2, 1]}[tree]
            for drafts in n:
                verifiers.make(verifier).check(np.full(8, 1 / 8), sampler.theory(np.full(8, 1 / 8), drafts))
        except ValueError:
            continue
        marks = () if tree == "kary" else pytest.mark.slow  # together they take minutes
        yield pytest.param(sampler, verifier, tree, id=f"{sampler.name}:{sampler.top}-{verifier}-{tree}", marks=marks)


def make_method(tmp_path, sampler, verifier, tree, **sampling):
    (tmp_path / "uneven.json").write_text(json.dumps(UNEVEN))
    spec = str(tmp_path / "uneven.json") if tree == "uneven" else TREES[tree]
    return Method.make(spec, sampler, verifier, **sampling)
