"""What a drafter is worth on a given text: its exact acceptance at every position, and what a draft token costs."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from gpu import losses
from gpu.drafters.base import ROOT_PARENT, Drafter
from gpu.models import LoadedModel, pad_logits
from gpu.training_data import Corpus


class Replay(NamedTuple):
    """alpha of one draft and alpha* of n i.i.d. drafts at T = 1, means by text (S,); seconds for one draft token (CPU
    time on a CPU, so that other work on the machine does not count)."""

    alpha: torch.Tensor
    alpha_star: torch.Tensor
    seconds: float


def replay(drafter: Drafter, target: LoadedModel, corpus: Corpus, n: int, stride: int = 1) -> Replay:
    """Walk every text of the corpus token by token, as if the target had rejected all drafts, and compare the drafter's
    law with the target's after each learned token (after every stride-th)."""
    head = target.model.get_output_embeddings().weight
    clock = time.process_time if head.device.type == "cpu" else time.perf_counter
    alphas, stars, spent, count = [], [], 0.0, 0
    for tokens, features, start in corpus.split():
        features = features.to(head)
        session = drafter.begin([tokens[:start].tolist()], [features[:start]])
        pairs = []
        for i in range(start, len(tokens)):
            began = clock()
            logits = session.expand(tokens[None, i : i + 1].to(head.device), torch.tensor([[ROOT_PARENT]]))[0]
            if i > start:  # the first call reads the prompt as well
                spent, count = spent + clock() - began, count + 1
            if (i - start) % stride == 0:
                pairs.append((pad_logits(features[i : i + 1] @ head.T, drafter.vocab_size), logits))
            if i + 1 < len(tokens):
                session.commit([[0]], [[int(tokens[i + 1])]], [features[i : i + 1]])
        rates = losses.acceptance_of(pairs, n)
        alphas.append(rates.alpha.mean())
        stars.append(rates.alpha_star.mean())
    return Replay(torch.stack(alphas), torch.stack(stars), spent / max(1, count))
