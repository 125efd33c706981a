"""Folders of transformers, and what is refused: one clear line each, before any work."""

import json
import sys
import time

import pytest
import torch

import truetilt as tt
from public_nets import WORDS, bert, bert_tokenizer, esm2, esm_tokenizer, fast, modernbert, seeded

transformers = pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")

CODE = """
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput


class TinyConfig(PretrainedConfig):
    model_type = "%(kind)s"

    def __init__(self, vocab_size=%(size)d, d_model=8, max_sequence_length=32, model_length=32, **more):
        super().__init__(**more)
        self.vocab_size, self.d_model, self.max_sequence_length = vocab_size, d_model, max_sequence_length


class %(name)s(PreTrainedModel):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__(config)
        self.wte, self.mix = nn.Embedding(config.vocab_size, config.d_model), nn.Linear(config.d_model, config.d_model)
        self.ff_out = nn.Linear(config.d_model, config.vocab_size)
        self.post_init()

    def forward(self, %(arguments)s):
        h = self.wte(input_ids)
        return MaskedLMOutput(logits=self.ff_out(h + self.mix(h.mean(1, keepdim=True))))
"""


def with_code(folder, kind, name, auto, arguments):
    """A folder with code of its own, as LLaDA, Dream, MDLM and UDLM are published."""
    source = CODE % {"kind": kind, "name": name, "arguments": arguments, "size": len(WORDS)}
    module = f"modeling_{kind.lower()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    space = {"__name__": module}
    exec(compile(source, module, "exec"), space)
    net = seeded(lambda: space[name](space["TinyConfig"]()))
    net.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"auto_map": {"AutoConfig": f"{module}.TinyConfig", auto: f"{module}.{name}"}, "architectures": [name]}
    (folder / "config.json").write_text(json.dumps(settings))
    return net


@pytest.fixture(scope="module")
def esm_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("esm2")
    esm2().save_pretrained(folder)
    esm_tokenizer(folder).save_pretrained(folder)
    return folder


def sampled(bundle):
    return bundle.decode(tt.sample(bundle.model(length=4), 0, particles=3, num_inference_steps=4).particles)


def test_a_folder_is_the_net_it_holds(esm_folder):
    bundle = tt.from_transformers(esm_folder)
    assert bundle.public.family.name == "ESM2"
    assert sampled(bundle) == sampled(tt.from_transformers(esm2(), esm_tokenizer(esm_folder)))
    half = tt.from_transformers(str(esm_folder), dtype=torch.bfloat16)
    assert {weights.dtype for weights in half.public.net.parameters()} == {torch.bfloat16}
    assert all(len(text) == 4 for text in sampled(half))


def test_a_folder_of_dplm_is_read_as_esm2s_weights(esm_folder, tmp_path):
    for file in esm_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["EsmForDPLM"]}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    bundle = tt.from_transformers(tmp_path)
    assert bundle.public.family.name == "DPLM"
    assert sampled(bundle) == sampled(tt.from_transformers(esm_folder))


@pytest.mark.parametrize("build", [bert, modernbert])
def test_folders_of_bert_and_modernbert(build, tmp_path):
    build().save_pretrained(tmp_path)
    bert_tokenizer().save_pretrained(tmp_path)
    assert len(sampled(tt.from_transformers(tmp_path))) == 3


@pytest.mark.parametrize(
    ("build", "head"),
    [
        (lambda: bert().bert, "cls.predictions"),
        (lambda: transformers.BertForSequenceClassification(bert().config), "cls.predictions"),
        (lambda: modernbert().model, "head"),
    ],
)
def test_a_folder_without_the_head_of_a_language_model_is_refused(build, head, tmp_path, caplog):
    build().save_pretrained(tmp_path)
    bert_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(tt.InvalidInput, match=f"without {head}.*saved with its language-model head"):
        tt.from_transformers(tmp_path)
    assert not caplog.records


def test_a_folder_that_lacks_only_what_logits_do_not_depend_on_is_read(esm_folder, tmp_path):
    from safetensors.torch import load_file, save_file

    for file in esm_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(esm_folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "contact_head" not in name}
    assert len(kept) < len(weights)
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert sampled(tt.from_transformers(tmp_path)) == sampled(tt.from_transformers(esm_folder))


@pytest.mark.parametrize(
    ("kind", "name", "auto", "arguments", "more"),
    [
        ("llada", "LLaDAModelLM", "AutoModel", "input_ids=None, attention_mask=None", {"mask": "[MASK]"}),
        ("Dream", "DreamModel", "AutoModel", "input_ids=None, attention_mask=None, position_ids=None", {}),
        ("mdlm", "MDLM", "AutoModelForMaskedLM", "input_ids=None, timesteps=None, return_dict=None", {}),
        ("udlm", "UDLM", "AutoModelForMaskedLM", "input_ids=None, timesteps=None, cond=None", {}),
    ],
)
def test_code_beside_the_weights_runs_only_if_the_user_says_so(
    kind, name, auto, arguments, more, tmp_path, monkeypatch
):
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / kind
    with_code(folder, kind, name, auto, arguments)
    bert_tokenizer().save_pretrained(folder)
    with pytest.raises(
        tt.InvalidInput, match=rf"brings code of its own \(modeling_{kind.lower()}\).*trust_remote_code=True"
    ):
        tt.from_transformers(folder)
    bundle = tt.from_transformers(folder, trust_remote_code=True, **more)
    assert bundle.public.family.name.lower() == kind.lower()
    assert len(sampled(bundle)) == 3


def one_line(error):
    return "\n" not in str(error.value) and len(str(error.value)) < 400


def refused(match, *args, **named):
    with pytest.raises(tt.InvalidInput, match=match) as error:
        tt.from_transformers(*args, **named)
    assert one_line(error)


def test_a_causal_model_is_refused_as_a_net_and_as_a_folder(tmp_path):
    config = transformers.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=32)
    net = seeded(lambda: transformers.GPT2LMHeadModel(config))
    refused("GPT2LMHeadModel is causal.* sees both ways", net, bert_tokenizer())
    net.save_pretrained(tmp_path)
    bert_tokenizer().save_pretrained(tmp_path)
    refused("is a causal model .* left to right", tmp_path)


def test_a_tokenizer_without_a_mask_or_of_another_net_is_refused(esm_folder):
    plain = fast(WORDS, unk_token="[UNK]", pad_token="[PAD]")
    refused("has no mask token", bert(), plain)
    assert tt.from_transformers(bert(), plain, mask="[MASK]", before=(2,), after=(3,)).public.mask == 4
    refused("33 tokens and .* knows 18", bert(), esm_tokenizer(esm_folder))
    refused("18 tokens and .* knows 100", bert(100), bert_tokenizer())
    refused("no token for the amino acid", bert(), bert_tokenizer(), family="ESM2")
    refused("mask is '<hole>'", bert(), bert_tokenizer(), mask="<hole>")
    refused("came without a tokenizer", bert())
    refused("the tokenizer is 3", bert(), 3)


def test_a_prompt_that_does_not_fit_is_refused(esm_folder):
    bundle = tt.from_transformers(esm_folder)
    for prompt, match in (("M" * 23, "reads 24"), ("MK1", "'1', which this net has no token for"), ([], "give a text")):
        with pytest.raises(tt.InvalidInput, match=match) as error:
            bundle.model(prompt, length=4)
        assert one_line(error)
    with pytest.raises(tt.InvalidInput, match="reads 24"):
        bundle.model(length=23)
    with pytest.raises(tt.InvalidInput, match="no classes"):
        bundle.model(length=3, condition=1)
    words = tt.from_transformers(bert(), bert_tokenizer())
    with pytest.raises(tt.InvalidInput, match="no token for"):
        words.model("the zebra", length=3)


def test_what_is_no_net_is_refused(esm_folder, tmp_path):
    refused("the net is 3", 3)
    refused("no folder", tmp_path / "nowhere" / "at" / "all")
    refused("family is 'GPT'", bert(), bert_tokenizer(), family="GPT")
    (tmp_path / "config.json").write_text('{"model_type": "vit", "architectures": ["ViTModel"]}')
    refused("loads as no masked language model", tmp_path)
    (tmp_path / "config.json").write_text((esm_folder / "config.json").read_text())
    refused("cannot be loaded", tmp_path)


JUNK = [0, -1, 1.5, "x", b"x", [None], ["a", 1], {}, object(), torch.zeros(2), int, 10**30, "\ud800", "[MASK:0]", True]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:20])
def test_junk_is_refused_by_name(junk):
    """Nothing but our own errors, whatever is given where."""
    net, tokenizer = bert(), bert_tokenizer()
    bundle = tt.from_transformers(net, tokenizer)
    x = torch.zeros(2, 3, dtype=torch.int64)
    names = ("device", "batch", "dtype", "family", "mask", "before", "after", "draw", "ends", "length", "vocabulary")
    calls = [lambda name=name: tt.from_transformers(net, tokenizer, **{name: junk}) for name in (*names, "classes")]
    calls += [lambda: tt.from_transformers(junk), lambda: tt.from_transformers(net, junk), lambda: bundle.decode(junk)]
    calls += [lambda: bundle.model(junk, length=3), lambda: bundle.model("the", length=junk), lambda: bundle.rows(junk)]
    calls += [lambda: bundle.given("the", length=3, suffix=junk), lambda: bundle.filled(junk, x)]
    calls += [lambda: bundle.filled("the [MASK:3]", junk), lambda: tt.Family("mine", ends=junk, reserved=junk)]
    said = []
    for call in calls:
        try:
            call()
        except tt.TruetiltError as error:
            said.append(str(error))
    assert len(said) > 5
    assert "\n" not in "".join(said)


def test_a_net_that_cannot_read_tokens_says_why(esm_folder):
    refused("Linear cannot be asked about tokens", torch.nn.Linear(2, 2), "ACGT", mask=3, draw="ACG", vocabulary=4)
    refused("takes no cond", bert(), bert_tokenizer(), classes=3)
    refused("takes no timesteps", bert(), bert_tokenizer(), family="MDLM")


def test_without_transformers_a_folder_says_what_to_install(esm_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(r"pip install 'truetilt\[hf\]'", esm_folder)


HUB = {
    "GatedRepoError": r"is gated: accept its terms .*\(hf auth login",
    "RepositoryNotFoundError": "no such repository",
    "LocalEntryNotFoundError": "no network",
    "OfflineModeIsEnabled": "no network",
}


@pytest.mark.parametrize("kind", HUB)
def test_the_hub_says_no_in_one_line(kind, monkeypatch):
    """What huggingface_hub raises for a gated or absent repository and without a network: here raised at once."""
    import huggingface_hub
    from huggingface_hub import errors

    def fails(*args, **named):
        made = getattr(errors, kind)
        error = made.__new__(made)  # what its own constructor wants has changed from release to release
        error.args = ("403 Client Error.\n\nAccess is restricted.",)
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    refused(HUB[kind], "owner/name")


def test_a_string_with_a_slash_or_a_folder_is_where_a_tokenizer_lies(esm_folder, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda hub_id, **how: str(esm_folder))
    expected = sampled(tt.from_transformers(esm_folder))
    for place in ("owner/esm", str(esm_folder), esm_folder):
        assert sampled(tt.from_transformers(esm2(), place)) == expected
    with pytest.raises(tt.InvalidInput, match="there is no folder"):
        tt.from_transformers(esm2(), "./not/here")


@pytest.mark.parametrize("name", ["gpt2", "bert-base-uncased", "esm2_t6_8M_UR50D", "distilgpt2", ""])
def test_a_models_name_is_not_read_as_letters(name):
    with pytest.raises(tt.InvalidInput, match=r"the tokenizer is .*hub id owner/name"):
        tt.from_transformers(bert(), name, mask=6)


def test_letters_with_a_slash_are_letters():
    assert tt.from_transformers(bert(), "CNO/\\=()", mask=9).pieces == tuple("CNO/\\=()")


def _copy(source, folder):
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def _told(folder, file, **values):
    told = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(told | values))


def _whole_numbers(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file({name: weight.long() for name, weight in weights.items()}, folder / "model.safetensors")


def _metadata(folder, value):
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head = json.dumps(json.loads(raw[8 : 8 + size]) | {"__metadata__": value}).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + raw[8 + size :])


def _vocabulary(folder, change):
    path = folder / "vocab.txt"
    path.write_text("\n".join(change(path.read_text().split())))


@pytest.mark.parametrize(
    ("words", "spoil"),
    [
        ("num_hidden_layers is 1,000,000,000 and the", lambda f: _told(f, "config.json", num_hidden_layers=10**9)),
        ("architectures is 5; it must be a list", lambda f: _told(f, "config.json", architectures=5)),
        ("architectures is \\[5\\]", lambda f: _told(f, "config.json", architectures=[5])),
        ("auto_map is 'x'", lambda f: _told(f, "config.json", auto_map="x")),
        ("the mask is token 5 by the net's config and token 32", lambda f: _told(f, "config.json", mask_token_id=5)),
        ("the mask is token -1 by the net's config and", lambda f: _told(f, "config.json", mask_token_id=-1)),
        ("no tokenizer that can be read", lambda f: _told(f, "tokenizer_config.json", model_max_length="x")),
        ("no tokenizer that can be read", lambda f: _told(f, "tokenizer_config.json", cls_token=None)),
        ("are stored as whole numbers", _whole_numbers),
        ("is broken or cut short", lambda f: _metadata(f, [])),
        ("its lines are in another order than", lambda f: _vocabulary(f, sorted)),
        ("has a line of 10,000,000 char", lambda f: _vocabulary(f, lambda words: [*words, "x" * 10_000_000])),
    ],
)
def test_a_folder_that_says_what_cannot_be_is_refused_at_once(esm_folder, tmp_path, words, spoil):
    folder = _copy(esm_folder, tmp_path)
    tt.from_transformers(folder)
    spoil(folder)
    begun = time.process_time()
    with pytest.raises(tt.InvalidInput, match=words):
        tt.from_transformers(folder)
    assert time.process_time() - begun < 5


def test_a_vocabulary_at_odds_with_the_config_alone_is_refused(esm_folder, tmp_path):
    """Old folders have no list of special tokens; config.json still says where padding and mask stand."""
    folder = _copy(esm_folder, tmp_path)
    (folder / "tokenizer_config.json").unlink()
    tt.from_transformers(folder)
    _vocabulary(folder, lambda words: [words[1], words[0], *words[2:]])
    with pytest.raises(tt.InvalidInput, match=r"'<pad>' as token 0 and config.json as token 1"):
        tt.from_transformers(folder)


def test_a_word_without_a_token_is_named():
    bundle = tt.from_transformers(bert(), bert_tokenizer())
    with pytest.raises(tt.InvalidInput, match="the text holds 'zebra', which the tokenizer has no token for"):
        bundle.model("good zebra film" + " good" * 9, length=2)
    with pytest.raises(tt.InvalidInput, match=r"give one prompt.*of several prompts give each with its own rows"):
        bundle.filled(["good", "bad"], torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(tt.InvalidInput, match=r"give one prompt.*of several prompts give each with its own rows"):
        bundle.filled(["good", "bad"])
    with pytest.raises(tt.InvalidInput, match="the row is None; give tokens"):
        bundle.filled("good")
