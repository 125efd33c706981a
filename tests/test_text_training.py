"""Training on text: every task learns a language of known entropy, by the loop that trains the digits."""

import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import truetilt as tt
from sayings import CLASSES, COPIES, LENGTH, NET, NONE, NOTE, PLACED, SIZES, V, settings, texts, tokenizer, write_corpus
from truetilt.models.lora import merged, switch
from truetilt.models.net_score import DeftScore, NetPotential
from truetilt.models.text_classifier import TextClassifier, TextClassifierConfig
from truetilt.models.tokenizer import load_tokenizer
from truetilt.models.transformer import SEDD, SEDDConfig
from truetilt.runtime.checkpoints import found as found_checkpoints
from truetilt.training import loop
from truetilt.training.corpus import Corpus, Texts, mixed
from truetilt.training.evaluation import evaluate
from truetilt.training.losses import Noise, Noised, corrupt, posterior_cross_entropy, score_entropy
from truetilt.training.muon import Muon, matrices_of, orthogonal
from truetilt.training.runs import TrainingRun, fresh
from truetilt.training.tasks import build_task

COIN = math.log(2) / LENGTH  # a coin's nats, a site
TASKS = ("unconditional", "conditional", "deft", "potential", "classifier")
WORDED = {name: "n" if name == "note" else name for name in CLASSES}
LEARN = {"steps": 400, "batch": 64, "ema": 0.97, "checkpoint_every": 400, "log_every": 100, "evaluation_passes": 16}


@pytest.fixture(scope="module")
def learned(corpus, tmp_path_factory):
    """A net that has learned the language, with labels withheld from a third, and its card."""
    folder = tmp_path_factory.mktemp("learned")
    card = loop.train(settings(corpus, label_dropout=0.33, **LEARN), folder)
    return folder / "model", card


def exact_bound(net, withheld):
    """The bound in nats a site, all texts and masks summed and time integrated: 16 nodes, weights of degree 4."""
    nodes, weights = (torch.tensor(values) for values in np.polynomial.legendre.leggauss(16))
    t, weights = (nodes + 1) / 2, weights / 2
    masks = torch.tensor(list(product((False, True), repeat=LENGTH))[1:])
    total = 0.0
    for words, label in texts():
        row = torch.tensor(tokenizer().encode(" ".join(words)) + [0] * (LENGTH - len(words)))
        x = torch.where(masks, V, row).repeat(len(t), 1)
        here, hidden = t.repeat_interleave(len(masks)), masks.repeat(len(t), 1)
        told = torch.full((len(x),), [NONE, NONE, NOTE, NOTE][label] if withheld else label)
        sigma = tt.LogLinear()(here).value
        with torch.no_grad():
            log_p = net(x, sigma.float(), told)[..., :V].double() + sigma.expm1().log()[:, None, None]
        size = log_p.logsumexp(-1)
        cost = size - log_p.gather(-1, row.expand_as(x)[..., None])[..., 0] + size.exp() - 1 - size
        chance = here ** (hidden.sum(-1) - 1) * (1 - here) ** (~hidden).sum(-1)  # of the mask, over t
        total += float((weights.repeat_interleave(len(masks)) * chance * (cost * hidden).sum(-1)).sum())
    return total / len(texts()) / LENGTH


def test_the_bound_comes_down_to_the_entropy(learned):
    """At best 3 coins a text without its label and 2 with it; no net is below, and 400 steps end within 3 % above."""
    net, found = tt.from_pretrained(learned[0]), learned[1]["metrics"]
    for name, coins, withheld in (("bound", 3, True), ("conditional_bound", 2, False)):
        exact = exact_bound(net, withheld)
        assert coins * COIN < exact < 1.03 * coins * COIN
        assert abs(found[name] - exact) < 5 * found[f"{name}_stderr"] < 0.4 * COIN
    used = (3.5 * 8 + 4.5 * 8) / 16  # words and an end; the longest has no room for one, and needs none
    assert found["bound_per_token"] == pytest.approx(found["bound"] * LENGTH / used)


def test_wrong_without_positions_masked_sites_look_alike(corpus):
    """Rotary angles tell sites apart only by tokens that are there: a net of short texts needs more."""
    for positions in (False, True):
        net = build_task(settings(corpus, net=NET | {"classes": 5, "positions": positions})).net
        with torch.no_grad():
            for parameter in net.parameters():  # no zeros to hide behind
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) / 4)
            answer = net(torch.full((1, LENGTH), V), torch.ones(1))[0]
        assert answer.allclose(answer[:1].expand_as(answer), atol=1e-4) != positions


def test_wrong_labels_cost_nats(learned, corpus):
    """The same net told the other mood or tone: each text then has words it should not have."""
    run = TrainingRun.prepare(settings(corpus), corpus)
    task = replace(run.task, net=tt.from_pretrained(learned[0]))
    other = replace(run.test, labels=run.test.labels ^ 1)
    right, wrong = (evaluate(task, rows, passes=4)["conditional_bound"] for rows in (run.test, other))
    assert wrong > right + 2 * COIN


def test_the_net_is_a_text_model_and_draws_its_language(learned):
    text, words = tt.load(learned[0]), load_tokenizer(learned[0], V)
    model = text.model(1, length=LENGTH)
    drawn = tt.reveal(model, alpha=1.0, particles=64, seed=0).particles.reshape(-1, LENGTH)
    said = [words.decode(row) for row in drawn.tolist()]
    assert sum(sentence in {"x high", "y high", "x high .", "y high ."} for sentence in said) >= 60
    assert len(set(said)) >= 4


def test_rates_have_the_size_that_samplers_in_clock_time_need(learned):
    """e^log-score of a masked site sums to e^-sigma / (1 - e^-sigma); the cross-entropy would not care."""
    net, sigma = tt.from_pretrained(learned[0]), torch.tensor([0.5, 1.0, 3.0])
    total = net(torch.full((3, LENGTH), V), sigma, torch.full((3,), NONE))[..., :V].double().logsumexp(-1)
    assert (total + sigma.double().expm1().log()[:, None]).abs().max() < 0.1


def test_a_potential_starts_with_the_token_vectors_of_the_base(learned, corpus):
    base = tt.from_pretrained(learned[0])
    net = {**SIZES["potential"], "hidden": base.config.hidden}
    run = TrainingRun.prepare(settings(corpus, str(learned[0]), task="potential", net=net), corpus)
    plain = TrainingRun.prepare(settings(corpus, task="potential", net=net), corpus)
    assert run.task.net.vocab_embed.embedding.equal(base.vocab_embed.embedding)
    assert not plain.task.net.vocab_embed.embedding.equal(base.vocab_embed.embedding)
    assert run.fingerprint() != plain.fingerprint()


@pytest.mark.parametrize("shift", [-0.7, 0.0, 0.4])
def test_the_score_entropy_is_the_cross_entropy_and_a_price_for_size(shift):
    process, generator = tt.Masking(V), torch.Generator().manual_seed(0)
    x0 = torch.randint(0, V, (6, LENGTH), generator=generator)
    noise = Noise.at(process, torch.linspace(0.1, 0.9, 6, dtype=torch.float64))
    noised = corrupt(process, x0, noise, torch.rand(x0.shape, generator=generator, dtype=torch.float64))
    logits = torch.randn(6, LENGTH, V, generator=generator, dtype=torch.float64).log_softmax(-1)
    log_odds = (noise.keep / noise.lost).log()[:, None, None]
    price = (math.exp(shift) - 1 - shift) * (noised.x == V).sum(-1) * noise.rate * noise.keep / noise.lost
    found = score_entropy(process, logits + log_odds + shift, noised)
    assert found.allclose(posterior_cross_entropy(process, logits + shift, noised) + price)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_goes_from_arrays_to_a_network_and_its_card(task, corpus, learned, tmp_path):
    base = learned[0] if task == "deft" else ""
    augment = {"augment": "mask"} if task == "classifier" else {}
    card = loop.train(settings(corpus, base, task=task, **augment), tmp_path)
    net = tt.from_pretrained(tmp_path / "model")
    assert net.config.vocabulary == V == load_tokenizer(tmp_path / "model", net.config.vocabulary).vocabulary
    assert card == json.loads((tmp_path / "model/card.json").read_text())
    assert (card["steps"], card["data"]["rows"], card["test_rows"]) == (8, 16, 16 * COPIES)
    assert (card["tokenizer"], tuple(card["classes"])) == (tokenizer().fingerprint(), CLASSES)
    wanted = {
        "unconditional": {"bound", "bound_per_token"},
        "conditional": {"bound", "conditional_bound", "conditional_bound_per_token"},
        "deft": {"conditional_bound"},
        "potential": {"accuracy_t0", "cross_entropy_t0.9", "accuracy_mood_t0.5", "accuracy_notes_t0"},
        "classifier": {"accuracy", "accuracy_mood", "cross_entropy_tone"},
    }[task]
    assert wanted <= card["metrics"].keys()


def test_a_guide_learns_what_the_base_lacks(learned, corpus, tmp_path):
    """Zero at the start, so base and guide have the bound of the base; at the end, that of a net that knows labels."""
    config = settings(corpus, learned[0], task="deft", **LEARN | {"steps": 200})
    run = TrainingRun.prepare(config, tmp_path)
    before = evaluate(run.task, run.test, passes=16)
    assert before["conditional_bound"] == pytest.approx(learned[1]["metrics"]["bound"], rel=0.02)
    found = loop.train(config, tmp_path)["metrics"]
    assert abs(found["conditional_bound"] - 2 * COIN) < 0.05 * COIN + 5 * found["conditional_bound_stderr"]


def test_a_guide_is_sampled_as_it_was_trained(learned, corpus, tmp_path):
    loop.train(settings(corpus, learned[0], task="deft"), tmp_path)
    task = build_task(settings(corpus, learned[0], task="deft"))
    guide, base = tt.from_pretrained(tmp_path / "model"), tt.load(learned[0])
    x = torch.tensor([[V] * LENGTH, [5, V, 6, V, V]])
    noised = Noised(x, x, Noise.at(task.process, torch.full((2,), 0.6, dtype=torch.float64)))
    trained = task.log_scores(guide, noised, torch.tensor([3, 3]))
    sampled = DeftScore(base.score(NOTE), guide, 3)(x, 0.6).dense()
    assert sampled[x == V].allclose(trained[x == V].to(sampled), atol=1e-5)
    assert not sampled[x == V].allclose(base.score(None)(x, 0.6).dense()[x == V], atol=0.1)


def test_classifiers_answer_within_their_groups(corpus, tmp_path):
    config = settings(corpus, task="potential", steps=150, batch=32, log_every=50, checkpoint_every=150)
    found = loop.train(config, tmp_path)["metrics"]
    assert (found["accuracy_t0"], found["accuracy_tone_t0"]) == (1.0, 1.0)
    assert found["cross_entropy_t0"] < 0.05
    assert 0.3 < found["cross_entropy_t0.9"] < 0.75  # little is left to see, and nothing costs more than a coin
    net = tt.from_pretrained(tmp_path / "model")
    x = torch.full((1, LENGTH), V)
    for label in range(4):  # all masked: a coin within the group, not one of four
        assert float(NetPotential(net, label, 4)(x, 1.0)) == pytest.approx(-math.log(2), abs=0.1)
    pair = [NetPotential(net, label, 4)(torch.tensor([[1, 4, 0, 0, 0]]), 0.3).exp() for label in (0, 1)]
    assert float(sum(pair)) == pytest.approx(1.0)


def test_a_group_of_one_class_is_none():
    for groups, words in (((2, 1), "at least two"), ((), "groups is")):
        with pytest.raises(tt.InvalidInput, match=words):
            TextClassifierConfig(groups=groups)
    with pytest.raises(tt.InvalidInput, match="70 tokens for a net that reads 64"):
        TextClassifier()(torch.zeros(1, 70, dtype=torch.long), torch.zeros(1))


def test_a_prompt_is_never_noised_and_says_the_class(corpus, tmp_path, monkeypatch):
    config = settings(
        corpus, net=PLACED | {"length": LENGTH + 1}, prompts=WORDED, label_dropout=0.33, **LEARN | {"steps": 300}
    )
    run = TrainingRun.prepare(config, tmp_path)
    net, batch, heard = run.task.net, run.batches().at(0), []
    monkeypatch.setattr(
        net, "trunk", lambda x, sigma, label: heard.append((x, label)) or SEDD.trunk(net, x, sigma, label)
    )
    run.task.loss(net, batch)
    (x, label), prompts = heard[0], torch.tensor([3, 4, 6, 7, 5, 0])
    assert label is None
    assert x[:, 0].equal(prompts[batch.told])
    assert x[:, 1:].equal(batch.noised.x)
    card = loop.train(config, tmp_path)
    for name, coins in (("bound", 3), ("conditional_bound", 2)):
        assert abs(card["metrics"][name] - coins * COIN) < 0.05 * COIN + 5 * card["metrics"][f"{name}_stderr"]
    assert card["prompts"] == [[3], [4], [6], [7], [5], [0]]
    text = tt.load(tmp_path / "model")
    x, noise = torch.tensor([[V, 3, V, V, 0]]), Noise.at(text.process, torch.tensor([0.5], dtype=torch.float64))
    trained = run.task.log_scores(text.net, Noised(x, x, noise), torch.tensor([0]))
    sampled = tt.prompted(text.score(), LENGTH, [3])(x, 0.5).dense()
    assert sampled[x == V].allclose(trained[x == V].to(sampled), atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"prompts": WORDED, "net": PLACED | {"length": LENGTH + 1}}, {"suffix_share": 0.5}]
)
def test_the_head_at_masked_sites_alone_gives_the_loss_of_all_sites(changes, corpus, tmp_path):
    run = TrainingRun.prepare(settings(corpus, batch=64, **changes), tmp_path)
    torch.nn.init.normal_(run.task.net.output_layer.linear.weight, generator=torch.Generator().manual_seed(0))
    batch = run.batches().at(3)
    every = score_entropy(run.task.process, run.task.log_scores(run.task.net, batch.noised, batch.told), batch.noised)
    assert run.task.loss(run.task.net, batch).allclose(every, rtol=1e-4)
    clean = batch._replace(noised=batch.noised._replace(x=batch.noised.x0))
    assert run.task.loss(run.task.net, clean).tolist() == [0.0] * 64


def test_a_run_with_adapters_moves_nothing_else(learned, corpus, tmp_path):
    """Trains, resumes to the bit, exports, loads; with the adapters off the net is the base, to the bit."""
    config = settings(corpus, learned[0], lora={"rank": 2, "alpha": 4}, label_dropout=0.3)
    before = torch.get_rng_state()
    run = TrainingRun.prepare(config, tmp_path / "whole")
    assert torch.get_rng_state().equal(before)
    net, base = run.task.net, tt.from_pretrained(learned[0])
    moved = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    layers = {f"blocks.0.{name}" for name in ("attn_qkv", "attn_out", "mlp.0", "mlp.2")}
    assert {name.split(".lora_")[0] for name in moved} == {*layers, "label.weight"}
    assert fresh(run).weights.keys() == {*moved, "rotary_emb.inv_freq"}
    loop.train_run(run)
    x, sigma = torch.tensor([[V, 4, V, V, 0]]), torch.tensor([0.7])
    with torch.no_grad():
        net.label.weight.copy_(base.label.weight)
        adapted = net(x, sigma, torch.tensor([1]))
        switch(net, False)
        assert net(x, sigma, torch.tensor([1])).equal(base(x, sigma, torch.tensor([1])))
        switch(net, True)
        assert not adapted.equal(base(x, sigma, torch.tensor([1])))
        assert merged(net)(x, sigma, torch.tensor([1])).allclose(adapted, atol=1e-5)
    with pytest.raises(KeyboardInterrupt):
        loop.train(config, tmp_path / "broken", report=_stop)
    loop.train(config, tmp_path / "broken", resume=True)
    whole, broken = (load_file(tmp_path / name / "model/model.safetensors") for name in ("whole", "broken"))
    assert whole.keys() == base.state_dict().keys()
    assert all(whole[name].equal(broken[name]) for name in whole)
    assert len(load_file(tmp_path / "whole/model/adapter/adapter_model.safetensors")) == len(moved) - 1
    assert tt.load(tmp_path / "whole/model").net.config == base.config


def _stop(step, loss):
    if step >= 6:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("task", "optimizer"),
    [("conditional", "adamw"), ("conditional", "muon"), ("deft", "adamw"), ("classifier", "muon")],
)
def test_a_stopped_run_on_text_goes_on_to_the_bit(task, optimizer, learned, corpus, tmp_path):
    config = settings(corpus, learned[0] if task == "deft" else "", task=task, optimizer=optimizer)
    loop.train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        loop.train(config, tmp_path / "broken", report=_stop)
    loop.train(config, tmp_path / "broken", resume=True)
    states = [
        load_file(found_checkpoints(tmp_path / name / "checkpoints")[-1] / "state.safetensors")
        for name in ("whole", "broken")
    ]
    assert states[0].keys() == states[1].keys()
    assert all(states[0][name].equal(states[1][name]) for name in states[0])


def test_muon_makes_the_steps_of_matrices_orthogonal_and_is_torch_s_own():
    made = torch.Generator().manual_seed(0)
    for shape in ((12, 12), (40, 10), (10, 40)):
        sizes = torch.linalg.svdvals(orthogonal(torch.randn(3, *shape, generator=made)).float())
        assert 0.6 < float(sizes.min()) <= float(sizes.max()) < 1.25
    net, same = (SEDD(SEDDConfig(**PLACED, classes=5), seed=1) for _ in range(2))
    matrices = matrices_of(net)
    assert len(matrices) == 4 * net.config.blocks
    left = [p for p in net.parameters() if all(p is not matrix for matrix in matrices)]
    ours = Muon(matrices, left, lr=0.01, weight_decay=0.1)
    numbers = {k for k, p in enumerate(net.parameters()) if any(p is matrix for matrix in matrices)}
    split = [[p for k, p in enumerate(same.parameters()) if (k in numbers) == muon] for muon in (True, False)]
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon of its own to compare with")
    theirs = torch.optim.Muon(split[0], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(split[1], lr=0.01, weight_decay=0.1)
    for _ in range(3):
        for own, other in zip(net.parameters(), same.parameters(), strict=True):
            own.grad = torch.randn(own.shape, generator=made)
            other.grad = own.grad.clone()
        for optimizer in (ours, theirs, adamw):
            optimizer.step()
    assert all(matrix.grad is None for matrix in matrices)
    for own, other in zip(net.parameters(), same.parameters(), strict=True):
        assert own.allclose(other, atol=5e-4)


def test_a_net_goes_on_from_another_and_learns_classes_it_had_not(corpus, tmp_path):
    loop.train(settings(corpus, task="unconditional"), tmp_path / "plain")
    base = tt.from_pretrained(tmp_path / "plain/model")
    task = build_task(settings(corpus, tmp_path / "plain/model"))
    x, sigma = torch.tensor([[V, 4, V, V, 0]]), torch.tensor([0.7])
    for label in range(6):
        assert task.net(x, sigma, torch.tensor([label])).equal(base(x, sigma))
    assert task.started_from
    with pytest.raises(tt.InvalidInput, match="the base has hidden 32, the network 64"):
        build_task(settings(corpus, tmp_path / "plain/model", net={**SIZES["conditional"], "hidden": 64}))


def test_packed_rows_have_no_padding(corpus):
    rows = TrainingRun.prepare(settings(corpus, task="unconditional", rows="packed"), corpus).train
    stream = [token for words, _ in texts() for token in (*tokenizer().encode(" ".join(words)), 0)]
    assert len(stream) == 64
    assert rows.tokens.flatten().tolist() == stream[:60]


def test_rows_are_repeated_as_the_mix_says(corpus):
    rows = Corpus.read(corpus).texts(("guidance",), labelled=True)
    more = mixed(rows, {"mood": 3, "notes": 0})
    assert (more.count, set(more.labels.tolist())) == (24, {0, 1})
    assert mixed(rows, {}).tokens.equal(rows.tokens)
    for mix, words in (({"tales": 2}, "tales"), ({"mood": 1.5}, "mood"), ({"mood": 0, "tone": 0}, "no row")):
        with pytest.raises(tt.InvalidInput, match=words):
            mixed(rows, mix)


def test_what_is_told_where_a_label_is_withheld(corpus):
    run = TrainingRun.prepare(settings(corpus, label_dropout=1.0), corpus)
    batch = run.batches().at(3)
    assert set(zip(batch.label.tolist(), batch.told.tolist(), strict=True)) <= {(0, 5), (1, 5), (2, 4), (3, 4)}
    assert TrainingRun.prepare(settings(corpus), corpus).batches().at(3).told.equal(batch.label)


def test_masked_words_while_a_judge_learns(corpus):
    run = TrainingRun.prepare(settings(corpus, task="classifier", augment="mask", max_blank=0.5, batch=2000), corpus)
    noised = run.batches().at(0).noised
    share = float((noised.x == V).double().mean())
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 / 2000)  # half of a half; 5 standard errors
    assert noised.noise.t.eq(0).all()
    assert bool(((noised.x == noised.x0) | (noised.x == V)).all())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"net": {**SIZES["conditional"], "vocabulary": 12}}, "9 tokens and the network 12"),
        ({"net": {**SIZES["conditional"], "length": 6}}, "rows have 5 tokens and the network reads 6"),
        ({"net": {**SIZES["conditional"], "classes": 4}}, "set net.classes to 5"),
        ({"net": {**SIZES["conditional"], "masked": False, "scale_by_sigma": False}}, "net.masked is False"),
        ({"task": "potential", "net": {**SIZES["potential"], "groups": [4]}}, "groups of"),
        ({"task": "deft"}, "name its folder as `base`"),
        ({"task": "deft", "base": "BASE", "net": SIZES["conditional"]}, "scale_by_sigma to false"),
        ({"task": "deft", "base": "BASE", "net": {**SIZES["deft"], "vocabulary": 12}}, "vocabulary 9, the network 12"),
        ({"task": "classifier", "base": "BASE"}, "a judge shares nothing"),
        ({"task": "potential", "base": "BASE", "net": {**SIZES["potential"], "hidden": 64, "heads": 1}}, "has hidden"),
        ({"base": "BASE", "lora": {"rank": 0}}, "rank is 0"),
        ({"base": "BASE", "lora": {"width": 3}}, "lora has width"),
        ({"prompts": {"sad": "x"}}, "prompts for sad"),
        ({"prompts": {"low": " "}}, "at least one character"),
        ({"prompts": WORDED}, "with its prompt of 1"),
        ({"mix": {"tales": 2}}, "tales"),
        ({"data": "/nowhere"}, "prepare the texts first"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_step(changes, words, corpus, learned, tmp_path):
    changes = {**changes, "base": str(learned[0])} if changes.get("base") == "BASE" else changes
    with pytest.raises(tt.InvalidInput, match=words):
        loop.train(settings(**{"data": corpus, **changes}), tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modality": "sound"}, "modality is 'sound'"),
        ({"augment": "shift", "task": "classifier"}, "augment is shift"),
        ({"augment": "mask", "task": "potential"}, "augment is mask"),
        ({"rows": "packed"}, "packed rows have no labels"),
        ({"lora": {"rank": 2}}, "name its folder as `base`"),
        ({"prompts": WORDED, "task": "unconditional"}, "prompts are for the task conditional"),
        ({"max_blank": 1.0}, "max_blank is 1.0"),
        ({"modality": "digits", "mix": {"mood": 2}}, "mix is for text"),
        ({"modality": "digits", "optimizer": "muon"}, "muon is for transformers"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(changes, words, corpus):
    with pytest.raises(tt.InvalidInput, match=words):
        settings(corpus, **changes)


def test_arrays_and_tokenizer_must_be_the_ones_named(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "tokens.npy").write_bytes((tmp_path / "tokens.npy").read_bytes()[:-4])
    with pytest.raises(tt.InvalidInput, match="cannot be read"):
        TrainingRun.prepare(settings(tmp_path), tmp_path)
    write_corpus(tmp_path)
    rows = bytearray((tmp_path / "rows.npy").read_bytes())
    rows[-2] ^= 1
    (tmp_path / "rows.npy").write_bytes(rows)
    with pytest.raises(tt.InvalidInput, match="not the file that"):
        TrainingRun.prepare(settings(tmp_path), tmp_path)
    write_corpus(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace('"calm": 6', '"loud": 6'))
    with pytest.raises(tt.InvalidInput, match="it is another"):
        TrainingRun.prepare(settings(tmp_path), tmp_path)
    with pytest.raises(tt.InvalidInput, match="the same size with other tokens"):
        _ = Corpus.read(tmp_path).tokenizer


def test_the_uniform_process_trains_too(corpus, tmp_path):
    net = {**NET, "masked": False, "scale_by_sigma": False}
    config = settings(corpus, task="unconditional", process="uniform", net=net, steps=60, batch=32)
    run = TrainingRun.prepare(config, tmp_path)
    before = evaluate(run.task, run.test, passes=4)["bound"]
    assert loop.train(config, tmp_path)["metrics"]["bound"] < 0.8 * before


def test_the_command_trains_on_texts(corpus, tmp_path):
    from typer.testing import CliRunner

    from truetilt.cli.main import app

    config = {"task": "classifier", "modality": "text", "net": SIZES["classifier"], "steps": 4, "batch": 4}
    (tmp_path / "tiny.json").write_text(json.dumps(config))
    arguments = ["train", "classifier", "--config", str(tmp_path / "tiny.json"), "--data", str(corpus)]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["metrics"]["accuracy_mood"] >= 0
    assert load_tokenizer(tmp_path / "run/model", V).encode("x high") == [1, 4]


def test_texts_move_and_are_named_by_what_they_are(corpus):
    rows = Corpus.read(corpus).texts(("judge",), labelled=True)
    assert isinstance(rows.to("cpu"), Texts)
    assert rows.fingerprint() == rows.to("cpu").fingerprint() != rows.take(torch.arange(3)).fingerprint()
