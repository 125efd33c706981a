"""Weights in eight bits: no number is off by more than half a step of its row, and a file says so or is refused."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from truetilt.core.errors import InvalidInput
from truetilt.models.eight_bits import from_eight_bits, in_eight_bits, scale_of
from truetilt.models.transformer import SEDD, SEDDConfig

SIZES = SEDDConfig(vocabulary=40, length=6, hidden=64, blocks=1, heads=2, condition=8, positions=True, timeless=True)


def test_rows_are_off_by_half_a_step_at_most():
    weights = {"wide": torch.linspace(-3, 5, 4 * 50).view(4, 50), "zero": torch.zeros(2, 40), "bias": torch.ones(7)}
    stored = in_eight_bits(weights)
    assert stored["wide"].dtype == torch.int8
    assert stored["bias"].dtype == torch.float32
    back = from_eight_bits(stored)
    assert back.keys() == weights.keys()
    off = (back["wide"] - weights["wide"]).abs().amax(1)
    assert (off <= weights["wide"].abs().amax(1) / 127 / 2 * 1.0001).all()
    assert torch.equal(back["zero"], weights["zero"])
    assert torch.equal(back["bias"], weights["bias"])


def test_a_net_in_eight_bits_is_a_third_of_its_size_and_answers_alike(tmp_path):
    net = SEDD(SIZES, 3)
    with torch.no_grad():
        net.output_layer.linear.weight.copy_(torch.linspace(-1, 1, 41 * 64).view(41, 64))
    net.save_pretrained(tmp_path / "full")
    net.save_pretrained(tmp_path / "small", torch.int8)
    size, small = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "small"))
    assert small < size / 2.5
    back = SEDD.from_pretrained(tmp_path / "small")
    x, sigma = torch.full((2, 6), 40), torch.ones(2)
    one, other = (each(x, sigma).log_softmax(-1) for each in (net.eval(), back))
    assert float((one - other).detach().abs().max()) < 0.05


def test_scales_that_are_missing_or_of_another_net_are_refused(tmp_path):
    SEDD(SIZES, 3).save_pretrained(tmp_path, torch.int8)
    stored = load_file(tmp_path / "model.safetensors")
    name = next(name for name, tensor in stored.items() if tensor.dtype == torch.int8)
    save_file({key: value for key, value in stored.items() if key != scale_of(name)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="1 tensors missing"):
        SEDD.from_pretrained(tmp_path)
    save_file({**stored, scale_of(name): torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="shape"):
        SEDD.from_pretrained(tmp_path)


def test_a_timeless_net_answers_alike_at_every_time():
    net = SEDD(SIZES, 3).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.linspace(-0.05, 0.05, parameter.numel()).view(parameter.shape))
    x = torch.tensor([[3, 40, 1, 40, 40, 7]])
    early, late = (net(x, torch.tensor([sigma]))[x == 40][:, :40].log_softmax(-1) for sigma in (0.1, 3.0))
    torch.testing.assert_close(early, late)
    with pytest.raises(InvalidInput, match="timeless is for masked"):
        SEDDConfig(masked=False, scale_by_sigma=False, timeless=True)
