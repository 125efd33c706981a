"""Public masked networks in one line: every family, on random weights, against direct calls of the network.

False alarms: the comparison with an enumerated law makes at most 20 z-scores and fails by chance with probability 1e-8.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

import truetilt as tt
from public_nets import (
    MDLM,
    PLAIN,
    WORDS,
    LLaDAModelLM,
    Mixing,
    bert_tokenizer,
    families,
    fast,
    gpt2_like,
    llada_tokenizer,
    seeded,
)  # fmt: skip
from truetilt.core.logits import LazyRows
from truetilt.models.alphabet import special_ids
from truetilt.models.families import FAMILIES
from truetilt.testing.targets import masses
from truetilt.testing.verdicts import common, z_limit, z_scores

pytest.importorskip("transformers", reason="pip install 'truetilt[hf]'")

NAMES = ("ESM2", "DPLM", "ESM-C", "ESM-C of esm", "EvoDiff", "BERT", "ModernBERT", "GenMol", "LLaDA", "Dream", "MDLM")
each_masked = pytest.mark.parametrize("name", NAMES)
PROMPT = {"ESM2": "MK", "DPLM": "MK", "ESM-C": "MK", "ESM-C of esm": "MK", "EvoDiff": "MK", "GenMol": "CN"}
D = 5


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    return families(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def bundles(nets):
    return {name: tt.from_transformers(net, tokenizer) for name, (net, tokenizer) in nets.items()}


def half_masked(bundle, rows=3):
    x = torch.randint(0, bundle.vocabulary, (rows, D), generator=torch.Generator().manual_seed(1))
    x[:, ::2] = bundle.vocabulary
    return x


DIRECT = {  # each family as its authors call it
    "DPLM": lambda net, ids: net(ids)["logits"],
    "ESM-C of esm": lambda net, ids: net(sequence_tokens=ids).sequence_logits,
    "EvoDiff": lambda net, ids: net(ids, torch.zeros(len(ids))),
    "Dream": lambda net, ids: torch.cat([net(ids).logits[:, :1], net(ids).logits[:, :-1]], 1),
    "MDLM": lambda net, ids: net(ids, torch.zeros(len(ids))),
}
MASKS = {
    "ESM2": 32,
    "DPLM": 32,
    "ESM-C": 32,
    "ESM-C of esm": 32,
    "EvoDiff": 28,
    "BERT": 4,
    "ModernBERT": 4,
    "GenMol": 4,
}
FRAMES = {"LLaDA": ([], []), "EvoDiff": ([], []), "MDLM": ([], []), "BERT": ([2], [3]), "ModernBERT": ([2], [3])}


def test_every_family_is_recognised(bundles):
    for name, bundle in bundles.items():
        assert bundle.public.family.name == name.removesuffix(" of esm")
    assert {family.name for family in FAMILIES} - {bundle.public.family.name for bundle in bundles.values()} == {
        "RoBERTa"
    }


@torch.no_grad()
@each_masked
def test_base_and_condition_are_the_nets_own_answers(nets, bundles, name):
    """To 1e-6, by rows of ids written out here: a frame, a prompt (masked for the base), tokens and masks."""
    net, bundle = nets[name][0].double(), bundles[name]
    tokenizer, public = bundle.public.alphabet.tokenizer, bundle.public
    text = PROMPT.get(name, "the film")
    pieces = list(text) if name in PROMPT else text.split()
    prompt = [tokenizer.get_vocab()[piece] for piece in pieces]
    mask = MASKS.get(name, {"LLaDA": len(PLAIN) + 2, "Dream": len(PLAIN) + 2, "MDLM": len(PLAIN) + 1}.get(name))
    before, after = FRAMES.get(
        name, ([len(PLAIN) + 3], []) if name == "Dream" else ([1], [2]) if name == "GenMol" else ([0], [2])
    )
    model, x = bundle.model(text, length=D), half_masked(bundle)
    own = torch.tensor([*public.alphabet.ids, mask])[x]
    ask = DIRECT.get(name, lambda net, ids: net(ids).logits)
    for score, seen in ((model.base, [mask] * len(prompt)), (model.conditional, prompt)):
        ids = torch.cat(
            [torch.tensor(before + seen).long().expand(3, -1), own, torch.tensor(after).long().expand(3, -1)], 1
        )
        logits = ask(net, ids)[:, len(before) + 2 : len(before) + 2 + D, list(public.alphabet.ids)]
        expected = logits.log_softmax(-1)[x == bundle.vocabulary]
        found = model.process.posterior(score(x, 0.5), x, 0.5).dense()[x == bundle.vocabulary]
        assert ((found - expected).abs() / expected.abs().clamp(min=1.0)).max() < 1e-6  # answers are float32
    net.float()


@torch.no_grad()
def test_udlm_is_told_the_noise_of_all_its_tokens(nets, bundles):
    """Noise is uniform over the drawable tokens here and over all of them there; the class withheld is number 3."""
    net, bundle = nets["UDLM"][0].double(), bundles["UDLM"]
    model, ids = bundle.model(length=D, condition=1), list(bundle.public.alphabet.ids)
    process, x = model.process, half_masked(bundle) % bundle.vocabulary
    sigma = torch.tensor([process.sigma(0.4)] * 3).double()
    told = torch.log1p(torch.expm1(sigma) * len(WORDS) / bundle.vocabulary)
    rows = torch.cat([torch.full((3, 1), 2), torch.tensor(ids)[x], torch.full((3, 1), 3)], 1)
    for score, label in ((model.base, 3), (model.conditional, 1)):
        logits = net(rows, told, torch.full((3,), label)).logits[:, 1:-1, ids]
        expected = process.score_given_others(tt.SiteLogits.of(logits.log_softmax(-1)), x, 0.4).dense()
        torch.testing.assert_close(score(x, 0.4).dense().double(), expected, atol=1e-5, rtol=1e-5)
    net.float()
    with pytest.raises(tt.InvalidInput, match="takes no prompt"):
        bundle.model("the film", length=3)


def test_the_noise_that_udlm_is_told_keeps_its_posterior():
    """Four tokens of which data has three: under the noise told, Bayes' rule over four is Bayes' rule over three."""
    sigma, prior = torch.tensor(0.7).double(), torch.tensor([0.5, 0.3, 0.2]).double()
    told = torch.log1p(torch.expm1(sigma) * 4 / 3)

    def posterior(noise, size):
        other = -torch.expm1(-noise) / size
        law = prior * (other + torch.exp(-noise) * (torch.arange(3) == 1))
        return law / law.sum()

    torch.testing.assert_close(posterior(told, 4), posterior(sigma, 3))
    assert (posterior(sigma, 4) - posterior(sigma, 3)).abs().max() > 0.01


@pytest.mark.parametrize("name", [*NAMES, "UDLM"])
def test_nothing_special_is_ever_drawn_and_strings_come_out(bundles, name):
    bundle = bundles[name]
    alphabet = bundle.public.alphabet
    forbidden = {bundle.public.mask, *bundle.public.before, *bundle.public.after, *special_ids(alphabet.tokenizer)}
    assert not (forbidden - alphabet.ends) & set(alphabet.ids)
    if name == "UDLM":
        result = tt.sample(bundle.model(length=D, condition=0), 1.0, particles=16, num_inference_steps=8)
    else:
        result = tt.reveal(bundle.model(PROMPT.get(name, "the film"), length=D), 2.0, particles=16)
    assert int(result.particles.max()) < bundle.vocabulary
    strings = bundle.decode(result.particles)
    assert len(strings) == 16
    assert all(isinstance(string, str) for string in strings)
    assert not any(token in string for string in strings for token in ("[", "<") if name != "GenMol")
    if bundle.form == "protein":
        assert all(len(string) == D and set(string) <= set("ACDEFGHIKLMNPQRSTVWY") for string in strings)
        assert bundle.fasta(result.particles).startswith(f">sample_1\n{strings[0]}\n")
        assert torch.equal(bundle.rows(strings), result.particles[0])
        assert bundle.decode(result.particles[0, 0].tolist()) == strings[0]
    assert bundle.written(strings)[0] == {"protein": "fasta", "molecule": "smi"}.get(bundle.form, "txt")
    assert bundle.view.tile(result.particles[0, 0].numpy(), None)


def test_esm2_all_masked_is_no_nan_and_needs_its_frame(nets):
    net, tokenizer = nets["ESM2"]
    bundle = tt.from_transformers(net, tokenizer)
    answer = bundle.model(length=D).base(torch.full((2, D), 20), 1.0).dense()
    assert answer.isfinite().all()
    assert net(torch.full((1, D), 32)).logits.isnan().all()  # what the frame is for
    with pytest.raises(tt.InvalidInput, match=r"NaN .* frame"):
        tt.from_transformers(net, tokenizer, before=(), after=(), draw=["A", "C"], length=1)


def test_a_reward_over_strings_steers_in_one_line(bundles):
    bundle = bundles["ESM2"]
    reward = tt.Reward(lambda strings: [text.count("W") for text in strings], tokenizer=bundle)
    result = tt.steer(bundle.model(length=4), reward, 3.0, calls=300, seed=0)
    draws = bundle.decode(result.draw(200, 0))
    plain = bundle.decode(tt.sample(bundle.model(length=4), 0, particles=200, num_inference_steps=4).particles)
    assert sum(text.count("W") for text in draws) > 2 * sum(text.count("W") for text in plain)


def test_gaps_are_strings(bundles):
    bundle = bundles["BERT"]
    text = "the [MASK:2] was [mask] ."
    model = bundle.model(text)
    result = tt.reveal(model, 1.5, particles=6)
    assert result.particles.shape == (1, 6, 3)
    for filled in bundle.filled(text, result.particles):
        assert filled.startswith("the")
        assert filled.endswith((".", " ."))
    protein = bundles["ESM2"]
    wholes = protein.filled("MK[MASK:3]W", tt.reveal(protein.model("MK[MASK:3]W"), 2.0, particles=4).particles)
    assert all(whole[:2] == "MK" and whole[5] == "W" and len(whole) == 6 for whole in wholes)
    with pytest.raises(tt.InvalidInput, match="leave out length"):
        bundle.model(text, length=3)


def test_given_a_text_the_base_sees_it(bundles):
    bundle = bundles["LLaDA"]
    x = half_masked(bundle)
    told, given = bundle.model("the film", length=D), bundle.given("the film", length=D)
    assert given.conditional is None
    assert torch.equal(given.base(x, 0.5).dense(), told.conditional(x, 0.5).dense())
    assert not torch.allclose(given.base(x, 0.5).dense(), told.base(x, 0.5).dense())


def test_an_end_drawn_in_a_gap_ends_the_gap_and_the_given_text_stays(bundles):
    bundle = bundles["LLaDA"]
    piece = {text.strip(): v for v, text in enumerate(bundle.pieces)}
    end = bundle.public.alphabet.number[min(bundle.public.alphabet.ends)]
    text = "the film [MASK:3] and [MASK:2] early"
    x = torch.tensor([[piece["was"], end, piece["bad"], piece["we"], piece["left"]], [end] * 5])
    assert bundle.filled(text, x) == ["the film was and we left early", "the film and early"]
    assert bundle.filled("the [MASK:5]", x) == ["the was", "the"]
    assert bundle.filled("the", x[0]) == "the was"


def test_a_prompt_that_holds_an_end_stays_whole(bundles):
    bundle = bundles["LLaDA"]
    name = bundle.public.family.ends[0]
    drawn = bundle.rows(["bad"])
    assert bundle.filled(f"the film {name} was", drawn)[0].split() == ["the", "film", name, "was", "bad"]


def test_an_unknown_masked_net_works_from_its_tokenizer_alone():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.out = Mixing(len(WORDS)), nn.Linear(12, len(WORDS))

        def forward(self, tokens):
            return (self.out(self.features(tokens)), None)

    bundle = tt.from_transformers(seeded(Own), bert_tokenizer(), length=12)
    assert bundle.public.family.name == "masked language model"
    assert (bundle.public.before, bundle.public.after, bundle.public.mask, bundle.length) == ((2,), (3,), 4, 10)
    assert tt.sample(bundle.model(length=4), 0, particles=3, num_inference_steps=4).particles.shape == (1, 3, 4)


def test_letters_are_a_tokenizer():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.out = Mixing(5), nn.Linear(12, 5)

        def forward(self, tokens):
            return self.out(self.features(tokens))

    bundle = tt.from_transformers(seeded(Own), "ACGT", mask=4)
    result = tt.reveal(bundle.model("AC", length=4), 2.0, particles=3)
    assert all(len(text) == 4 and set(text) <= set("ACGT") for text in bundle.decode(result.particles))
    assert all(text[:2] == "AC" and len(text) == 6 for text in bundle.filled("AC", result.particles))
    with pytest.raises(tt.InvalidInput, match="give length="):
        bundle.model("AC")


# ------------------------------------------------------------------------------------------------ heads and batches


@pytest.mark.parametrize("name", [*NAMES, "UDLM"])
def test_the_head_runs_only_where_it_is_read(bundles, name):
    bundle = bundles[name]
    head = bundle.public.head
    assert head is not None
    model, whole = bundle.model(length=D), replace(bundle, public=replace(bundle.public, head=None)).model(length=D)
    x = half_masked(bundle) % model.process.states
    read = x == bundle.vocabulary if name != "UDLM" else torch.ones_like(x, dtype=torch.bool)
    one, two = (found.base(x, 0.5).dense()[read] for found in (model, whole))
    torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)
    if name == "UDLM":
        return
    sizes, answer = [], model.base(x, 0.5)
    handle = head.module.register_forward_hook(lambda module, args, out: sizes.append(out[..., 0].numel()))
    assert isinstance(answer.store, LazyRows)
    answer.at(torch.tensor([[0], [2], [4]]))
    handle.remove()
    assert sizes == [0, 64]  # the trunk's pass, no site; then a block of rows for three sites


def test_a_head_that_is_followed_by_something_is_not_split_off():
    class Scaled(LLaDAModelLM):
        def forward(self, input_ids=None, attention_mask=None):
            answer = super().forward(input_ids, attention_mask=attention_mask)
            answer.logits = answer.logits * 0.5
            return answer

    net = seeded(Scaled)
    bundle = tt.from_transformers(net, llada_tokenizer())
    assert bundle.public.head is None
    x = torch.full((1, D), bundle.vocabulary)
    logits = net(torch.full((1, D), bundle.public.mask)).logits[..., list(bundle.public.alphabet.ids)]
    found = bundle.process.posterior(bundle.model(length=D).base(x, 0.5), x, 0.5).dense()
    torch.testing.assert_close(found, logits.log_softmax(-1), atol=1e-5, rtol=1e-5)


def test_base_and_condition_are_one_batch(bundles):
    bundle = bundles["LLaDA"]
    rows = []
    handle = bundle.public.net.register_forward_pre_hook(
        lambda net, args, named: rows.append(len(named["input_ids"])), with_kwargs=True
    )
    result = tt.reveal(bundle.model("the film", length=D), 2.0, particles=8)
    handle.remove()
    assert rows == [16] * D
    assert result.spent.evaluations == 2 * 8 * D


@pytest.mark.parametrize("name", ["BERT", "LLaDA", "ESM2"])
def test_chunks_change_no_bit(bundles, name):
    model = bundles[name].model(PROMPT.get(name, "the film"), length=D)
    one, two = (tt.reveal(model, 2.0, particles=37, chunk=chunk) for chunk in (None, 5))
    assert torch.equal(one.particles, two.particles)
    assert torch.equal(one.log_weights, two.log_weights)


def test_fewer_rows_are_asked_at_a_time_where_memory_is_short(nets, monkeypatch):
    net, tokenizer = nets["BERT"]
    module = "truetilt.models.from_transformers.free_bytes"
    assert tt.from_transformers(net, tokenizer).batch == 16
    monkeypatch.setattr(module, lambda device: 4 * 5 * 24 * (8 * 16 + 4 * 20) * 4)  # five rows in a quarter of it
    assert tt.from_transformers(net, tokenizer).batch == 5
    monkeypatch.setattr(module, lambda device: 0)
    assert tt.from_transformers(net, tokenizer).batch == 1
    assert tt.from_transformers(net, tokenizer, batch=7).batch == 7


def test_one_batch_gives_the_answers_of_two(bundles):
    bundle = bundles["BERT"]
    model, x = bundle.model("the film", length=D), half_masked(bundle)
    from truetilt.core.evaluation import Batch, ask

    batch = Batch(x)
    base, conditional = ask(model.base, batch, 0.5), ask(model.conditional, batch, 0.5)
    assert torch.equal(conditional.dense(), model.conditional(x, 0.5).dense())
    assert torch.equal(base.dense(), model.base(x, 0.5).dense())


@pytest.mark.parametrize("name", ["BERT", "ModernBERT", "ESM2", "ESM-C", "LLaDA", "Dream"])
def test_prompts_of_unequal_length_agree_with_unpadded_calls(nets, name):
    net, tokenizer = nets[name]
    bundle = tt.from_transformers(net.double(), tokenizer)
    prompts = ["M", "MKV"] if bundle.form == "protein" else ["the", "the film was"]
    model, x = bundle.model(prompts, length=D), half_masked(bundle, 4)
    for found, part in ((model.base, "base"), (model.conditional, "conditional")):
        alone = [getattr(bundle.model(prompt, length=D), part)(x[k : k + 2], 0.5).dense()
                 for k, prompt in ((0, prompts[0]), (2, prompts[1]))]  # fmt: skip
        read = x == bundle.vocabulary
        torch.testing.assert_close(found(x, 0.5).dense()[read], torch.cat(alone)[read], atol=1e-6, rtol=0)
    result = tt.reveal(model, 2.0, particles=3, populations=2)
    assert result.particles.shape == (2, 3, D)
    net.float()


@pytest.mark.parametrize("names", [{}, {"sep_token": "[SEP]"}, {"cls_token": "[CLS]"}, {"eos_token": "[SEP]"}])
def test_the_frame_is_where_the_tokenizer_puts_it_whatever_it_names(nets, names):
    from transformers import PreTrainedTokenizerFast

    net, whole = nets["BERT"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=whole.backend_tokenizer, mask_token="[MASK]", unk_token="[UNK]", **names
    )
    public = tt.from_transformers(net, tokenizer).public
    assert (public.before, public.after) == ((2,), (3,))


def test_equal_states_of_several_prompts_are_not_one_question(bundles):
    model = bundles["ESM2"].model(["AC", "ACD"], length=D)
    with pytest.raises(tt.InvalidInput, match="several conditions"):
        tt.Distinct(model.conditional)
    tt.Distinct(bundles["ESM2"].model("AC", length=D).conditional)


@pytest.mark.parametrize("populations", [{}, {"populations": 3}])
def test_populations_that_cannot_be_dealt_to_the_prompts_are_refused_before_the_net_is_asked(
    bundles, populations, monkeypatch
):
    bundle = bundles["ESM2"]
    models = [bundle.model(["MK", "W" * 16], length=1), bundle.given(["MK", "W" * 16], length=1)]
    monkeypatch.setattr(bundle.public.net, "forward", lambda *args, **named: pytest.fail("the net was asked"))
    for call in (
        lambda: tt.reveal(models[0], alpha=8.0, particles=4, seed=0, **populations),
        lambda: tt.sample(models[0], 2.0, particles=4, **populations),
        lambda: tt.sample(models[1], 0, particles=4, **populations),
    ):
        with pytest.raises(tt.InvalidInput, match="give populations=, a multiple of 2"):
            call()
    with pytest.raises(tt.InvalidInput, match=r"2 conditions .* call it for each"):
        tt.steer(models[0], alpha=2.0, evaluations=500)


def test_the_last_look_at_several_prompts_asks_each_particle_under_its_own(bundles):
    model = bundles["ESM2"].model(["MK", "W" * 16], length=1)
    for populations in (2, 4, 34):
        result = tt.reveal(model, alpha=60.0, particles=4, populations=populations, seed=0)
        measured = result.settings["measured"]
        assert measured["log_ratio"] * 59 > 2
        assert measured["retold"] == pytest.approx(0, abs=1e-5)  # a single site has one order


def test_rows_that_cannot_be_padded_are_refused(bundles):
    with pytest.raises(tt.InvalidInput, match="without an attention mask"):
        bundles["MDLM"].model(["the", "the film"], length=3)


def test_a_net_that_reads_the_noise_is_told_what_fits_its_masks():
    """MDLM with time: a visible prompt leaves fewer masks than the time says."""
    net = seeded(lambda: MDLM(len(gpt2_like()) + 1, time_conditioning=True))
    bundle = tt.from_transformers(net, gpt2_like())
    told = []
    handle = net.register_forward_pre_hook(
        lambda n, args, named: told.append(float(named["timesteps"][0])), with_kwargs=True
    )
    model = bundle.model("the film was", length=3)
    x = torch.full((2, 3), bundle.vocabulary)
    for score in (model.base, model.conditional):
        score(x, 1.0).dense()
    handle.remove()
    schedule = bundle.process.schedule
    half = bundle.process.time_masked(6, 3)
    assert told == pytest.approx([float(schedule(1.0).value), float(schedule(half).value)], rel=1e-4)


# ------------------------------------------------------------------------------------------------ an exact answer


class Exact(nn.Module):
    """Exact conditionals of a law over rows of three letters between a frame; without the frame, those of another law.

    With `late` its logits stand at the site before, as Dream's do. Letters are its tokens 4 to 6.
    """

    def __init__(self, late=False):
        super().__init__()
        self.table = nn.Parameter(torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(3)).double() + 0.1)
        self.late = late
        self.config = None

    def forward(self, ids):
        framed = ids[:, 0] == 1
        inner = torch.where(framed[:, None], nn.functional.pad(ids, (0, 1))[:, 1:4], ids[:, :3])
        law = torch.where(framed[:, None, None, None], self.table[None], self.table.flip(0, 1, 2)[None] ** 2)
        for site in range(3):
            shape = [len(ids), 1, 1, 1]
            shape[site + 1] = 3
            fits = (inner[:, site, None] == torch.arange(4, 7)) | (inner[:, site, None] == 0)
            law = law * fits.reshape(shape)
        logits = torch.full((*ids.shape, 7), -9.0).double()
        for site in range(3):
            other = [axis for axis in (1, 2, 3) if axis != site + 1]
            rows = torch.where(framed, site + 1, site) - int(self.late)
            logits[torch.arange(len(ids)), rows.clamp(min=0), 4:] = law.sum(other).log()
        return logits


TOKENS = ["<mask>", "<cls>", "<eos>", "<pad>", "A", "C", "G"]


def exact_bundle(late=False, **changes):
    tokenizer = fast(
        TOKENS, mask_token="<mask>", pad_token="<pad>", unk_token="<pad>", cls_token="<cls>", sep_token="<eos>"
    )
    family = replace(tt.Family("exact"), shift=changes.pop("shift", late))
    return tt.from_transformers(Exact(late), tokenizer, family=family, vocabulary=7, **{"length": 5} | changes)


def furthest(bundle, model):
    """The largest z-score of the mean mass at a state against p0 (p_zeta/p0)^alpha, enumerated, and its limit."""
    law = Exact().table.detach()
    law = law / law.sum()
    base, given = law.sum(0), law[1] / law[1].sum()
    exact = (base * (given / base) ** 2).reshape(-1)
    result = tt.reveal(model, 2.0, particles=4, populations=3000, seed=0)
    weighted = result.log_weights, result.particles
    found = masses(type("P", (), {"log_w": weighted[0], "x": weighted[1]}), 3)
    z = z_scores(*common(found, exact))
    return float(z.abs().max()), z_limit(len(z))


@pytest.mark.parametrize("late", [False, True])
def test_smc_on_a_framed_net_hits_the_enumerated_law(late):
    bundle = exact_bundle(late)
    score, limit = furthest(bundle, bundle.model("C", length=2))
    assert score < limit


def test_a_forgotten_frame_and_a_forgotten_shift_are_noticed():
    """Wrong variants: no frame, so that the net answers about another law; and logits read one site late."""
    for wrong in (exact_bundle(before=(), after=(), length=3), exact_bundle(True, shift=False)):
        score, limit = furthest(wrong, wrong.model("C", length=2))
        assert score > 2 * limit
