"""Lens, EAGLE head, n-grams and mixtures: sessions against plain recomputation, losslessness, checkpoints."""

import contextlib
import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import LlamaConfig, Qwen2Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

from gpu import drafters
from gpu.drafters import eagle, lens
from gpu.drafters.base import PADDED, ROOT_PARENT, UNEXPANDED
from gpu.drafters.callable import CallableDrafter
from gpu.drafters.causal_lm import CausalLM
from gpu.drafters.early_exit import EarlyExit, cut
from gpu.drafters.mixture import Mixture
from gpu.drafters.ngram import NGram
from gpu.samplers import Sampler
from gpu.training_data import last_hidden
from tests.gpu.decoded_texts import P_VALUE, VOCABULARY, make_method, p_value
from tests.gpu.tiny_models import loaded, tiny_model

CONFIG = eagle.EagleConfig(32, 40, 4, 2, 1e-6, 10000.0)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "rope_theta", "x"]), inner),
    max_leaves=4,
)


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


@pytest.fixture(scope="module")
def target():
    return loaded(tiny_model("llama", VOCABULARY, 0, scale=1.5))


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


KINDS = (
    "lens", "layers", "early-exit", "causal-lm", "callable", "eagle", "ngram", "mixture", "confident-mixture",
)  # fmt: skip


@pytest.fixture(scope="module")
def every(target):
    return make_all(target)


# Sessions


def features_of(target, text):
    with torch.no_grad():
        return last_hidden(target.model, torch.tensor([text]))[0] if text else torch.zeros(0, 32)


def root_logits(drafter, target, text):
    """Logits after the text by a session that has never seen a tree."""
    session = drafter.begin([text[:-1]], [features_of(target, text[:-1])])
    return session.expand(torch.tensor([text[-1:]]), torch.tensor([[ROOT_PARENT]]))[0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_cached_and_uncached_agree_after_rejections(target, every, kind):
    """Three texts of different lengths, trees with rejected branches, an accepted leaf, a row that is dropped."""
    drafter = every[kind]
    rng = np.random.default_rng(5)
    texts = [[3, 1, 4, 1, 5], [2, 7], [6]]
    session = drafter.begin([t[:-1] for t in texts], [features_of(target, t[:-1]) for t in texts])
    for step in range(6):
        batch = len(texts)
        roots = torch.tensor([[t[-1]] for t in texts])
        first = session.expand(roots, torch.full((batch, 1), ROOT_PARENT))
        for row, text in enumerate(texts):
            torch.testing.assert_close(first[row, 0], root_logits(drafter, target, text), atol=1e-4, rtol=1e-4)
        level = torch.from_numpy(rng.integers(0, VOCABULARY, (batch, 2)))
        parents = torch.zeros((batch, 2), dtype=torch.int64)
        parents[0, 1] = PADDED  # nodes 1 and 2; the first row has no node 2
        session.expand(level, parents)
        deeper = torch.from_numpy(rng.integers(0, VOCABULARY, (batch, 1)))
        session.expand(deeper, torch.ones((batch, 1), dtype=torch.int64))  # node 3 below node 1
        leaf, bonus = (int(x) for x in rng.integers(0, VOCABULARY, 2))
        outcomes = [
            ([0], [bonus]),
            ([0, 1], [int(level[0, 0]), bonus]),
            ([0, 1, 3], [int(level[0, 0]), int(deeper[0, 0]), bonus]),
            ([0, 1, 3, UNEXPANDED], [int(level[0, 0]), int(deeper[0, 0]), leaf, bonus]),
        ]
        paths, emitted = [], []
        for row in range(batch):
            path, tokens = outcomes[(step + row) % 4]
            own = [int(level[row, 0]), int(deeper[row, 0]), leaf][: len(path) - 1]
            paths.append(path)
            emitted.append([*own, tokens[-1]])
        grown = [text + new for text, new in zip(texts, emitted, strict=True)]
        features = [features_of(target, new[:-1])[len(text) - 1 :] for text, new in zip(texts, grown, strict=True)]
        session.commit(paths, emitted, features)
        texts = grown
        if step == 3:
            session.keep([2, 0])
            texts = [texts[2], texts[0]]


def test_eagle_tree_nodes_equal_a_chain_of_their_own(target):
    """Every node of a bushy tree gets the logits it gets when it is drafted alone, path by path."""
    drafter = eagle.Eagle(random_head(), target)
    text = [3, 1, 4, 1, 5]

    def chain(path):
        session = drafter.begin([text[:-1]], [features_of(target, text[:-1])])
        logits = session.expand(torch.tensor([[text[-1]]]), torch.tensor([[ROOT_PARENT]]))
        for node, token in enumerate(path):
            logits = session.expand(torch.tensor([[token]]), torch.tensor([[node]]))
        return logits[0, 0]

    session = drafter.begin([text[:-1]], [features_of(target, text[:-1])])
    session.expand(torch.tensor([[text[-1]]]), torch.tensor([[ROOT_PARENT]]))
    one = session.expand(torch.tensor([[2, 6, 7]]), torch.tensor([[0, 0, 0]]))[0]
    two = session.expand(torch.tensor([[1, 0, 3, 5]]), torch.tensor([[3, 1, 1, 2]]))[0]
    three = session.expand(torch.tensor([[4, 4]]), torch.tensor([[4, 6]]))[0]
    close = {"atol": 1e-4, "rtol": 1e-4}
    for node, path in enumerate(([2], [6], [7])):
        torch.testing.assert_close(one[node], chain(path), **close)
    for node, path in enumerate(([7, 1], [2, 0], [2, 3], [6, 5])):
        torch.testing.assert_close(two[node], chain(path), **close)
    for node, path in enumerate(([7, 1, 4], [2, 3, 4])):
        torch.testing.assert_close(three[node], chain(path), **close)


# The drafts come from the q that verifies them


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["with-replacement", "without-replacement"])
def test_each_kind_is_lossless(target, every, tmp_path, kind, sampler):
    assert p_value(target, every[kind], make_method(tmp_path, Sampler(sampler), "rrs", "kary"), 2000) > P_VALUE


def test_top_candidates_of_a_datastore_are_lossless(target, tmp_path):
    """As REST drafts: the two likeliest continuations in the datastore, always the same, in a tree of three levels."""
    method = make_method(tmp_path, Sampler("top-then-sample", 2), "greedy", "kary")
    assert p_value(target, NGram(VOCABULARY, 3, [[1, 5, 2, 3, 1, 5, 2, 4]]), method, 2000) > P_VALUE


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_drawn_from_the_stated_q(target, every, kind):
    """Chi-square of first draft tokens against the softmax of the drafter's logits; another law must be caught."""
    from scipy.stats import chisquare

    from gpu.distributions import Sampling, categorical

    text = [1, 5, 2]
    count = 4000
    session = every[kind].begin([text[:-1]] * count, [features_of(target, text[:-1])] * count)
    logits = session.expand(torch.full((count, 1), text[-1]), torch.full((count, 1), ROOT_PARENT))[:, 0]
    uniform = torch.rand(count, generator=torch.Generator().manual_seed(1))
    tokens = categorical(Sampling()(logits), uniform)
    seen = np.bincount(tokens.numpy(), minlength=VOCABULARY)
    q = torch.softmax(root_logits(every[kind], target, text).double(), -1).numpy()
    assert chisquare(seen, count * q / q.sum()).pvalue > P_VALUE
    wrong = np.roll(q, 1)
    assert chisquare(seen, count * wrong / wrong.sum()).pvalue < P_VALUE


# n-grams


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


def test_ngram_by_name(target, tmp_path):
    (tmp_path / "a.txt").write_text("x")
    named = SimpleNamespace(vocab_size=8, tokenizer=lambda text: SimpleNamespace(input_ids=[4, 5, 6, 4, 5]))
    assert drafters.make(f"ngram:3,{tmp_path / 'a.txt'}", named).store.after((4, 5)) == {6: 1}
    assert drafters.make("ngram", named).order == 4
    for spec in ("ngram:x", "ngram:0"):
        with pytest.raises(ValueError, match="order"):
            drafters.make(spec, named)
    with pytest.raises(OSError):
        drafters.make(f"ngram:3,{tmp_path / 'absent.txt'}", named)


# Mixtures


def test_mixture_weights_sum_to_one_and_make_q(target, every):
    logits = [torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(i)) * 4 for i in range(3)]
    q, weights = every["confident-mixture"].combine(logits)
    torch.testing.assert_close(weights.sum(0), torch.ones(2, 3))
    torch.testing.assert_close(q.exp().sum(-1), torch.ones(2, 3))
    laws = [torch.softmax(z, -1) for z in logits]
    raw = [w * law.max(-1).values ** 2 for w, law in zip((1, 1, 2), laws, strict=True)]
    expected = sum(r[..., None] * law for r, law in zip(raw, laws, strict=True)) / sum(raw)[..., None]
    torch.testing.assert_close(q.exp(), expected)
    fixed = Mixture(every["confident-mixture"].drafters, [1, 1, 2])
    torch.testing.assert_close(fixed.combine(logits)[0].exp(), (laws[0] + laws[1] + 2 * laws[2]) / 4)


def test_mixture_gives_tokens_a_shorter_vocabulary_lacks_probability_zero(target):
    short = CallableDrafter(lambda texts: torch.zeros(len(texts), 4), 4)
    q = torch.softmax(root_logits(Mixture([short, NGram(8, 2)], [1, 1]), target, [1, 2]), -1)
    ngram = torch.softmax(root_logits(NGram(8, 2), target, [1, 2]), -1)
    torch.testing.assert_close(q, ngram / 2 + torch.tensor([0.125] * 4 + [0.0] * 4))


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_impossible_mixtures_are_refused(weights):
    with pytest.raises(ValueError, match="weight"):
        Mixture([NGram(8, 2), NGram(8, 3)], weights)


def test_mixture_by_name(target, tmp_path):
    mixture = drafters.make("mixture:3*ngram:2+1*ngram:3^0.5", target)
    assert (mixture.weights, mixture.confidence) == ([0.75, 0.25], 0.5)
    for spec in ("mixture:", "mixture:ngram:2", "mixture:x*ngram:2", "mixture:0*ngram:2"):
        with pytest.raises(ValueError, match="mixture:"):
            drafters.make(spec, target)
    file = tmp_path / "a+b.safetensors"
    save_file(lens.packed(torch.zeros(32, 33), 1), file, {"kind": "lens"})
    assert len(drafters.make(f"mixture:0.5*lens:{file}+0.5*ngram:3", target).drafters) == 2


# EAGLE checkpoints

REFERENCE = {
    "vicuna": (LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding, ["fc"]),
    "llama": (LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding, []),
    "qwen2": (Qwen2Config, Qwen2DecoderLayer, Qwen2RotaryEmbedding, ["fc", "q_proj", "k_proj", "v_proj"]),
}


def write_checkpoint(folder, kind, biases, form="safetensors", **changes):
    """A published checkpoint's layout: config.json, fc and layers.0.*, no input norm, an embedding that is not used."""
    folder.mkdir()
    values = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
    }
    (folder / "config.json").write_text(json.dumps(values | changes.pop("config", {})))
    tensors = dict(random_head(7, tuple(biases)).state_dict())
    tensors["embed_tokens.weight"] = torch.zeros(VOCABULARY, 32)
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name.replace("__", ".")]
        else:
            tensors[name.replace("__", ".")] = tensor
    if form == "safetensors":
        save_file(tensors, folder / "model.safetensors")
    else:
        torch.save(tensors, folder / "pytorch_model.bin")
    return folder, tensors


@pytest.mark.parametrize("kind", REFERENCE)
@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_eagle_1_checkpoints_load_and_run_as_published(target, tmp_path, kind, form):
    """Against transformers' own decoder layer without its input norm, as EAGLE's code runs it."""
    make_config, make_layer, make_rotary, biases = REFERENCE[kind]
    folder, tensors = write_checkpoint(tmp_path / "ckpt", kind, biases, form)
    drafter = eagle.load(folder, target)
    config = make_config(
        hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
        num_hidden_layers=1, rms_norm_eps=1e-6, attn_implementation="eager",
    )  # fmt: skip
    layer = make_layer(config, 0).eval()
    layer.load_state_dict(
        {name.removeprefix("layers.0."): t for name, t in tensors.items() if name.startswith("layers.0.")}, strict=False
    )
    layer.input_layernorm = torch.nn.Identity()
    text = [3, 1, 4, 1, 5, 2]
    features = features_of(target, text)
    with torch.no_grad():  # EAGLE pairs the feature of token i - 1 with the embedding of token i, from i = 1 on
        embeddings = target.model.get_input_embeddings()(torch.tensor(text[1:]))
        u = torch.cat([embeddings, features[:-1]], -1) @ tensors["fc.weight"].T + tensors.get("fc.bias", 0)
        size = len(u)
        mask = torch.full((1, 1, size, size), -torch.inf).triu(1)
        rotary = make_rotary(config)(u[None], torch.arange(size)[None])
        out = layer(u[None], attention_mask=mask, position_embeddings=rotary)
        expected = target.model.get_output_embeddings()((out[0] if isinstance(out, tuple) else out)[0, -1])
    torch.testing.assert_close(root_logits(drafter, target, text), expected, atol=1e-4, rtol=1e-4)


def test_eagle_files_of_ours_round_trip(target, tmp_path):
    head = random_head(1)
    tensors, metadata = eagle.packed(head)
    save_file(tensors, tmp_path / "mine.safetensors", metadata)
    again = drafters.make(f"eagle:{tmp_path / 'mine.safetensors'}", target)
    rounded = eagle.Eagle(random_head(1).half().float(), target)
    torch.testing.assert_close(root_logits(again, target, [1, 2, 3]), root_logits(rounded, target, [1, 2, 3]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc__weight": torch.zeros(32, 32)}, r"tensor fc\.weight has shape \(32, 32\), expected \(32, 64\)"),
        ({"layers__0__mlp__up_proj__weight": None}, r"up_proj\.weight is missing, expected shape \(40, 32\)"),
        ({"layers__1__mlp__up_proj__weight": torch.zeros(1)}, r"layers\.1\.mlp\.up_proj\.weight is no part"),
        ({"fc__weight": torch.full((32, 64), torch.nan)}, r"fc\.weight has entries that are not finite"),
        ({"config": {"rope_scaling": {"type": "linear", "factor": 2}}}, "rope_scaling"),
        ({"config": {"hidden_size": None}}, "lacks hidden_size"),
        ({"config": {"hidden_act": "gelu"}}, "hidden_act 'gelu'"),
        ({"config": {"num_attention_heads": 0}}, "num_attention_heads must be a positive int, got 0"),
        ({"config": {"hidden_size": 32.5}}, r"hidden_size must be a positive int, got 32\.5"),
        ({"config": {"rope_theta": float("nan")}}, "rope_theta must be a positive float, got nan"),
        ({"config": {"num_attention_heads": 3}}, "do not divide a hidden size of 32"),
        ({"config": {"num_key_value_heads": 3}}, "4 attention heads and 3 of keys and values do not divide"),
        (
            {"embed_tokens__weight": torch.zeros(VOCABULARY + 2, 32)},
            r"tensor embed_tokens\.weight has shape \(10, 32\), expected \(8, 32\) for the target tiny",
        ),
    ],
)
def test_mismatched_checkpoints_name_the_fault(target, tmp_path, changes, message):
    folder, _ = write_checkpoint(tmp_path / "ckpt", "llama", ["fc"], **changes)
    with pytest.raises(ValueError, match=message) as caught:
        eagle.load(folder, target)
    assert "\n" not in str(caught.value)


def test_a_head_for_another_target_is_refused(tmp_path):
    other = loaded(tiny_model("gpt2", VOCABULARY))
    other.model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCABULARY, 16))
    fault = r"tensor fc\.weight has shape \(32, 64\), expected \(16, 32\): the target tiny has hidden size 16"
    with pytest.raises(ValueError, match=fault):
        eagle.Eagle(random_head(), other)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        eagle.load(tmp_path, other)


@settings(deadline=None)
@given(st.sampled_from([*CONFIG.__dataclass_fields__, "rope_scaling", "rope_parameters", "hidden_act", None]), JSON)
def test_no_configuration_is_worse_than_one_clear_line(field, junk):
    """Whatever JSON stands in a config.json: a configuration that a head can be built of, or a ValueError."""
    values = junk if field is None else asdict(CONFIG) | {field: junk}
    with contextlib.suppress(ValueError), torch.device("meta"):
        assert eagle.EagleHead(eagle.EagleConfig.read(values, "config.json")).config.head_dim % 2 == 0


def test_what_published_folders_also_hold_is_no_obstacle(target, tmp_path):
    """Rotary tables in old files, the trainer's own pickle beside them; another vocabulary only when asked for."""
    more = {
        "layers__0__self_attn__rotary_emb__inv_freq": torch.zeros(4),
        "embed_tokens__weight": torch.zeros(9, 32),
    }
    folder, _ = write_checkpoint(tmp_path / "ckpt", "llama", ["fc"], "bin", **more)
    (folder / "training_args.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match="embed_tokens"):
        drafters.make(f"eagle:{folder}", target)
    assert drafters.make(f"eagle:{folder}", target, pad_vocab=True).vocab_size == VOCABULARY


def test_corrupt_and_absent_checkpoints(target, tmp_path):
    folder, _ = write_checkpoint(tmp_path / "ckpt", "llama", ["fc"])
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="corrupt"):
        eagle.load(folder, target)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")  # a pickle that would run code
    with pytest.raises(ValueError, match="corrupt"):
        eagle.load(folder, target)
    (folder / "pytorch_model.bin").unlink()
    for path in (folder, tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError):
            eagle.load(path, target)


# Lens


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
