"""Nets on disk: what is saved comes back, and what is not a net of ours is refused with a remedy."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file

import truetilt as tt
from test_models import CLASSIFIER, UNET, stirred, tokens
from truetilt.models import hub, pretrained, text_bundle
from truetilt.models.classifier import Classifier, ClassifierConfig
from truetilt.models.pretrained import read_card
from truetilt.models.unet import UNet, UNetConfig
from truetilt.training.config import read_config


@pytest.fixture
def saved(tmp_path):
    """A saved net: the net and its folder."""
    net = stirred(UNet(UNET))
    net.save_pretrained(tmp_path / "net")
    return net, tmp_path / "net"


@pytest.fixture
def bundle(tmp_path):
    """A folder of the four nets."""
    for seed, (name, kind) in enumerate(hub.PARTS.items()):
        config = UNET if kind is UNet else CLASSIFIER
        stirred(kind(config, seed), seed).save_pretrained(tmp_path / "bundle" / name, torch.float16)
    return tmp_path / "bundle"


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def rewrite(folder, edit):
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path)


def test_what_is_saved_comes_back_bit_for_bit(saved):
    net, folder = saved
    back = UNet.from_pretrained(folder)
    assert back.config == net.config
    assert not back.training
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), back.state_dict().values(), strict=True))
    assert back.stem.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(net(tokens(2), torch.ones(2)), back(tokens(2), torch.ones(2)))


def test_the_files_are_the_hubs(saved):
    _, folder = saved
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text())
    assert config["architecture"] == "unet"
    assert config["channels"] == [8, 12]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_may_be_stored_in_half(saved, dtype, tmp_path):
    net, _ = saved
    net.save_pretrained(tmp_path / "half", dtype)
    assert {tensor.dtype for tensor in load_file(tmp_path / "half" / "model.safetensors").values()} == {dtype}
    back = UNet.from_pretrained(tmp_path / "half")
    assert {parameter.dtype for parameter in back.parameters()} == {torch.float32}
    torch.testing.assert_close(back.stem.weight, net.stem.weight, atol=1e-2, rtol=1e-2)


def test_a_weight_too_large_for_half_is_refused_and_nothing_is_written(tmp_path):
    net = UNet(UNET)
    torch.nn.init.constant_(net.stem.bias, 1e6)
    with pytest.raises(tt.InvalidInput, match=r"stem\.bias reaches 1e\+06"):
        net.save_pretrained(tmp_path / "net", torch.float16)
    assert not (tmp_path / "net").exists()


def test_an_interrupted_save_leaves_no_net_that_loads(saved, monkeypatch):
    _, folder = saved

    def fail(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pretrained, "save_file", fail)
    with pytest.raises(KeyboardInterrupt):
        UNet(UNET, 1).save_pretrained(folder)
    assert [p.name for p in folder.iterdir()] == ["model.safetensors"]  # whole, and the old one
    with pytest.raises(tt.InvalidInput, match="interrupted"):
        UNet.from_pretrained(folder)


def test_any_architecture_is_found_by_its_config(saved, tmp_path):
    Classifier(CLASSIFIER).save_pretrained(tmp_path / "classifier")
    assert isinstance(hub.from_pretrained(saved[1]), UNet)
    assert isinstance(hub.from_pretrained(tmp_path / "classifier"), Classifier)
    change(saved[1], architecture="transformer")
    known = r"'transformer'; known are \['classifier', 'sedd', 'text-classifier', 'unet'\]"
    with pytest.raises(tt.InvalidInput, match=known):
        hub.from_pretrained(saved[1])


def test_another_architecture_is_refused(saved):
    with pytest.raises(tt.InvalidInput, match="architecture 'unet', and 'classifier' was asked for"):
        Classifier.from_pretrained(saved[1])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "net.pt", "net.ckpt"])
def test_a_pickle_stays_shut(saved, name):
    _, folder = saved
    (folder / "model.safetensors").rename(folder / name)
    for where in (folder, folder / name, str(folder / name)):
        with pytest.raises(tt.InvalidInput, match=r"pickle.*runs what it contains.*save_pretrained"):
            UNet.from_pretrained(where)
    (folder / "config.json").unlink()
    with pytest.raises(tt.InvalidInput, match="pickle"):
        UNet.from_pretrained(folder)


def test_missing_extra_and_misshapen_tensors_are_named(saved):
    _, folder = saved
    rewrite(folder, lambda weights: weights.update(own=weights.pop("stem.bias")))
    with pytest.raises(
        tt.InvalidInput, match=r"1 tensors missing \(first \['stem.bias'\]\), 1 too many \(first \['own"
    ):
        UNet.from_pretrained(folder)
    rewrite(folder, lambda weights: weights.update({"stem.bias": weights.pop("own")[:3]}))
    with pytest.raises(tt.InvalidInput, match=r"stem\.bias has shape \(3,\) where config.json asks for \(8,\)"):
        UNet.from_pretrained(folder)


def test_a_config_of_another_size_is_refused(saved):
    change(saved[1], channels=[8, 16])
    with pytest.raises(tt.InvalidInput, match="keep the two files together"):
        UNet.from_pretrained(saved[1])


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_file_cut_short_is_refused(saved, keep):
    path = saved[1] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(tt.InvalidInput, match="broken or cut short"):
        UNet.from_pretrained(saved[1])


def test_weights_that_are_no_numbers_are_refused(saved):
    rewrite(saved[1], lambda weights: weights["stem.bias"].fill_(torch.nan))
    with pytest.raises(tt.InvalidInput, match=r"stem\.bias holds NaN"):
        UNet.from_pretrained(saved[1])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "list"),
        ("{}", "architecture"),
        ('{"architecture": "unet", "depth": 3}', "unknown keys: depth"),
        ('{"architecture": "unet", "side": 0}', "side is 0"),
        ('{"architecture": "unet", "channels": 8}', "channels is 8"),
    ],
)
def test_a_bad_config_is_named(saved, text, says):
    (saved[1] / "config.json").write_text(text)
    with pytest.raises(tt.InvalidInput, match=says):
        UNet.from_pretrained(saved[1])


def test_a_config_may_leave_out_what_has_a_default():
    config = pretrained.config_of(ClassifierConfig, {"channels": [16, 32]}, "here")
    assert config == ClassifierConfig(channels=(16, 32))


def test_a_folder_that_is_not_there(tmp_path):
    for name in (tmp_path / "nothing", "nothing", "a/b/c", "./nothing", "../nothing"):
        with pytest.raises(tt.InvalidInput, match="there is no folder"):
            UNet.from_pretrained(name)
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(tt.InvalidInput, match="is a file"):
        UNet.from_pretrained(tmp_path / "file.txt")


def test_a_hub_id_is_downloaded_and_then_read_as_any_folder(saved, monkeypatch):
    asked = []

    def download(name, allow_patterns):
        asked.append((name, allow_patterns))
        return str(saved[1])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert UNet.from_pretrained("someone/digits").config == UNET
    assert asked == [("someone/digits", ["config.json", "model.safetensors"])]


def test_a_hub_id_offline_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for ask in (UNet.from_pretrained, hub.load):
        with pytest.raises(tt.InvalidInput, match="go online once, or download it elsewhere"):
            ask("someone/digits")


def test_a_bundle_makes_models_and_judges(bundle):
    digits = hub.load(bundle, batch=8)
    assert (digits.side, digits.classes, digits.process) == (4, 3, tt.Masking(4))
    assert sorted(digits.nets) == ["deft", "judge", "potential", "unet"]
    result = tt.sample(digits.model(1), 3.0, particles=4, populations=2, num_inference_steps=4)
    log_p = digits.judge(result.particles)
    assert log_p.shape == (2, 4, 3)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 4, dtype=torch.float64))
    for form in ("deft", "cfg"):
        assert digits.model(0, form).potential is None


def test_the_judge_is_asked_about_clean_digits_by_its_own_net(bundle):
    digits, x = hub.load(bundle, batch=8), tokens(3, 4)
    own = digits.nets["judge"](x, torch.zeros(3)).double().log_softmax(-1)
    torch.testing.assert_close(digits.judge(x), own, atol=1e-5, rtol=1e-5)
    with pytest.raises(tt.InvalidInput, match="0 to 3 and no mask"):
        digits.judge(torch.full((1, 16), 4))


@pytest.mark.parametrize("condition", [-1, 3, 10, "4", None, 1.5])
def test_a_class_out_of_range_is_refused(bundle, condition):
    with pytest.raises(tt.InvalidInput, match="classes 0 to 2"):
        hub.load(bundle).model(condition)


def test_what_a_bundle_lacks_is_missed_when_it_is_asked_for(bundle):
    for name in ("deft", "judge"):
        (bundle / name).rename(bundle / f"no-{name}")
    digits = hub.load(bundle)
    assert digits.model(0).potential is not None
    with pytest.raises(tt.InvalidInput, match="'deft'"):
        digits.model(0, "deft")
    with pytest.raises(tt.InvalidInput, match="'judge'"):
        digits.judge(tokens(1, 4))
    (bundle / "unet").rename(bundle / "no-unet")
    with pytest.raises(tt.InvalidInput, match="no folder 'unet'"):
        hub.load(bundle)


def test_nets_of_one_bundle_must_agree(bundle):
    Classifier(replace(CLASSIFIER, classes=5)).save_pretrained(bundle / "potential")
    with pytest.raises(tt.InvalidInput, match=r"\(4, 4, 3\) and potential has \(4, 4, 5\)"):
        hub.load(bundle)


def test_the_name_mnist_means_the_embedded_folder(bundle, monkeypatch):
    assert hub.embedded("mnist") == Path(tt.__file__).parent / "checkpoints" / "mnist"
    monkeypatch.setattr(hub, "embedded", lambda name: bundle)
    assert tt.load(Path("mnist")).classes == tt.load("mnist").classes == 3

    monkeypatch.setattr(hub, "embedded", lambda name: bundle / "nowhere")
    with pytest.raises(tt.InvalidInput, match=r"no embedded checkpoints.*reinstall"):
        hub.load("mnist")


def test_sizes_are_those_of_the_digits_unless_told():
    assert (UNetConfig().length, ClassifierConfig().length) == (784, 784)


def test_a_bundle_has_the_process_it_was_trained_under(bundle):
    assert isinstance(tt.load(bundle).process, tt.Masking)
    card = bundle / "unet" / "card.json"
    card.write_text(json.dumps({"config": {"process": "uniform"}}))
    assert isinstance(tt.load(bundle).process, tt.Uniform)
    card.write_text(json.dumps({"config": {"process": "gauss"}}))
    with pytest.raises(tt.InvalidInput, match="trained under the process 'gauss'"):
        tt.load(bundle)


@pytest.mark.parametrize(
    ("bundle", "name"),
    [
        *(("mnist", name) for name in hub.PARTS),
        *(("tiny-reviews", name) for name in text_bundle.PARTS),
        *(("molecules", name) for name in ("net", "potential")),
    ],
)
def test_the_configs_are_those_of_the_embedded_nets(bundle, name):
    folder = Path(__file__).parents[1] / "configs" / bundle.removeprefix("tiny-")
    trained = read_card(hub.embedded(bundle) / name)["config"]
    told = {key: trained[key] for key in ("data", "base", "max_seconds") if key in trained}
    config = asdict(read_config(folder / f"{name}.yaml", **told))
    assert {key: json.loads(json.dumps(config[key])) for key in trained} == trained


def test_the_embedded_nets_are_those_that_were_measured():
    """The judge knows a drawn one and the potential agrees: other weights of the right shape would not."""
    digits = tt.load("mnist")
    image = torch.zeros(28, 28, dtype=torch.int64)
    image[5:23, 13:16] = 255
    one = image.reshape(1, 784)
    assert int(digits.judge(one).argmax(-1)) == 1
    assert float(digits.model(1).potential(one, 0.0)) > -0.5
    assert float(digits.model(8).potential(one, 0.0)) < -2
