"""Small networks of public families on random weights: the real class where transformers has it, else a stand-in with
the documented signature; and tokenizers in the real file formats."""

from types import SimpleNamespace

import torch
from torch import nn

ESM = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "the", "film", "was", "good", "bad", "##ly", "and"]
WORDS += ["we", "left", "early", ".", ","]
PLAIN = ["[UNK]", "<unused1>", *(word for word in WORDS if word[0] not in "[#")]
SAFE = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "C", "c", "N", "O", "n", "(", ")", "=", "1", "2", ".", "F", "Cl"]
KNOWN, PLAINLY = len(WORDS), len(PLAIN) + 7
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}


def seeded(build, seed=0):
    """A net built under a seed, with weights large enough to matter, the global generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = build().eval()
        for tensor in net.parameters():
            nn.init.normal_(tensor, std=0.4)
    return net


def esm_tokenizer(folder):
    from transformers import EsmTokenizer

    (folder / "vocab.txt").write_text("\n".join(ESM))
    return EsmTokenizer(str(folder / "vocab.txt"))


def fast(tokens, **special):
    """A tokenizer of whole words by the tokenizers library, as tokenizer.json holds it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: k for k, token in enumerate(tokens)}
    if any(token.startswith("##") for token in tokens):
        inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        inner.pre_tokenizer, inner.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    else:
        inner = Tokenizer(models.WordLevel(vocabulary, unk_token=special.get("unk_token", tokens[0])))
        inner.pre_tokenizer = pre_tokenizers.Whitespace()
    if "cls_token" in special:
        ends = [(special[name], vocabulary[special[name]]) for name in ("cls_token", "sep_token")]
        inner.post_processor = processors.BertProcessing(ends[1], ends[0])
    return PreTrainedTokenizerFast(tokenizer_object=inner, **special)


def bert_tokenizer(tokens=WORDS):
    return fast(tokens, cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]", pad_token="[PAD]", unk_token="[UNK]")


def safe_tokenizer():
    """SAFE tokens, as GenMol has them: pieces of SMILES, padding 3, and rows framed by its BOS and EOS."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = SAFE + [f"[{k}*]" for k in range(1880 - len(SAFE))]
    inner = Tokenizer(models.WordLevel({token: k for k, token in enumerate(tokens)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"Cl|\[[^\]]+\]|."), "isolated")
    names = {"bos_token": "[CLS]", "eos_token": "[SEP]", "mask_token": "[MASK]", "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", **names)


def esm2(**more):
    from transformers import EsmConfig, EsmForMaskedLM

    sizes = {"vocab_size": 33, "max_position_embeddings": 26, "position_embedding_type": "rotary"} | SIZES | more
    config = EsmConfig(**sizes, pad_token_id=1, mask_token_id=32, token_dropout=True)
    return seeded(lambda: EsmForMaskedLM(config))


def dplm():
    """ESM2's network whose answer is a plain dict, as EsmForDPLM's is."""
    from transformers import EsmConfig, EsmForMaskedLM

    class EsmForDPLM(EsmForMaskedLM):
        def forward(self, input_ids, attention_mask=None):
            answer = super().forward(input_ids, attention_mask)
            return {"logits": answer.logits, "last_hidden_state": None}

    sizes = SIZES | {"vocab_size": 33, "max_position_embeddings": 26, "position_embedding_type": "rotary"}
    return seeded(lambda: EsmForDPLM(EsmConfig(**sizes, pad_token_id=1, mask_token_id=32, token_dropout=True)))


def esmc():
    from transformers import EsmcConfig, EsmcForMaskedLM

    sizes = SIZES | {"num_hidden_layers": 1, "max_position_embeddings": 24}
    return seeded(lambda: EsmcForMaskedLM(EsmcConfig(**sizes)))


class Mixing(nn.Module):
    """Features that see all sites both ways, and where each stands; what stand-ins are made of."""

    def __init__(self, tokens, width=12):
        super().__init__()
        self.embed, self.mix, self.place = nn.Embedding(tokens, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, ids, seen=None, noise=0.0):
        h = self.embed(ids) + noise
        seen = torch.ones(ids.shape, device=ids.device) if seen is None else seen.float()
        if seen.dim() == 4:
            seen = seen[:, 0, 0].float()
        near = (h * seen[..., None]).cumsum(1)
        every = near[:, -1:] / seen.sum(1)[:, None, None]
        return (h + self.mix(every) + self.place(near * 0.3)).tanh()


class ESMC(nn.Module):
    """The signature of the package esm: sequence_tokens in, sequence_logits out, no config; a Sequential head."""

    def __init__(self):
        super().__init__()
        self.transformer = Mixing(64)
        self.sequence_head = nn.Sequential(nn.Linear(12, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 64))

    def forward(self, sequence_tokens=None, sequence_id=None):
        logits = self.sequence_head(self.transformer(sequence_tokens))
        return SimpleNamespace(sequence_logits=logits, embeddings=None, hidden_states=None)


class ByteNetLMTime(nn.Module):
    """EvoDiff's signature: tokens and a timestep that it ignores; logits of 31 tokens as a tensor."""

    def __init__(self):
        super().__init__()
        self.embedder, self.decoder = Mixing(31), nn.Linear(12, 31)

    def forward(self, x, y, input_mask=None):
        return self.decoder(self.embedder(x))


class LLaDAModelLM(nn.Module):
    """LLaDA's signature: input_ids and an attention mask; the head is inside the model."""

    def __init__(self, tokens=PLAINLY):
        super().__init__()
        self.config = SimpleNamespace(model_type="llada", vocab_size=tokens, max_sequence_length=32, d_model=12)
        self.model = nn.Module()
        self.model.transformer = nn.ModuleDict({"wte": Mixing(tokens), "ff_out": nn.Linear(12, tokens, bias=False)})

    def forward(self, input_ids=None, inputs_embeds=None, attention_mask=None):
        parts = self.model.transformer
        return SimpleNamespace(logits=parts["ff_out"](parts["wte"](input_ids, attention_mask)))


class DreamModel(LLaDAModelLM):
    """Dream's signature: its mask of attention is of pairs."""

    def __init__(self, tokens=PLAINLY):
        super().__init__(tokens)
        self.config.model_type = "Dream"

    def forward(self, input_ids=None, attention_mask=None, position_ids=None):
        return super().forward(input_ids, attention_mask=attention_mask)


class MDLM(nn.Module):
    """MDLM's signature: tokens and noise in, logits as a tensor; the mask is its last token."""

    def __init__(self, tokens=19, time_conditioning=False):
        super().__init__()
        config = {"model_type": "mdlm", "vocab_size": tokens, "model_length": 20, "hidden_dim": 12}
        self.config = SimpleNamespace(**config, time_conditioning=time_conditioning)
        self.backbone, self.linear = Mixing(tokens), nn.Linear(12, tokens)

    def forward(self, input_ids=None, timesteps=None, output_hidden_states=None, return_dict=None):
        noise = timesteps if self.config.time_conditioning else torch.zeros_like(timesteps)
        return self.linear(self.backbone(input_ids, noise=noise[:, None, None]))


class UDLM(nn.Module):
    """UDLM's signature: tokens, noise and a class; no mask."""

    def __init__(self, tokens=KNOWN, classes=3):
        super().__init__()
        config = {"model_type": "udlm", "vocab_size": tokens, "model_length": 20, "hidden_dim": 12}
        self.config = SimpleNamespace(**config, num_classes=classes)
        self.backbone, self.linear, self.told = Mixing(tokens), nn.Linear(12, tokens), nn.Embedding(classes + 1, 12)

    def forward(self, input_ids, timesteps, cond=None):
        noise = timesteps[:, None, None] * 0.1
        told = 0.0 if cond is None else self.told(cond)[:, None]
        return SimpleNamespace(logits=self.linear(self.backbone(input_ids, noise=noise) + told))


def bert(tokens=KNOWN, **more):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=tokens, **SIZES | {"max_position_embeddings": 24} | more)
    return seeded(lambda: BertForMaskedLM(config))


def modernbert(tokens=KNOWN + 3):
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    special = {f"{name}_token_id": k for name, k in (("pad", 0), ("cls", 2), ("sep", 3), ("bos", 2), ("eos", 3))}
    config = ModernBertConfig(
        vocab_size=tokens, **SIZES, **special, max_position_embeddings=24, global_attn_every_n_layers=1
    )
    return seeded(lambda: ModernBertForMaskedLM(config))


def llada_tokenizer():
    """Without a named mask and without a frame, as LLaDA's."""
    more = ["<|endoftext|>", "<|eot_id|>", "<|mdm_mask|>", "<|reserved_token_0|>", "<pad>"]
    special = {"pad_token": "<pad>", "eos_token": "<|endoftext|>", "unk_token": "[UNK]"}
    return fast(PLAIN + more, **special)


def dream_tokenizer():
    more = ["<|endoftext|>", "<|im_end|>", "<|mask|>", "<|beginoftext|>"]
    special = {"pad_token": "<|endoftext|>", "bos_token": "<|beginoftext|>", "unk_token": "[UNK]"}
    return fast(PLAIN + more, **special)


def gpt2_like():
    """No mask, no frame: MDLM's mask is one token more than the tokenizer has."""
    return fast([*PLAIN, "<|endoftext|>"], eos_token="<|endoftext|>", unk_token="[UNK]")


def families(folder):
    """Every family by name: its network, its tokenizer and what else is said of it."""
    return {
        "ESM2": (esm2(), esm_tokenizer(folder)),
        "DPLM": (dplm(), esm_tokenizer(folder)),
        "ESM-C": (esmc(), esm_tokenizer(folder)),
        "ESM-C of esm": (seeded(ESMC), esm_tokenizer(folder)),
        "EvoDiff": (seeded(ByteNetLMTime), None),
        "BERT": (bert(), bert_tokenizer()),
        "ModernBERT": (modernbert(), bert_tokenizer()),
        "GenMol": (bert(1880, pad_token_id=3), safe_tokenizer()),
        "LLaDA": (seeded(LLaDAModelLM), llada_tokenizer()),
        "Dream": (seeded(DreamModel), dream_tokenizer()),
        "MDLM": (seeded(lambda: MDLM(len(gpt2_like()) + 1)), gpt2_like()),
        "UDLM": (seeded(UDLM), bert_tokenizer()),
    }
