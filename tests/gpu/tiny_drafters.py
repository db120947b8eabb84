"""A tiny random drafter of each kind for a tiny target, and what they say after a text."""

import torch

from gpu.drafters import eagle, lens
from gpu.drafters.base import ROOT_PARENT
from gpu.drafters.callable import CallableDrafter
from gpu.drafters.causal_lm import CausalLM
from gpu.drafters.early_exit import EarlyExit, cut
from gpu.drafters.mixture import Mixture
from gpu.drafters.ngram import NGram
from gpu.training_data import last_hidden
from tests.gpu.tiny_models import tiny_model

CONFIG = eagle.EagleConfig(32, 40, 4, 2, 1e-6, 10000.0)

KINDS = (
    "lens", "layers", "early-exit", "causal-lm", "callable", "eagle", "ngram", "mixture", "confident-mixture",
)  # fmt: skip


def random_head(seed=0, biases=(), input_norm=False):
    torch.manual_seed(seed)
    head = eagle.EagleHead(CONFIG, biases, input_norm)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0, 0.2) if parameter.ndim == 2 else parameter.uniform_(0.5, 1.5)
    return head


def random_lens(target, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return lens.Lens(target.model, 1, torch.randn(32, 33, generator=generator) * 0.3)


def random_layers(target, seed=9):
    """A copy of the first layer with weights of its own."""
    torch.manual_seed(seed)
    model = lens.own_copy(cut(target.model, 1))
    with torch.no_grad():
        for parameter in model.base_model.layers.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.3)
    return model


def bigram(vocab_size):
    """Logits (V, V) after each last token."""
    return torch.randn(vocab_size, vocab_size, generator=torch.Generator().manual_seed(2)) * 2


def make_all(target):
    """One drafter of each kind of this folder."""
    v = target.vocab_size
    head = eagle.Eagle(random_head(), target)
    ngram = NGram(v, 3, [[1, 5, 2, 3, 1, 5, 2, 4]])
    return {
        "lens": random_lens(target),
        "layers": CausalLM(random_layers(target)),
        "early-exit": EarlyExit(target.model, 1),
        "causal-lm": CausalLM(tiny_model("qwen2", v, 5, scale=1.5)),
        "callable": CallableDrafter(lambda texts: bigram(v)[[text[-1] for text in texts]], v),
        "eagle": head,
        "ngram": ngram,
        "mixture": Mixture([head, ngram], [3, 1]),
        "confident-mixture": Mixture([random_lens(target), ngram, head], [1, 1, 2], confidence=2.0),
    }


def features_of(target, text):
    with torch.no_grad():
        return last_hidden(target.model, torch.tensor([text]))[0] if text else torch.zeros(0, 32)


def root_logits(drafter, target, text):
    """Logits after the text by a session that has never seen a tree."""
    session = drafter.begin([text[:-1]], [features_of(target, text[:-1])])
    return session.expand(torch.tensor([text[-1:]]), torch.tensor([[ROOT_PARENT]]))[0, 0]
