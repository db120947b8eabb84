"""The decoding loop: draft a tree, one target pass over it, verify, commit.

Shapes: B texts in the batch, N slots in the tree, S <= N of them alive somewhere, V tokens in the vocabulary, D the
tree's depth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from gpu import attention, texts
from gpu.attention import Reader
from gpu.distributions import Sampling, categorical
from gpu.drafters.base import UNEXPANDED, Drafter, Session
from gpu.drafting import Drafted, Layout, ShorterVocabulary, first_occurrence, grow, padded
from gpu.method import Method
from gpu.models import LoadedModel
from gpu.prompts import Question, Unanswered, chat_tokens, without_room
from gpu.records import Record
from gpu.samplers import Sampler
from gpu.texts import Text
from gpu.trees import Tree
from gpu.verification import Law


class Walk(NamedTuple):
    """Verification of B trees: per depth 0 .. D one verified node, of which a row's first `emitted` count."""

    nodes: Tensor  # int64 (B, D + 1): slot verified
    tokens: Tensor  # int64 (B, D + 1): token emitted there
    ranks: Tensor  # int64 (B, D + 1): child rank accepted, -1 for none
    probability: Tensor  # (B, D + 1): mass of the verifier's law on the drafts
    drafts: Tensor  # int64 (B, D + 1): number of drafts
    emitted: Tensor  # int64 (B,)
    broken: Tensor  # bool (2,): NaN met in the target's probabilities, in the drafter's

    def of(self, row: int) -> tuple[list[int], Iterator[tuple[int, int, float]]]:
        """A row's tokens, and (drafts, rank, probability) of each; the walk must be on the host."""
        columns = (part[row].tolist() for part in (self.drafts, self.ranks, self.probability))
        return self.tokens[row, : self.emitted[row]].tolist(), zip(*columns, strict=True)


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
    stop: str | Sequence[str] = (),
    eos: Sequence[int] | None = None,
    generator: torch.Generator | int = 0,
    pad_vocab: bool = False,
    **sampling: float | None,
) -> Record:
    """Decode one prompt; the text is distributed exactly as the target's own.

    target     from `gpu.models.load_target`.
    drafter    anything in `gpu.drafters`; None with tree="plain".
    prompt     text, or token ids.
    stop       strings (or one) that end the text; neither they nor anything after them is in its `text`.
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
    stop: str | Sequence[str] = (),
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
    stop: str | Sequence[str] = (),
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
    longest = longest_text(target, drafter)
    generators = range(len(prompts)) if generators is None else generators
    live = texts.begin(target, prompts, max_tokens, longest, generators)
    eos, stop = texts.eos_tokens(target) if eos is None else list(eos), texts.stop_strings(stop)
    eos_ids = torch.tensor(eos, dtype=torch.int64, device=device)
    law, layout = method.law(), Layout(method.tree, device)
    records, clock = [text.record for text in live], Clock(device)

    with clock("prefill"):
        reader, session, needs_hidden = _prefill(target, drafter, live)
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
            kept = [
                texts.take_up(target, text, *walk.of(row), drafted.passes, eos, stop) for row, text in enumerate(live)
            ]
            going = [row for row, text in enumerate(live) if text.record.finish == "unfinished"]
            if going:
                commit(reader, session, drafted, slots, output.hidden, walk, kept, going)
        clock.share([text.record for text in live])
        if observe is not None:
            observe(Step([text.record for text in live], kept, walk, drafted, logits, slots))
        live = [live[row] for row in going]
        yield records


def longest_text(target: LoadedModel, drafter: Drafter | None) -> int | None:
    """Most tokens, prompt and answer, that both models can read; None without limit."""
    limits = attention.max_length(target.model), drafter and drafter.max_length
    return min((limit for limit in limits if limit is not None), default=None)


class FirstTurns(NamedTuple):
    """What can be asked of a list of questions, and what cannot."""

    questions: list[Question]  # those whose first turn leaves room for an answer
    prompts: list[list[int]]  # theirs
    unanswered: list[Unanswered]  # the others


def first_turns(
    target: LoadedModel, drafter: Drafter | None, questions: Sequence[Question], raw: bool = False
) -> FirstTurns:
    """The prompts of the questions' first turns; raw reads them without the chat template.

    Raises ValueError when there is no question, or none leaves room for an answer.
    """
    longest = longest_text(target, drafter)
    found = FirstTurns([], [], [])
    for question in questions:
        text = question.turns[0]
        prompt = texts.tokenize(target, text) if raw else chat_tokens(target, [text])
        if full := without_room(question, 0, prompt, longest):
            found.unanswered.append(full)
        else:
            found.questions.append(question)
            found.prompts.append(prompt)
    if not found.prompts:
        raise ValueError("no question leaves room for an answer" + "".join(f"; {u}" for u in found.unanswered[:1]))
    return found


def read_tree(reader: Reader, drafted: Drafted, hidden: bool = False) -> tuple[list[int], attention.Output]:
    """One target pass over all nodes: the slots read, and the output at them (B, S, ...)."""
    layout = drafted.layout
    numbers = [slot for slot, somewhere in enumerate(drafted.alive.any(0).tolist()) if somewhere]
    slots = layout.index(numbers)
    readable = drafted.alive[:, slots] & (drafted.tokens[:, slots] < reader.vocab_size)
    tokens = drafted.tokens[:, slots].where(readable, 0)  # a draft outside the vocabulary is never accepted
    depths = layout.depths[slots].expand(tokens.shape)
    visible = layout.ancestors[slots][:, slots].expand(len(tokens), -1, -1)
    return numbers, reader.read(tokens, depths, visible, hidden=hidden)


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
    column[layout.index(slots)] = torch.arange(len(slots), device=device)
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
        going = going & (rank >= 0) & (token[:, None] != eos).all(1)
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


def _prefill(target: LoadedModel, drafter: Drafter | None, live: list[Text]) -> tuple[Reader, Session | None, bool]:
    """Both models read the prompts but for their last tokens, the first roots."""
    prompts = [text.tokens[:-1] for text in live]
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


def _uniforms(live: list[Text], layout: Layout) -> Tensor:
    """float64 (B, N + 2 (D + 1)): a step's randomness, each row from its own text's generator, whatever its company."""
    size = layout.tree.size + 2 * (layout.tree.depth + 1)
    return torch.stack([torch.rand(size, generator=text.generator, dtype=torch.float64) for text in live])


def _refuse_nan(walk: Walk) -> None:
    for broken, whose in zip(walk.broken.tolist(), ("target", "drafter"), strict=True):
        if broken:
            raise ValueError(f"the {whose}'s logits are NaN, or infinite, or all -inf, at a node that was verified")
