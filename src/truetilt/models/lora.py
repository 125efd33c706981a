"""LoRA adapters (peft) on a SEDD network: few weights are learned, the network's own stay frozen.

With the adapters disabled the network is the original one. `merged` adds them to the weights of an ordinary network.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..core.errors import InvalidInput
from ..core.storage import write_json, write_with
from ..smc.sampler import DRAW, Stream
from .transformer import SEDD

_TARGETS = r"blocks\.\d+\.(attn_qkv|attn_out|mlp\.0|mlp\.2)"  # all but the noise embedding's layers
_NAME = "default"


def adapt(net: SEDD, rank: int, alpha: int, seed: int) -> SEDD:
    """Add adapters to the network's blocks, in place: the only trainable weights besides an embedding of labels."""
    for name, value in (("rank", rank), ("alpha", alpha)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(f"lora: {name} is {value!r}; give a whole number of at least 1")
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise InvalidInput("lora needs the package peft; install truetilt[hf], or train all weights") from error
    with torch.random.fork_rng(devices=[]):  # peft draws initial weights; ours replace them
        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules=_TARGETS), net)
    with torch.no_grad():
        for number, (_, layer) in enumerate(_layers(net)):
            down, up = layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight
            u = Stream(seed).uniforms(number, DRAW, 1, down.numel()).reshape(down.shape)
            down.copy_((2 * u - 1) / down.shape[-1] ** 0.5)
            up.zero_()
    if net.label is not None:
        net.label.requires_grad_(True)
    return net


def switch(net: SEDD, on: bool) -> None:
    """Enable or disable the adapters."""
    for _, layer in _layers(net):
        layer.enable_adapters(on)


@torch.no_grad()
def merged(net: SEDD) -> SEDD:
    """An equivalent network without adapters, their weights merged into its own."""
    plain = SEDD(net.config, seed=None)
    state = {name.replace(".base_layer", ""): tensor for name, tensor in net.state_dict().items()}
    for name, layer in _layers(net):
        state[f"{name}.weight"] = state[f"{name}.weight"] + layer.get_delta_weight(_NAME)
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    return plain.to(next(net.parameters()).device).eval()


def save_adapter(net: SEDD, folder: Path) -> None:
    """Write the adapters alone, under peft's names and settings."""
    from peft import get_peft_model_state_dict

    found: dict[str, Tensor] = get_peft_model_state_dict(net, adapter_name=_NAME)
    kept = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in found.items()}
    config: Any = getattr(net, "peft_config", {})[_NAME]
    write_with(folder / "adapter_model.safetensors", lambda path: save_file(kept, path, metadata={"format": "pt"}))
    settings = {"peft_type": "LORA", "r": config.r, "lora_alpha": config.lora_alpha, "target_modules": _TARGETS}
    write_json(folder / "adapter_config.json", settings)


def _layers(net: SEDD) -> Iterator[tuple[str, Any]]:
    from peft.tuners.lora import LoraLayer

    for name, module in net.named_modules():
        if isinstance(module, LoraLayer):
            yield name, module
