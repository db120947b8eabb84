"""The decoding loop: draft a tree, one target pass over it, verify, commit.

Shapes: B texts in the batch, N slots in the tree, S <= N of them alive somewhere, V tokens in the vocabulary, D the
tree's depth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from gpu import attention, trees, verification
from gpu.attention import Reader
from gpu.distributions import Sampling, categorical
from gpu.drafters.base import UNEXPANDED, Drafter, Session
from gpu.drafting import Drafted, Layout, ShorterVocabulary, first_occurrence, grow, padded
from gpu.models import LoadedModel
from gpu.records import Record, Visit
from gpu.samplers import Sampler
from gpu.trees import Tree
from gpu.verification import Law


@dataclass(frozen=True)
class Method:
    """How texts are decoded: the tree, who draws its drafts, who verifies them, and both models' sampling."""

    tree: Tree
    sampler: Sampler
    verifier: str
    sampling: Sampling = field(default_factory=Sampling)
    draft_sampling: Sampling = field(default_factory=Sampling)

    @classmethod
    def make(
        cls,
        tree: str | Tree = "eagle-sparse",
        sampler: str | Sampler = "without-replacement",
        verifier: str = "rrs",
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        draft_temperature: float | None = None,
        draft_top_k: int | None = None,
        draft_top_p: float | None = None,
    ) -> Method:
        """From names. The drafter samples like the target unless told otherwise.

        Raises ValueError for unknown names, values out of range, or a verifier that cannot serve the sampler.
        """
        target = Sampling(temperature, top_k, top_p)
        draft = Sampling(
            temperature if draft_temperature is None else draft_temperature,
            top_k if draft_top_k is None else draft_top_k,
            top_p if draft_top_p is None else draft_top_p,
        )
        sampler = sampler if isinstance(sampler, Sampler) else Sampler.parse(sampler)
        method = cls(trees.parse(tree), sampler, verifier, target, draft)
        method.law()
        return method

    def law(self) -> Law:
        """The verifier in torch."""
        return verification.make(self.verifier, self.sampler, self.tree)

    @classmethod
    def parse(cls, spec: str, **sampling: float | None) -> Method:
        """From "TREE SAMPLER VERIFIER", such as "kary:2x4 top-then-sample:2 convex-minorant"."""
        parts = spec.split()
        if len(parts) != 3:
            raise ValueError(f"method {spec!r}: give a tree, a sampler and a verifier, separated by spaces")
        return cls.make(parts[0], Sampler.parse(parts[1]), parts[2], **sampling)

    @property
    def name(self) -> str:
        if self.tree.depth == 0:
            return "plain"
        return f"{self.sampler} + {self.verifier} on {self.tree.name}"


class Walk(NamedTuple):
    """Verification of B trees: per depth 0 .. D one verified node, of which a row's first `emitted` count."""

    nodes: Tensor  # int64 (B, D + 1): slot verified
    tokens: Tensor  # int64 (B, D + 1): token emitted there
    ranks: Tensor  # int64 (B, D + 1): child rank accepted, -1 for none
    probability: Tensor  # (B, D + 1): mass of the verifier's law on the drafts
    drafts: Tensor  # int64 (B, D + 1): number of drafts
    emitted: Tensor  # int64 (B,)
    broken: Tensor  # bool (2,): NaN met in the target's probabilities, in the drafter's


class Step(NamedTuple):
    """What one step did to B texts, for observers."""

    records: list[Record]  # this step's visits included
    kept: list[int]  # tokens emitted per text: as in `walk`, or fewer where a stop string cut them
    walk: Walk  # on the host
    drafted: Drafted
    logits: Tensor  # (B, S, V): the target's
    slots: list[int]  # the S slots


def decode(
    target: LoadedModel,
    drafter: Drafter | None,
    prompt: str | list[int],
    *,
    tree: str | Tree = "eagle-sparse",
    sampler: str | Sampler = "without-replacement",
    verifier: str = "rrs",
    max_tokens: int = 128,
    stop: Sequence[str] = (),
    eos: Sequence[int] | None = None,
    generator: torch.Generator | int = 0,
    pad_vocab: bool = False,
    **sampling: float | None,
) -> Record:
    """Decode one prompt; the text is distributed exactly as the target's own.

    target     from `gpu.models.load_target`.
    drafter    anything in `gpu.drafters`; None with tree="plain".
    prompt     text, or token ids.
    stop       strings that end the text; neither they nor anything after them is in its `text`.
    eos        tokens that end the text; None takes the model's own.
    generator  source of all randomness, or a seed for one.
    pad_vocab  let vocabularies differ in length: the tokens that one model lacks have probability 0 in it.
    sampling   temperature, top_k, top_p, draft_temperature, draft_top_k, draft_top_p: see `Method.make`.

    Raises ValueError for unknown names, values out of range, a verifier that cannot serve the sampler, models with
    different vocabularies, an empty prompt or one longer than the models can read.
    """
    method = Method.make(tree, sampler, verifier, **sampling)
    return decode_batch(
        target, drafter, [prompt], method, max_tokens=max_tokens, stop=stop, eos=eos, generators=[generator],
        pad_vocab=pad_vocab,
    )[0]  # fmt: skip


def decode_batch(
    target: LoadedModel,
    drafter: Drafter | None,
    prompts: Sequence[str | list[int]],
    method: Method,
    *,
    max_tokens: int = 128,
    stop: Sequence[str] = (),
    eos: Sequence[int] | None = None,
    generators: Sequence[torch.Generator | int] | None = None,
    pad_vocab: bool = False,
    observe: Callable[[Step], None] | None = None,
    expand_leaves: bool = False,
) -> list[Record]:
    """Decode prompts together. Row i gives the tokens that it gives alone with the same generator.

    eos         tokens that end a text; None takes the model's own.
    generators  one per prompt, or seeds; seeds 0, 1, 2, ... by default.
    observe     called after every step; its time is not counted.
    expand_leaves  run the drafter on childless nodes too, for an observer that wants its logits there.
    """
    records: list[Record] = []
    for records in stream(  # noqa: B007
        target, drafter, prompts, method, max_tokens=max_tokens, stop=stop, eos=eos, generators=generators,
        pad_vocab=pad_vocab, observe=observe, expand_leaves=expand_leaves,
    ):  # fmt: skip
        pass
    return records


def stream(
    target: LoadedModel,
    drafter: Drafter | None,
    prompts: Sequence[str | list[int]],
    method: Method,
    *,
    max_tokens: int = 128,
    stop: Sequence[str] = (),
    eos: Sequence[int] | None = None,
    generators: Sequence[torch.Generator | int] | None = None,
    pad_vocab: bool = False,
    observe: Callable[[Step], None] | None = None,
    expand_leaves: bool = False,
) -> Iterator[list[Record]]:
    """`decode_batch` step by step: yields the growing records after the prompts are read and after every step."""
    device = target.model.device
    drafter = drafter if method.tree.depth else None
    if drafter is None and method.tree.depth:
        raise ValueError(f"tree {method.tree.name} needs a drafter; only tree 'plain' goes without")
    vocab_size = _vocab_size(target, drafter, pad_vocab)
    texts = _texts(target, drafter, prompts, max_tokens, range(len(prompts)) if generators is None else generators)
    eos = eos_tokens(target) if eos is None else list(eos)
    eos_ids = torch.tensor(eos, dtype=torch.int64, device=device)
    law, layout = method.law(), Layout(method.tree, device)
    records, live, clock = [text.record for text in texts], texts, Clock(device)

    with clock("prefill"):
        reader, session, needs_hidden = _prefill(target, drafter, texts)
    clock.share(records)
    yield records
    while live:
        with clock("draft"):
            uniforms = _uniforms(live, layout).to(device)
            roots = torch.tensor([text.tokens[-1] for text in live], device=device)
            limits = [text.room - 1 for text in live]
            drafted = grow(
                layout, session, method.sampler, method.draft_sampling, roots, uniforms, limits, vocab_size,
                expand_leaves,
            )  # fmt: skip
        with clock("target"):
            slots, output = read_tree(reader, drafted, needs_hidden)
        with clock("verify"):
            logits = padded(output.logits, vocab_size)
            walk = verify(law, drafted, slots, logits, method.sampling, uniforms, eos_ids)
            walk = Walk(*(part.cpu() for part in walk))
        with clock("bookkeeping"):
            _refuse_nan(walk)
            kept = [_emit(target, text, walk, row, drafted.passes, eos, stop) for row, text in enumerate(live)]
            going = [row for row, text in enumerate(live) if text.record.finish == "unfinished"]
            if going:
                commit(reader, session, drafted, slots, output.hidden, walk, kept, going)
        clock.share([text.record for text in live])
        if observe is not None:
            observe(Step([text.record for text in live], kept, walk, drafted, logits, slots))
        live = [live[row] for row in going]
        yield records


def read_tree(reader: Reader, drafted: Drafted, hidden: bool = False) -> tuple[list[int], attention.Output]:
    """One target pass over all nodes: the slots read, and the output at them (B, S, ...)."""
    layout = drafted.layout
    slots = drafted.alive.any(0).nonzero().flatten()
    readable = drafted.alive[:, slots] & (drafted.tokens[:, slots] < reader.vocab_size)
    tokens = drafted.tokens[:, slots].where(readable, 0)  # a draft outside the vocabulary is never accepted
    depths = layout.depths[slots].expand(tokens.shape)
    visible = layout.ancestors[slots][:, slots].expand(len(tokens), -1, -1)
    return slots.tolist(), reader.read(tokens, depths, visible, hidden=hidden)


def verify(
    law: Law, drafted: Drafted, slots: list[int], logits: Tensor, sampling: Sampling, uniforms: Tensor, eos: Tensor
) -> Walk:
    """Walk down every tree at once: one verified node per depth, on to the accepted child, stop at the first token that
    is no draft (or is EOS). Every text's node of one depth goes through the verifier together.

    logits (B, S, V) of the target at `slots`; uniforms (B, N + 2 (D + 1)).
    """
    layout, batch, device = drafted.layout, len(logits), logits.device
    rows = torch.arange(batch, device=device)
    column = torch.zeros(layout.tree.size, dtype=torch.int64, device=device)
    column[slots] = torch.arange(len(slots), device=device)
    node = torch.zeros(batch, dtype=torch.int64, device=device)
    going = torch.ones(batch, dtype=torch.bool, device=device)
    emitted = torch.zeros_like(node)
    broken = torch.zeros((2, batch), dtype=torch.bool, device=device)
    steps = []
    for depth in range(layout.tree.depth + 1):
        # on the CPU looking costs nothing; elsewhere it would wait for the device
        if depth and device.type == "cpu" and not going.any():
            break
        u = uniforms[:, layout.tree.size + 2 * depth :]
        p = sampling(logits[rows, column[node]])
        broken[0] |= going & p.sum(-1).isnan()
        if depth == layout.tree.depth:
            token = categorical(p, u[:, 0])
            rank, drafts = torch.full_like(node, -1), torch.zeros_like(node)
            probability = torch.zeros_like(p[:, 0])
        else:
            at_node = drafted.at(node)
            broken[1] |= going & at_node.q.sum(-1).isnan()
            weights = law(p, at_node, u[:, 1])
            token = categorical(weights, u[:, 0])
            hit = (at_node.tokens == token[:, None]) & at_node.drawn
            ranks = torch.arange(hit.shape[1], device=device).where(hit, hit.shape[1]).amin(1)
            rank, drafts = ranks.where(hit.any(1), -1), at_node.count
            counted = at_node.drawn & first_occurrence(at_node.tokens)
            probability = (weights.gather(1, at_node.tokens) * counted).sum(1)
        steps.append((node, token, rank, probability, drafts))
        emitted += going
        going = going & (rank >= 0) & ~torch.isin(token, eos)
        node = layout.children[node].gather(1, rank.clamp(min=0)[:, None]).squeeze(1).where(going, node)
    return Walk(*(torch.stack(part, dim=1) for part in zip(*steps, strict=True)), emitted, broken.any(1))


def commit(
    reader: Reader,
    session: Session | None,
    drafted: Drafted,
    slots: list[int],
    hidden: Tensor | None,
    walk: Walk,
    kept: list[int],
    going: list[int],
) -> None:
    """Both caches keep the accepted path; rows that are not going on are dropped."""
    column = {slot: index for index, slot in enumerate(slots)}
    paths = [nodes[:k] for nodes, k in zip(walk.nodes.tolist(), kept, strict=True)]
    columns = [[column[slot] for slot in path] for path in paths]
    reader.keep_columns(columns)
    if session is not None:
        features = None if hidden is None else [h[c] for h, c in zip(hidden, columns, strict=True)]
        emitted = [tokens[:k] for tokens, k in zip(walk.tokens.tolist(), kept, strict=True)]
        numbers = [[drafted.numbers.get(slot, UNEXPANDED) for slot in path] for path in paths]
        session.commit(numbers, emitted, features)
    if len(going) < len(paths):
        reader.keep_rows(going)
        if session is not None:
            session.keep(going)


class Clock:
    """Seconds per phase of the current step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.spent[phase] = self.spent.get(phase, 0.0) + time.perf_counter() - start

    def share(self, records: list[Record]) -> None:
        for record in records:
            for phase, seconds in self.spent.items():
                record.seconds[phase] += seconds / len(records)
        self.spent = {}


def tokenize(target: LoadedModel, prompt: str | list[int]) -> list[int]:
    """Token ids of a prompt; the beginning-of-text token alone when it is the empty string and there is such a token.

    Raises ValueError for a prompt without tokens or with ids outside the vocabulary.
    """
    if isinstance(prompt, str):
        if target.tokenizer is None:
            raise ValueError(f"model {target.name} came without a tokenizer: give token ids, not text")
        tokens = list(target.tokenizer(prompt)["input_ids"]) or [target.tokenizer.bos_token_id]
    else:
        tokens = [int(token) for token in prompt]
    if not tokens or tokens == [None]:
        raise ValueError("the prompt is empty")
    if outside := [token for token in tokens if not 0 <= token < target.vocab_size]:
        raise ValueError(f"prompt token {outside[0]} is outside the vocabulary of {target.vocab_size} tokens")
    return tokens


def eos_tokens(target: LoadedModel) -> list[int]:
    """The tokens that end a text, from the model's generation settings and the tokenizer."""
    eos = getattr(target.model.generation_config, "eos_token_id", None)
    tokens = {*eos} if isinstance(eos, (list, tuple)) else {eos}
    if target.tokenizer is not None:
        tokens.add(target.tokenizer.eos_token_id)
    return sorted(tokens - {None})


@dataclass
class _Text:
    """A text being decoded."""

    tokens: list[int]  # the prompt and what was emitted
    record: Record
    generator: torch.Generator
    room: int  # tokens that may still be emitted
    finish_when_full: str  # "length" or "context"


def _texts(
    target: LoadedModel,
    drafter: Drafter | None,
    prompts: Sequence[str | list[int]],
    max_tokens: int,
    generators: Sequence[torch.Generator | int],
) -> list[_Text]:
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    if len(generators) != len(prompts):
        raise ValueError(f"generators: got {len(generators)} for {len(prompts)} prompts")
    longest = min(
        (limit for limit in (attention.max_length(target.model), drafter and drafter.max_length) if limit is not None),
        default=None,
    )
    texts = []
    for prompt, generator in zip(prompts, generators, strict=True):
        tokens = tokenize(target, prompt)
        left = max_tokens if longest is None else longest - len(tokens)
        if left < 1:
            raise ValueError(f"the prompt has {len(tokens)} tokens; the models read at most {longest} in all")
        if not isinstance(generator, torch.Generator):
            generator = torch.Generator().manual_seed(generator)
        full = "length" if max_tokens <= left else "context"
        texts.append(_Text(tokens, Record(list(tokens)), generator, min(left, max_tokens), full))
    if not texts:
        raise ValueError("prompts is empty: there is nothing to decode")
    return texts


def _vocab_size(target: LoadedModel, drafter: Drafter | None, pad_vocab: bool) -> int:
    """Entries of p and q."""
    if drafter is None or drafter.vocab_size == target.vocab_size:
        return target.vocab_size
    if not pad_vocab:
        raise ValueError(
            f"target {target.name} and drafter {drafter.name} have vocabularies of {target.vocab_size} and "
            f"{drafter.vocab_size} tokens; pad_vocab gives the missing ones probability zero"
        )
    return max(target.vocab_size, drafter.vocab_size)


def _prefill(target: LoadedModel, drafter: Drafter | None, texts: list[_Text]) -> tuple[Reader, Session | None, bool]:
    """Both models read the prompts but for their last tokens, the first roots."""
    prompts = [text.tokens[:-1] for text in texts]
    reader = Reader(target.model, len(prompts))
    needs_hidden = drafter is not None and drafter.needs_features
    output = reader.read_texts(prompts, hidden=needs_hidden)
    if drafter is None:
        return reader, None, False
    features = None
    if needs_hidden:
        width = target.model.config.get_text_config(decoder=True).hidden_size
        hidden = output.hidden if output else torch.zeros((len(prompts), 0, width), device=target.model.device)
        features = [row[: len(prompt)] for row, prompt in zip(hidden, prompts, strict=True)]
    if drafter.vocab_size < target.vocab_size:
        return reader, ShorterVocabulary(drafter, prompts, features), needs_hidden
    return reader, drafter.begin(prompts, features), needs_hidden


def _uniforms(live: list[_Text], layout: Layout) -> Tensor:
    """float64 (B, N + 2 (D + 1)): a step's randomness, each row from its own text's generator, whatever its company."""
    size = layout.tree.size + 2 * (layout.tree.depth + 1)
    return torch.stack([torch.rand(size, generator=text.generator, dtype=torch.float64) for text in live])


def _refuse_nan(walk: Walk) -> None:
    for broken, whose in zip(walk.broken.tolist(), ("target", "drafter"), strict=True):
        if broken:
            raise ValueError(f"the {whose}'s logits are NaN, or infinite, or all -inf, at a node that was verified")


def _emit(
    target: LoadedModel, text: _Text, walk: Walk, row: int, passes: int, eos: Sequence[int], stop: Sequence[str]
) -> int:
    """Take up a step's tokens and say how many were kept; decide whether the text ends."""
    record = text.record
    new = walk.tokens[row, : walk.emitted[row]].tolist()
    if stop:
        new, record.text = _up_to_stop(target, record.tokens, new, stop)
    columns = (part[row].tolist() for part in (walk.drafts, walk.ranks, walk.probability))
    for depth, (_, drafts, rank, probability) in enumerate(zip(new, *columns, strict=False)):
        record.visits.append(Visit(record.target_passes, depth, drafts, rank, probability))
    record.tokens += new
    text.tokens += new
    text.room -= len(new)
    record.target_passes += 1
    record.draft_passes += passes
    if record.text is not None:
        record.finish = "stop"
    elif new[-1] in eos:
        record.finish = "eos"
    elif text.room == 0:
        record.finish = text.finish_when_full
    if record.finish not in ("unfinished", "stop") and target.tokenizer is not None:
        record.text = target.tokenizer.decode(record.tokens, skip_special_tokens=True)
    return len(new)


def _up_to_stop(
    target: LoadedModel, before: list[int], new: list[int], stop: Sequence[str]
) -> tuple[list[int], str | None]:
    """The new tokens up to the one that completes a stop string, and the text before that string; else all and None."""
    if target.tokenizer is None:
        raise ValueError(f"stop: model {target.name} came without a tokenizer, so text cannot be searched")
    for k in range(1, len(new) + 1):
        text = target.tokenizer.decode(before + new[:k], skip_special_tokens=True)
        if found := [place for place in (text.find(end) for end in stop) if place >= 0]:
            return new[:k], text[: min(found)]
    return new, None
