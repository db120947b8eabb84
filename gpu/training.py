"""Training drafters on a corpus of the target's features: EAGLE heads and copies of the first layers.

Deterministic given seed, corpus and number of steps: batches come from a generator seeded by (seed, step), the
learning rate is a function of the step, and a checkpoint holds parameters, optimiser state and the step. So a run that
was killed ends where it would have ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gpu import losses
from gpu.drafters.eagle import EagleHead
from gpu.models import LoadedModel
from gpu.training_data import Corpus, hash_seed
from mdsd_theory.files import written_whole

RARE = 2048  # sampled rows of the head that stand for all tokens the corpus never has


@dataclass(frozen=True)
class Plan:
    """How to train. `loss` is "cross-entropy" or "acceptance" (for n drafts, after half the steps with the former)."""

    seed: int = 0
    loss: str = "cross-entropy"
    n: int = 1
    texts: int = 12
    depth: int = 1
    peak: float = 1e-3
    warmup: int = 20


class EagleStudent(nn.Module):
    """An EagleHead unrolled on training texts the way a draft tree runs it."""

    def __init__(self, head: EagleHead, embedding: nn.Module) -> None:
        super().__init__()
        self.head = head
        self.embed: Callable[[Tensor], Tensor] = lambda tokens: embedding(tokens).detach()

    def forward(self, tokens: Tensor, features: Tensor, depth: int) -> list[Tensor]:
        """Predicted features (B, T, d) at every token when 1, 2, ... depth features before it are the head's own.

        tokens (B, T), features (B, T, d). At depth 1 token i reads the feature of i - 1. At depth k it reads what depth
        k - 1 predicted for i - 1, sees the keys that depth k - 1 made at i - 1, depth k - 2 at i - 2 ..., and those of
        depth 1 further back: exactly the cache of a drafter k - 1 levels below its root.
        """
        batch, length = tokens.shape
        embeddings = self.embed(tokens).to(features.dtype)
        at = torch.arange(length, device=tokens.device)
        positions = at.expand(batch, length)
        back = at[:, None] - at  # how far key j lies before query i
        allowed = (back >= 0) & (
            (at > 0) | (back == 0)
        )  # column 0 has no feature before it and is seen by itself alone
        predicted, keys, values, outputs = features, [], [], []
        for level in range(depth):
            shifted = torch.nn.functional.pad(predicted[:, :-1], (0, 0, 1, 0))
            u, q, k, v = self.head.read(embeddings, shifted, positions)
            keys.append(k)
            values.append(v)
            # keys of level `made` stand at distance level - made exactly; those of level 0 at level or more
            seen = torch.cat(
                [allowed & (back >= level if made == 0 else back == level - made) for made in range(level + 1)], dim=1
            )
            seen[:, :length] |= ~seen.any(-1, keepdim=True) & (back == 0)  # the first tokens, not learned at this depth
            predicted = self.head.attend(u, q, torch.cat(keys, 1), torch.cat(values, 1), seen[None])
            outputs.append(predicted)
        return outputs


class LayersStudent(nn.Module):
    """The target's first layers with a final norm, copied or the target's own, on the target's embedding."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, features: Tensor, depth: int) -> list[Tensor]:
        base = self.model.base_model
        embedded = self.model.get_input_embeddings()(tokens).detach().to(next(base.layers.parameters()).dtype)
        return [base(inputs_embeds=embedded, use_cache=False).last_hidden_state]


class Trainer:
    """One student on one corpus; `steps` in all."""

    def __init__(self, student: nn.Module, target: LoadedModel, corpus: Corpus, steps: int, plan: Plan) -> None:
        self.student, self.plan, self.steps, self.step = student, plan, steps, 0
        self.texts = corpus.split()
        self.dtype = fast_dtype(target.model.device)
        self.weight = target.model.get_output_embeddings().weight.detach().to(self.dtype)
        self.means = losses.expected_embedding(corpus.features.to(self.weight), self.weight).split(
            corpus.lengths.tolist()
        )
        occurring = torch.zeros(len(self.weight), dtype=torch.bool)
        occurring[corpus.tokens] = True
        self.frequent, self.rare = occurring.nonzero()[:, 0], (~occurring).nonzero()[:, 0]
        trained = [p for p in student.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim == 2]
        rest = [p for p in trained if p.ndim != 2]
        self.optimisers = [
            torch.optim.Muon(matrices, lr=plan.peak, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            *([torch.optim.AdamW(rest, lr=plan.peak, weight_decay=0.0)] if rest else []),
        ]

    def advance(self) -> float:
        """One step; returns the loss at depth 1."""
        plan = self.plan
        generator = torch.Generator().manual_seed(hash_seed(plan.seed, 1, self.step))
        chosen = torch.randperm(len(self.texts), generator=generator)[: plan.texts].tolist()
        tokens, features, means, learn = self._batch(chosen)
        depth = plan.depth if self.step > 0.6 * self.steps else 1  # first what the head does from true features
        self._choose_rows(generator)
        with torch.autocast(tokens.device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs = self.student(tokens, features.float(), depth)
        total, first = 0.0, None
        for level, g in enumerate(outputs):
            here = learn.clone()
            here[:, : level + 1] = False
            loss = self._loss(g[here], features[here], means[here])
            first = loss.item() if first is None else first
            total = total + loss * 0.8**level
        total.backward()
        rate = plan.peak * min(1.0, (self.step + 1) / plan.warmup, 1.02 - self.step / self.steps)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], 1.0)
            optimiser.step()
            optimiser.zero_grad()
        self.step += 1
        return first

    def _loss(self, g: Tensor, features: Tensor, means: Tensor) -> Tensor:
        if self.plan.loss == "acceptance" and self.step > self.steps // 2:
            return 4 * losses.rejection(g.float(), features, self.rows[0], self.plan.n, self.rows[1])
        return losses.cross_entropy(g.float(), means, *self.rows)

    def _choose_rows(self, generator: torch.Generator) -> None:
        """The head's rows this step sums over: every token the corpus has, and a sample that stands for the others."""
        chosen = self.rare[torch.randperm(len(self.rare), generator=generator)[:RARE]]
        weights = torch.zeros(len(self.frequent) + len(chosen))
        weights[len(self.frequent) :] = math.log(len(self.rare) / max(1, len(chosen))) if len(chosen) else 0.0
        rows = torch.cat([self.frequent, chosen]).to(self.weight.device)
        self.rows = (self.weight[rows], weights.to(self.weight.device))

    def _batch(self, chosen: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Padded tokens (B, T), features and means (B, T, d), and which positions to learn (B, T)."""
        device = self.weight.device
        pad = nn.utils.rnn.pad_sequence
        parts = [self.texts[i] for i in chosen]
        tokens = pad([t for t, _, _ in parts], batch_first=True).to(device)
        features = pad([f for _, f, _ in parts], batch_first=True).to(device)
        means = pad([self.means[i] for i in chosen], batch_first=True)
        at = torch.arange(tokens.shape[1])
        learn = torch.stack([(at >= max(start, 1)) & (at < len(t)) for t, _, start in parts])
        return tokens, features, means, learn.to(device)

    def save(self, path: Path) -> None:
        state = {
            "step": self.step,
            "steps": self.steps,
            "student": self.student.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }
        with written_whole(path) as temporary:
            torch.save(state, temporary)

    def resume(self, path: Path) -> None:
        """Raises ValueError for a checkpoint of another student."""
        try:
            state = torch.load(path, weights_only=True)
            self.student.load_state_dict(state["student"])
            for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
                optimiser.load_state_dict(saved)
            self.step, self.steps = state["step"], state["steps"]
        except Exception as error:  # damage shows as any of several, as in `eagle.read_tensors`
            raise ValueError(
                f"{path} is no checkpoint of this training run: {' '.join(str(error).split())[:200]}"
            ) from error


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where matrix units make it several times faster (CUDA, AMX), else float32."""
    if device.type == "cuda" or (device.type == "cpu" and torch.cpu.get_capabilities().get("amx_bf16")):
        return torch.bfloat16
    return torch.float32


def start_from_ridge(head: EagleHead, embedding: Tensor, corpus: Corpus, penalty: float = 1e-3) -> None:
    """Set the head to the best linear map: fc by ridge regression of f_i on [embedding(x_i); f_{i-1}], the attention's
    and the MLP's output projections to zero."""
    d = head.config.hidden_size
    gram = torch.zeros(2 * d, 2 * d, dtype=torch.float64)
    cross = torch.zeros(2 * d, d, dtype=torch.float64)
    for tokens, features, start in corpus.split():
        first = max(start, 1)
        x = torch.cat([embedding[tokens[first:]].float(), features[first - 1 : -1].float()], dim=1).double()
        gram += x.T @ x
        cross += x.T @ features[first:].double()
    gram.diagonal().mul_(1 + penalty)
    with torch.no_grad():
        head.fc.weight.copy_(torch.linalg.solve(gram, cross).T)
        if head.fc.bias is not None:
            head.fc.bias.zero_()
        head.layers[0].self_attn.o_proj.weight.zero_()
        head.layers[0].mlp.down_proj.weight.zero_()


def judge(student: nn.Module, target: LoadedModel, held: Corpus, n: int, depth: int, stride: int = 1) -> list[tuple]:
    """Per depth: (alpha, alpha*_n), each (texts,): means over every stride-th learned position of a text."""
    weight = target.model.get_output_embeddings().weight.detach().float()
    found: list[list[tuple[float, float]]] = []
    with torch.no_grad():
        for tokens, features, start in held.split():
            outputs = student(tokens[None].to(weight.device), features[None].to(weight), depth)
            row = []
            for level, g in enumerate(outputs):
                at = slice(max(start, level + 1), None, stride)
                rates = losses.acceptance(g[0, at].float(), features[at].to(weight), weight, n)
                row.append((rates.alpha.mean().item(), rates.alpha_star.mean().item()))
            found.append(row)
    return [tuple(torch.tensor([[row[level][k] for row in found] for k in (0, 1)])) for level in range(len(found[0]))]
