"""AntiBERTy's own weights, from its package: run by `make prove`."""

import pytest

import truetilt as tt

pytestmark = pytest.mark.prove
TRASTUZUMAB = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRY"
    "ADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
MOUSE = (
    "QVQLQQSGPELVKPGASLKLSCTASGFNIKDTYIHWVKQRPEQGLEWIGRIYPTNGYTRY"
    "DPKFQDKATITADTSSNTAYLQVSRLTSEDTAVYYCSRWGGDGFYAMDYWGQGASVTVSS"
)


def test_a_drug_is_human_and_its_mouse_parent_is_not():
    pytest.importorskip("antiberty")
    nets = tt.load("antiberty")
    human = nets.log_species([TRASTUZUMAB, MOUSE]).exp()[:, 1]
    assert human.tolist() == [pytest.approx(0.976, abs=0.001), pytest.approx(0.0, abs=1e-4)]


def test_loops_are_found_by_the_published_numbering():
    pytest.importorskip("antiberty")
    pytest.importorskip("anarcii")
    redesign = tt.load("antiberty").redesign(TRASTUZUMAB)
    kept = {site for site in range(len(TRASTUZUMAB)) if site not in redesign.open_sites}
    for loop in ("DTYIH", "RIYPTNGYTRYADSVKG", "WGGDGFYAMDY"):  # Kabat's CDRs of trastuzumab's heavy chain
        begin = TRASTUZUMAB.index(loop)
        assert kept.issuperset(range(begin, begin + len(loop))), loop
