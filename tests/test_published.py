"""Published SEDD checkpoints, in the very format of louaaron/sedd-small: read, and refused when they are not whole."""

import copy
import json
import pickle
import random
from pathlib import Path

import huggingface_hub
import huggingface_hub.errors
import pytest
import torch
from safetensors.torch import save_file

import truetilt as tt
from test_transformer import TINY, by_hand, inputs, stirred
from truetilt.models.sedd_checkpoints import PICKLED, read_published
from truetilt.models.transformer import SEDDConfig
from truetilt.models.unet import UNet, UNetConfig

SETTINGS = {  # as the authors' training left it beside the weights
    "ngpus": 8,
    "tokens": 11,
    "training": {"batch_size": 512, "accum": 1, "ema": 0.9999},
    "data": {"train": "openwebtext", "valid": "wikitext103", "cache_dir": "data"},
    "graph": {"type": "absorb", "file": "data", "report_all": False},
    "noise": {"type": "loglinear", "sigma_min": 1e-4, "sigma_max": 20},
    "sampling": {"predictor": "euler", "steps": 128, "noise_removal": True},
    "optim": {"optimizer": "AdamW", "lr": 3e-4},
    "model": {
        "name": "tiny",
        "type": "ddit",
        "hidden_size": 24,
        "cond_dim": 10,
        "length": 9,
        "n_blocks": 3,
        "n_heads": 3,
        "scale_by_sigma": True,
        "dropout": 0.1,
    },
}


def write(folder, weights=None, settings=SETTINGS, pickled=False):
    """A published folder; the weights are those of a net with none at zero."""
    folder.mkdir(exist_ok=True)
    weights = stirred().state_dict() if weights is None else weights
    if pickled:
        torch.save(weights, folder / PICKLED)
    else:
        save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def changed(name, value):
    settings = copy.deepcopy(SETTINGS)
    *path, last = name.split(".")
    inner = settings
    for key in path:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return settings


@torch.no_grad()
@pytest.mark.parametrize("pickled", [False, True])
def test_a_published_folder_is_read(tmp_path, pickled):
    text = tt.load(write(tmp_path / "sedd", pickled=pickled))
    assert isinstance(text, tt.Text)
    assert text.process == tt.Masking(11)
    assert text.net.config == TINY
    assert (text.length, text.batch, text.net.training) == (9, 16, False)
    x, sigma = inputs()
    expected = by_hand(stirred().state_dict(), x, sigma, TINY.heads)
    torch.testing.assert_close(text.net(x, sigma).double(), expected, atol=1e-5, rtol=1e-5)


def test_it_samples_under_a_prompt(tmp_path):
    text = tt.load(write(tmp_path / "sedd"), batch=8)
    result = tt.sample(text.model([4, 2], length=6), 1.5, particles=8, num_inference_steps=6, seed=3)
    assert result.particles.shape == (1, 8, 6)
    assert (result.particles < 11).all()


def test_our_own_folder_is_read_by_the_same_word(tmp_path):
    config = SEDDConfig(11, 9, 24, 2, 3, 10, masked=False, scale_by_sigma=False)
    stirred(config).save_pretrained(tmp_path)
    text = tt.load(tmp_path)
    assert (text.process, text.net.config) == (tt.Uniform(11), config)


def test_other_noise_and_half_precision(tmp_path):
    settings = changed("noise.type", "geometric") | {"graph": {"type": "uniform"}}
    settings["model"]["scale_by_sigma"] = False
    config = SEDDConfig(11, 9, 24, 3, 3, 10, masked=False, scale_by_sigma=False)
    weights = {name: tensor.half() for name, tensor in stirred(config).state_dict().items()}
    net, process = read_published(write(tmp_path / "sedd", weights, settings))
    assert process == tt.Uniform(11, tt.Geometric(1e-4, 20.0))
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}


def test_frequencies_may_be_left_out_but_not_be_others(tmp_path):
    weights = stirred().state_dict()
    speeds = weights.pop("rotary_emb.inv_freq")
    assert torch.equal(read_published(write(tmp_path / "a", weights))[0].rotary_emb.inv_freq, speeds)
    weights["rotary_emb.inv_freq"] = speeds**2
    with pytest.raises(tt.InvalidInput, match="another net"):
        read_published(write(tmp_path / "b", weights))


def hub(monkeypatch, files):
    """A hub that gives these folders' files, and the patterns it was asked for."""
    asked = []

    def snapshot(hub_id, allow_patterns):
        asked.append(tuple(allow_patterns))
        folder = files / f"snapshot-{len(asked)}"
        folder.mkdir()
        for path in (files / hub_id.split("/")[1]).iterdir():
            if path.name in allow_patterns:
                (folder / path.name).symlink_to(path)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return asked


@pytest.mark.parametrize("pickled", [False, True])
def test_a_hub_id_is_downloaded_and_the_pickle_only_if_there_is_nothing_else(tmp_path, monkeypatch, pickled):
    write(tmp_path / "sedd-tiny", pickled=pickled)
    if not pickled:
        (tmp_path / "sedd-tiny" / PICKLED).write_bytes(b"never asked for")
    asked = hub(monkeypatch, tmp_path)
    text = tt.load("louaaron/sedd-tiny")
    assert text.net.config == TINY
    assert any(PICKLED in patterns for patterns in asked) == pickled


class LineDropped(Exception):
    """What an HTTP client may raise: an error of no known family."""


@pytest.mark.parametrize("error", [huggingface_hub.errors.LocalEntryNotFoundError, LineDropped])
def test_without_a_network_the_error_says_so(monkeypatch, error):
    def offline(*args, **options):
        raise error("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(tt.InvalidInput, match=rf"louaaron/sedd-medium.*{error.__name__}.*go online once"):
        tt.load("louaaron/sedd-medium")


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_half_a_download_is_refused(tmp_path, pickled, share):
    folder = write(tmp_path / "sedd", pickled=pickled)
    path = folder / (PICKLED if pickled else "model.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(tt.InvalidInput, match=r"cut short.*(again|authors)"):
        tt.load(folder)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("head", [b"", b"PK\x03\x04", b"\x80\x02"], ids=["noise", "zip", "pickle"])
def test_random_bytes_in_place_of_weights_are_refused(tmp_path, head, seed):
    folder = write(tmp_path / "sedd", pickled=True)
    (folder / PICKLED).write_bytes(head + random.Random(seed).randbytes(2000))
    with pytest.raises(tt.InvalidInput, match=r"pytorch_model.bin .*(again|authors)"):
        tt.load(folder)


class Trap:
    def __reduce__(self):
        return (Path.touch, (Path("sprung"),))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_code_in_it_runs_nothing(tmp_path, monkeypatch, zipped):
    monkeypatch.chdir(tmp_path)
    folder = write(tmp_path / "sedd", pickled=True)
    if zipped:
        torch.save({**stirred().state_dict(), "label": Trap()}, folder / PICKLED)
    else:
        (folder / PICKLED).write_bytes(pickle.dumps(Trap(), protocol=2))
    with pytest.raises(tt.InvalidInput, match=r"would run code when opened.*safetensors"):
        tt.load(folder)
    assert not Path("sprung").exists()


@pytest.mark.parametrize("held", [[torch.zeros(2)], {"step": 3}, torch.zeros(3)])
def test_a_file_of_other_things_is_refused(tmp_path, held):
    folder = write(tmp_path / "sedd", pickled=True)
    torch.save(held, folder / PICKLED)
    with pytest.raises(tt.InvalidInput, match="no table of named tensors"):
        tt.load(folder)


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (changed("model.hidden_size", 48), r"vocab_embed\.embedding has shape \(12, 24\) where config.json asks"),
        (changed("model.n_blocks", 4), r"10 tensors missing \(first \['blocks\.3\.adaLN_modulation\.bias'\]\)"),
        (changed("model.n_blocks", 2), r"10 too many \(first \['blocks\.2"),
        (changed("tokens", 12), r"\(12, 24\) where config.json asks for \(13, 24\)"),
    ],
)
def test_weights_of_another_size_are_refused(tmp_path, settings, word, pickled):
    with pytest.raises(tt.InvalidInput, match=word):
        tt.load(write(tmp_path / "sedd", settings=settings, pickled=pickled))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (changed("graph.type", "roulette"), "graph.type is 'roulette'; known are absorb and uniform"),
        (changed("noise.type", "cosine"), "noise.type is 'cosine'"),
        (changed("noise", None), "noise.type is None"),
        (changed("model.n_heads", None), "model.n_heads is None"),
        (changed("model.n_heads", "3"), "model.n_heads is '3'"),
        (changed("model.n_heads", 5), "24 for 5 heads"),
        (changed("model.scale_by_sigma", 1), "scale_by_sigma is 1"),
        (changed("tokens", 11.5), "tokens is 11.5"),
        (changed("graph.type", "uniform"), "scale_by_sigma is for masked"),
    ],
)
def test_settings_that_of_something_else_are_named(tmp_path, settings, word):
    with pytest.raises(tt.InvalidInput, match=word):
        tt.load(write(tmp_path / "sedd", settings=settings))


@pytest.mark.parametrize("pickled", [False, True])
def test_numbers_that_are_none_are_refused(tmp_path, pickled):
    weights = stirred().state_dict()
    weights["blocks.1.mlp.0.bias"][3] = torch.nan
    with pytest.raises(tt.InvalidInput, match=r"blocks\.1\.mlp\.0\.bias holds NaN"):
        tt.load(write(tmp_path / "sedd", weights, pickled=pickled))


def test_a_folder_without_weights_or_config_says_what_is_missing(tmp_path):
    folder = write(tmp_path / "sedd")
    (folder / "model.safetensors").unlink()
    with pytest.raises(tt.InvalidInput, match=r"has no model\.safetensors"):
        tt.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(tt.InvalidInput, match=r"config\.json"):
        read_published(folder)


def test_a_single_digit_net_is_no_text_model(tmp_path):
    UNet(UNetConfig(4, 4, 2, (4,), 1, 4, 4)).save_pretrained(tmp_path)
    with pytest.raises(tt.InvalidInput, match=r"architecture 'unet'.*from_pretrained"):
        tt.load(tmp_path)


def test_another_architecture_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"hidden": 8}))
    with pytest.raises(tt.InvalidInput, match=r"names no .architecture"):
        tt.load(tmp_path)
    pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}))
    with pytest.raises(tt.InvalidInput, match=r"is a causal model \(GPT2LMHeadModel\)"):
        tt.load(tmp_path)
