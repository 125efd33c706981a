"""The training tasks of texts: a SEDD network with labels or prompts, a guide on top of a frozen one, classifiers.

A SEDD network returns log-scores, so it learns by the score entropy: the cross-entropy of the clean token plus a
penalty, e^a - 1 - a, for rates whose logarithm is off by a. The cross-entropy alone would leave the scale of the rates
free, and every sampler in clock time reads it. A guide returns log-ratios, which must not be scaled by the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..core.errors import InvalidInput
from ..diffusion.processes import Masking, Uniform
from ..models.hub import load
from ..models.layers import placed
from ..models.lora import adapt, merged, save_adapter
from ..models.net_score import normalised
from ..models.pretrained import config_of
from ..models.text_classifier import TextClassifier, TextClassifierConfig
from ..models.text_normalisation import normalise
from ..models.text_score import Text
from ..models.tokenizer import TOKENIZER, tokenizer_copier
from ..models.transformer import SEDD, SEDDConfig
from .config import TrainConfig
from .corpus import Corpus, Texts, mixed
from .data import subset
from .losses import Noised, masked_score_entropy, score_entropy
from .task_record import LogScores, TrainingBatch, TrainingTask, quick, weights_fingerprint


def text_task(config: TrainConfig, device: torch.device | str = "cpu") -> TrainingTask:
    """The task of a configuration with its networks on the device."""
    corpus = Corpus.read(config.data)
    if config.task in ("potential", "classifier"):
        net, before = _classifier(config)
        judges = config.task == "classifier"
        task = TrainingTask(placed(net, device), config.noising(), _asked_for_labels, clean=judges, started_from=before)
    else:
        task = (_deft if config.task == "deft" else _diffusion)(config, corpus, device)
    facts: dict[str, Any] = {
        "tokenizer": corpus.fingerprints[TOKENIZER],
        "classes": corpus.classes,
        "groups": corpus.groups,
    }
    facts |= {"withheld": corpus.withheld, **({"bins": corpus.bins} if corpus.bins else {})}
    facts |= {} if corpus.notation is None else {"notation": corpus.notation}
    beside = tokenizer_copier(corpus.folder, corpus.fingerprints[TOKENIZER])
    return replace(task, facts={**facts, **task.facts}, leave=_both(beside, task.leave))


def load_texts(config: TrainConfig, task: TrainingTask) -> tuple[Texts, Texts]:
    """Training and test rows of a task: the judge learns from its own half, all other networks from the other half."""
    corpus = Corpus.read(config.data)
    _check_fits(corpus, task)
    part = "judge" if config.task == "classifier" else "guidance"
    labelled, packing = config.task in ("potential", "classifier", "deft"), config.rows == "packed"
    rows = corpus.texts((part,), labelled, packing)
    test = corpus.texts(("test",), labelled or config.task == "conditional", packing)
    return mixed(subset(rows, config.share, config.data_seed), config.mix), test


def _check_fits(corpus: Corpus, task: TrainingTask) -> None:
    net: Any = task.net.config
    if net.vocabulary != corpus.vocabulary:
        raise InvalidInput(
            f"the corpus has {corpus.vocabulary} tokens and the network {net.vocabulary}; set net.vocabulary to match"
        )
    if task.length != corpus.length:
        prompt = f" with its prompt of {task.given}" if task.given else ""
        raise InvalidInput(
            f"rows have {corpus.length} tokens and the network reads {net.length}{prompt}; set net.length"
        )
    if isinstance(net, TextClassifierConfig):
        if net.groups != corpus.group_sizes:
            raise InvalidInput(f"the corpus has groups of {corpus.group_sizes} classes, the network {net.groups}")
    elif task.told and not task.given and net.classes != len(corpus.classes):
        raise InvalidInput(
            f"the corpus has the classes {', '.join(corpus.classes)} and the network {net.classes} classes; set "
            f"net.classes to {len(corpus.classes)}"
        )


def _classifier(config: TrainConfig) -> tuple[TextClassifier, str]:
    """A classifier, fresh or with the token embeddings of a base, and a hash of the base's weights."""
    net = TextClassifier(config_of(TextClassifierConfig, config.net, "net"), config.seed)
    if not config.base:
        return net, ""
    if config.task == "classifier":
        raise InvalidInput("a judge shares nothing with the nets it judges; leave `base` out, or train a potential")
    base, _ = _base(config.base)
    _check_agree(base.config, net.config, ("vocabulary",))
    with torch.no_grad():
        known = _narrowed(base.vocab_embed.embedding, net.config.hidden)  # with the mask, if the base has one
        net.vocab_embed.embedding[: len(known)] = known
    return net, weights_fingerprint(base)


def _narrowed(vectors: Tensor, width: int) -> Tensor:
    """Vectors [n, m] in `width` dimensions, their leading principal ones, which keep inner products best."""
    if width > vectors.shape[1]:
        raise InvalidInput(
            f"the base has hidden {vectors.shape[1]}, the network {width}; take a base as wide, or leave `base` out"
        )
    if width == vectors.shape[1]:
        return vectors
    _, axes = torch.linalg.eigh(vectors.double().T @ vectors.double())
    axes = axes[:, -width:].flip(1)
    axes = axes * axes.sum(0).sign()  # so that machines that choose other signs start alike
    return (vectors.double() @ axes).to(vectors.dtype)


def _asked_for_labels(net: nn.Module, batch: TrainingBatch) -> Tensor:
    noised = batch.noised
    log_p = normalised(net(noised.x, noised.noise.t.float()).float(), net)
    return -log_p.gather(-1, batch.label[:, None])[:, 0]


def _diffusion(config: TrainConfig, corpus: Corpus, device: torch.device | str) -> TrainingTask:
    """A diffusion network, fresh or started from another's weights, conditioned on labels or on prompts."""
    net, process, before = _network(config)
    if net.config.masked != isinstance(process, Masking):
        raise InvalidInput(f"net.masked is {net.config.masked} and the process {config.process}; they must agree")
    net = placed(_adapted(net, config) if config.lora else net, device)
    prompts = encoded_prompts(corpus, config.prompts).to(device) if config.prompts else None
    read = _by_label(net) if prompts is None else _by_prompt(prompts)
    answer, sums = _answer(read), torch.compile(_sums, dynamic=True) if config.compile else _sums

    def loss(net: nn.Module, batch: TrainingBatch) -> Tensor:
        if isinstance(process, Masking):
            return _loss_at_masks(process, read, sums, net, batch)
        return score_entropy(process, answer(net, batch.noised, batch.told), batch.noised)

    told, in_order = config.task == "conditional", config.suffix_share > 0
    if in_order and not isinstance(process, Masking):
        raise InvalidInput(f"suffix_share is {config.suffix_share} and {config.base} has no mask; leave it out")
    task = TrainingTask(net, process, loss, answer, told, started_from=before, in_order=in_order)
    if prompts is not None:
        task = replace(task, given=prompts.shape[1], facts={"prompts": prompts.tolist()})
    if config.lora:
        task = replace(task, plain=merged, leave=lambda folder: save_adapter(net, folder / "adapter"))
    return task


def _adapted(net: SEDD, config: TrainConfig) -> SEDD:
    unknown = sorted(config.lora.keys() - {"rank", "alpha"})
    if unknown:
        raise InvalidInput(f"lora has {', '.join(unknown)}; give rank and alpha")
    return adapt(net, config.lora.get("rank", 8), config.lora.get("alpha", 16), config.seed)


def _network(config: TrainConfig) -> tuple[SEDD, Masking | Uniform, str]:
    """A network, fresh or with the weights of the base, its process, and a hash of those weights."""
    if not config.base:
        return SEDD(config_of(SEDDConfig, config.net, "net"), config.seed), config.noising(), ""
    base, process = _base(config.base)
    sizes = config_of(SEDDConfig, {**asdict(base.config), **config.net}, "net")
    _check_agree(base.config, sizes, tuple(name for name in asdict(sizes) if name != "classes"))
    net = SEDD(sizes, config.seed)
    weights = base.state_dict()
    if sizes.classes and sizes.classes != base.config.classes:  # new labels, not trained yet
        weights["label.weight"] = torch.zeros(sizes.classes + 1, sizes.condition)
    net.load_state_dict({name: tensor for name, tensor in weights.items() if name in net.state_dict()})
    return net, process, weights_fingerprint(base)


def _deft(config: TrainConfig, corpus: Corpus, device: torch.device | str) -> TrainingTask:
    """A guide whose log-ratios are added to the log-scores of a frozen network, which is given the withheld label."""
    if not config.base:
        raise InvalidInput("deft trains a guide for a frozen network; name its folder as `base`")
    sizes, (base, process) = config_of(SEDDConfig, config.net, "net"), _base(config.base)
    if sizes.scale_by_sigma:
        raise InvalidInput("a guide answers with log-ratios, which no noise scales; set net.scale_by_sigma to false")
    _check_agree(base.config, sizes, ("vocabulary", "length", "masked"))
    guide, base = placed(SEDD(sizes, config.seed), device), placed(base, device).eval().requires_grad_(False)
    asked, guided = quick(base, config.compile), _answer(_by_label(guide))
    frozen, withheld = _answer(_by_label(base)), torch.tensor(corpus.withheld, device=device)

    def scores(guide: nn.Module, noised: Noised, told: Tensor) -> Tensor:
        with torch.no_grad():
            below = frozen(asked, noised, withheld[told])
        return below + guided(guide, noised, told)

    def loss(guide: nn.Module, batch: TrainingBatch) -> Tensor:
        return score_entropy(process, scores(guide, batch.noised, batch.told), batch.noised)

    return TrainingTask(guide, process, loss, scores, base=base)


def _base(folder: str) -> tuple[SEDD, Masking | Uniform]:
    """The base network that the configuration names, and its process."""
    found = load(folder)
    if not isinstance(found, Text) or not isinstance(found.process, Masking | Uniform):
        raise InvalidInput(f"{folder} holds no SEDD net; name the folder of one as `base`")
    return found.net, found.process


def _check_agree(base: Any, own: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(base, name) != getattr(own, name):
            raise InvalidInput(
                f"the base has {name} {getattr(base, name)}, the network {getattr(own, name)}; they must agree"
            )


_Read = Callable[[Noised, Tensor], tuple[Tensor, Tensor | None]]  # what a network is given: tokens, perhaps a label


def _by_label(net: SEDD) -> _Read:
    """Conditioning on labels by an embedding; a network without classes gets none."""
    return lambda noised, told: (noised.x, told if net.config.classes else None)


def _by_prompt(prompts: Tensor) -> _Read:
    """Conditioning on labels by a prompt before the text, which is never noised and does not enter the loss."""
    return lambda noised, told: (torch.cat([prompts[told], noised.x], -1), None)


def _answer(read: _Read) -> LogScores:
    """The log-scores of every token, without the mask, at each site of the text."""

    def answer(net: Any, noised: Noised, told: Tensor) -> Tensor:
        x, label = read(noised, told)
        return net(x, noised.noise.sigma.float(), label)[:, -noised.x.shape[1] :, : net.config.vocabulary]

    return answer


def _loss_at_masks(process: Masking, read: _Read, sums: Any, net: Any, batch: TrainingBatch) -> Tensor:
    """The score entropy by a head that is asked at the masked sites alone, [B]."""
    noised, linear = batch.noised, net.output_layer.linear
    sites, sigma = (noised.x == process.mask).nonzero(as_tuple=True), noised.noise.sigma.float()
    x, label = read(noised, batch.told)
    hidden = net.trunk(x, sigma, label)[:, -noised.x.shape[1] :][sites]
    size = net.config.vocabulary
    log_total, true = sums(hidden, linear.weight[:size], linear.bias[:size], noised.x0[sites])
    less = net.scaling(sigma)[sites[0]]
    return masked_score_entropy(sites, (log_total - less).exp(), true - less, noised)


def _sums(hidden: Tensor, weight: Tensor, bias: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
    """Of the logits of each site, [n] in float32: the log of the sum of their exponentials, and that of its token."""
    logits = functional.linear(hidden, weight).float() + bias.float()
    own = torch.arange(len(weight), device=token.device) == token[:, None]
    return logits.logsumexp(-1), torch.where(own, logits, 0.0).sum(-1)


def encoded_prompts(corpus: Corpus, prompts: Mapping[str, Any]) -> Tensor:
    """int64 [classes + 1, P]: the prompt of each class, left-padded with end tokens; the last is for no class."""
    unknown = sorted(prompts.keys() - set(corpus.classes))
    if unknown:
        raise InvalidInput(f"prompts for {', '.join(unknown)}; the corpus has {', '.join(corpus.classes)}")
    words = {name: corpus.tokenizer.encode(normalise(str(text))) for name, text in prompts.items()}
    longest = max(map(len, words.values()))
    rows = [words.get(name, []) for name in (*corpus.classes, "")]
    return torch.tensor([[corpus.end] * (longest - len(row)) + row for row in rows])


def _both(one: Callable[[Path], None], other: Callable[[Path], None]) -> Callable[[Path], None]:
    def leave(folder: Path) -> None:
        one(folder)
        other(folder)

    return leave
