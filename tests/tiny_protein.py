"""A tiny ProteinMPNN in the published file format, small backbones, and the decoder written out without caches."""

import math
import re

import torch

from truetilt.proteins.law import LETTERS
from truetilt.proteins.network import SCALE, ProteinMPNN, Sizes
from truetilt.proteins.structure import Residue, Structure

SIZES = Sizes(hidden=8, positions=4, radial=3, encoders=1, decoders=2, letters=21, neighbours=5)


def write_weights(path, seed=0, sizes=SIZES):
    """A file as the package has it: a table of tensors, the number of neighbours and the noise of training."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: tensor.shape for name, tensor in ProteinMPNN(sizes).state_dict().items()}
    table = {name: 0.6 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    torch.save({"model_state_dict": table, "num_edges": sizes.neighbours, "noise_level": 0.2}, path)
    return path


def backbone(letters, start=0.0):
    """A helix of so many residues, N, CA, C, O of each [L, 4, 3]."""
    out = []
    for k in range(len(letters)):
        for turn, rise, radius in ((0.0, 0.0, 1.5), (0.5, 0.5, 2.3), (1.0, 1.1, 1.6), (1.1, 2.0, 2.0)):
            angle = math.radians(100) * k + turn
            out.append([radius * math.cos(angle) + start, radius * math.sin(angle), 1.5 * k + rise])
    return torch.tensor(out).reshape(len(letters), 4, 3)


def structure(*chains, first=1):
    """Chains A, B, ... with these letters, 8 Å apart."""
    residues, places = [], []
    for k, letters in enumerate(chains):
        residues += [Residue("ABCDE"[k], first + n, "", letter) for n, letter in enumerate(letters)]
        places.append(backbone(letters, 8.0 * k))
    return Structure(tuple(residues), torch.cat(places))


def pdb(structure, skip=()):
    """The structure as a PDB file; `skip` are pairs of residue number and atom that are left out."""
    names = dict(zip("ACDEFGHIKLMNPQRSTVWYX", _NAMES, strict=True))
    lines, serial = [], 1
    for residue, atoms in zip(structure.residues, structure.backbone.tolist(), strict=True):
        for atom, (x, y, z) in zip(("N", "CA", "C", "O"), atoms, strict=True):
            if (residue.number, atom) in skip:
                continue
            head = f"ATOM  {serial:5d}  {atom:<3s} {names[residue.letter]} {residue.chain}{residue.number:4d}    "
            lines.append(f"{head}{x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00           {atom[0]}")
            serial += 1
    return "\n".join([*lines, "END", ""])


_NAMES = re.findall("...", "ALACYSASPGLUPHEGLYHISILELYSLEUMETASNPROGLNARGSERTHRVALTRPTYRZZZ")


def plain_logits(net, law_graph, ranks, letters):
    """Logits of every residue [L, 21], by the decoder as published: whole messages, one residue at a time."""
    nodes, edges, near = law_graph
    h = nodes
    for layer in net.decoder_layers:
        new = []
        for i in range(len(nodes)):
            messages = []
            for k, j in enumerate(near[i].tolist()):
                if ranks[j] < ranks[i]:
                    ends = [h[i], edges[i, k], net.W_s.weight[letters[j]], h[j]]
                else:
                    ends = [h[i], edges[i, k], torch.zeros_like(h[i]), nodes[j]]
                m = torch.nn.functional.gelu(layer.W1(torch.cat(ends)))
                messages.append(layer.W3(torch.nn.functional.gelu(layer.W2(m))))
            one = layer.norm1(h[i] + torch.stack(messages).sum(0) / SCALE)
            new.append(layer.norm2(one + layer.dense(one)))
        h = torch.stack(new)
    return net.W_out(h)


def plain_log_prob(net, law, sequence):
    """log p of one whole sequence's open sites (none tied), letter by letter."""
    numbers = [LETTERS.index(letter) for letter in sequence]
    ranks = law.choice.ranks(len(numbers))
    logits = plain_logits(net, law.graph, ranks, numbers)[:, :20].double()
    allowed = {place: law.choice.allowed[k] for k, site in enumerate(law.choice.sites) for place in site}
    total = 0.0
    for place, own in allowed.items():
        row = logits[place].masked_fill(~torch.tensor(own), -torch.inf)
        total += float(row.log_softmax(-1)[numbers[place]])
    return total
