"""Hugging Face's files of Llama models: the decoder's logits, reading and writing, and what is rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from trainer.artifacts import read_model
from trainer.llama.checkpoint import LlamaCheckpoint, write_llama
from trainer.llama.config import read_config
from trainer.models import build_empty
from trainyard_watch.errors import DataError

pytestmark = pytest.mark.torch
GOLDEN = json.loads((Path(__file__).parent / "golden" / "logits.json").read_text())
"""Logits of transformers 5.23; test_transformers.py compares them with the engine image's."""
TOLERANCE = 1e-5


def decoder_of(folder, *, sequence_length=96):
    content = json.loads((folder / "config.json").read_text())
    config = read_config(content, file="config.json", sequence_length=sequence_length)
    model = build_empty(config.to_dict())
    model.load_state_dict(dict(LlamaCheckpoint.open(folder, ours=config).items()), assign=True)
    return model.eval()


@torch.no_grad()
def logits_of(model, cases):
    return model(cases.TOKENS)[0, list(cases.POSITIONS)]


def written(model, folder, *, max_file_bytes=10**9):
    folder.mkdir()
    write_llama(folder, model.state_dict(), model.config, like={}, max_file_bytes=max_file_bytes)
    return folder


@pytest.mark.parametrize("name", GOLDEN)
def test_decoder_has_the_logits_of_transformers(make_folder, cases, name):
    model = decoder_of(make_folder(cases.CASES[name]))

    expected = torch.tensor(GOLDEN[name])

    torch.testing.assert_close(logits_of(model, cases), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("max_file_bytes", [10**9, 20_000], ids=["one-file", "several"])
def test_written_weights_are_read_with_the_same_bits(
    make_folder, cases, tmp_path, name, max_file_bytes
):
    model = decoder_of(make_folder(cases.CASES[name]))

    folder = written(model, tmp_path / "written", max_file_bytes=max_file_bytes)

    again = decoder_of(folder)
    assert again.config == model.config
    assert (folder / "model.safetensors.index.json").exists() == (max_file_bytes < 10**9)
    for key, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], weight), key


def test_several_files_are_one_model(make_folder, cases):
    one, several = make_folder(), make_folder(max_file_bytes=20_000)

    assert len(list(several.glob("*.safetensors"))) > 2
    assert torch.equal(logits_of(decoder_of(one), cases), logits_of(decoder_of(several), cases))


def test_fused_projections_of_written_files_are_not_copied(make_folder, tmp_path):
    folder = written(decoder_of(make_folder()), tmp_path / "written")
    checkpoint = LlamaCheckpoint.open(folder)
    name = "blocks.1.attention.query_key_value.weight"

    first, second = checkpoint.weight(name), checkpoint.weight(name)

    assert first.data_ptr() == second.data_ptr()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_read_as_it_is_stored(make_folder, cases, dtype):
    norm = cases.weight_of("model.norm.weight", (32,)).to(dtype)
    folder = make_folder(**{"model.norm.weight": norm})

    checkpoint = LlamaCheckpoint.open(folder)

    assert torch.equal(checkpoint.weight("norm.weight"), norm)


def test_other_weights_have_another_fingerprint(make_folder):
    changed = {"model.norm.weight": torch.full((32,), 2.0)}

    prints = [LlamaCheckpoint.open(each).fingerprint() for each in (make_folder(), make_folder())]
    other = LlamaCheckpoint.open(make_folder(**changed)).fingerprint()

    assert prints[0] == prints[1] != other


def test_special_tokens_and_the_longest_context_of_the_first_model_are_kept(
    make_folder, cases, tmp_path
):
    model = decoder_of(make_folder(cases.CASES["llama3"]), sequence_length=32)
    write_llama(tmp_path, model.state_dict(), model.config, like=cases.CASES["llama3"])

    content = json.loads((tmp_path / "config.json").read_text())

    assert content.items() >= dict(cases.CASES["llama3"]).items()
    assert content["architectures"] == ["LlamaForCausalLM"]


QUERY = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({QUERY: None}, f"lacks 1 tensors of its config.json: {QUERY}"),
        (
            {"model.layers.2.mlp.up_proj.weight": torch.ones(48, 32)},
            "has 1 tensors that a Llama of its config.json does not have: model.layers.2.mlp.up_proj",
        ),
        ({QUERY: torch.ones(16, 32)}, f"{QUERY} has the shape [16, 32], expected [32, 32]"),
    ],
    ids=["missing", "extra", "shape"],
)
def test_wrong_tensors_are_named(make_folder, tensors, says):
    folder = make_folder(**tensors)

    with pytest.raises(DataError) as caught:
        LlamaCheckpoint.open(folder)

    assert says in str(caught.value)


def test_all_wrong_tensors_come_together(make_folder):
    folder = make_folder(**{QUERY: None, "lm_head.weight": torch.ones(60, 32)})

    with pytest.raises(DataError) as caught:
        LlamaCheckpoint.open(folder)

    assert len(caught.value.findings) == 2


def test_frequencies_and_the_copy_of_a_tied_embedding_are_ignored(make_folder, cases):
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
        "lm_head.weight": torch.ones(61, 32),
    }
    folder = make_folder(cases.CASES["tied"], **extra)

    expected = torch.tensor(GOLDEN["tied"])

    torch.testing.assert_close(
        logits_of(decoder_of(folder), cases), expected, atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "qwen2"}, "has model_type 'qwen2'; allowed is 'llama'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; our decoder supports only 'silu'"),
        ({"attention_bias": True}, "attention_bias is True; our decoder supports only False"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "the rope type is 'linear'; allowed"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "the rope type is 'yarn'; allowed"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "rope_scaling is not valid"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide"),
        ({"head_dim": 16}, "head_dim is 16; our decoder supports only"),
        ({"vocab_size": None}, "vocab_size is None; allowed is a whole number above 0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_other_architectures_are_refused(cases, change, says):
    with pytest.raises(DataError) as caught:
        read_config({**cases.SHAPE, **change}, file="config.json")

    assert says in str(caught.value)


def test_rotary_settings_of_transformers_5_are_read(cases):
    old = {**cases.SHAPE, "rope_theta": 5e5, "rope_scaling": cases.SCALING}
    new = {**cases.SHAPE, "rope_parameters": {**cases.SCALING, "rope_theta": 5e5}}

    assert read_config(new, file="") == read_config(old, file="")


def cut_off(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


def not_safetensors(folder):
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04" * 100)


def rename(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (cut_off, "is cut off or damaged"),
        (not_safetensors, "is not a safetensors file"),
        (rename, "neither model.safetensors nor model.safetensors.index.json; found config.json"),
        (lambda folder: (folder / "config.json").unlink(), "config.json cannot be read"),
    ],
    ids=["cut-off", "not-safetensors", "other-format", "no-config"],
)
def test_damaged_files_are_named(make_folder, spoil, says):
    folder = make_folder()
    spoil(folder)

    with pytest.raises(DataError) as caught:
        LlamaCheckpoint.open(folder)

    assert says in str(caught.value)


def test_missing_file_of_several_is_named(make_folder):
    folder = make_folder(max_file_bytes=20_000)
    path = sorted(folder.glob("*.safetensors"))[1]
    path.unlink()

    with pytest.raises(DataError) as caught:
        LlamaCheckpoint.open(folder)

    assert f"{path} cannot be read" in str(caught.value)


def test_decoders_of_earlier_releases_are_read(make_folder, tmp_path):
    model = decoder_of(make_folder())
    torch.save(model.state_dict(), tmp_path / "model.pt")
    (tmp_path / "model.json").write_text(json.dumps({"config": model.config.to_dict()}))

    again, _, _ = read_model(tmp_path)

    assert all(
        torch.equal(again.state_dict()[key], each) for key, each in model.state_dict().items()
    )
