"""The kind of model at a path of the user's, recognised from its files; no network is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..core.types import InvalidInput
from ..models.checkpoint_folders import is_transformers
from ..models.families import FAMILIES
from ..models.pretrained import CONFIG, read_card, read_json
from ..models.published import is_published
from ..models.reviews import is_reviews

_MOST = 10_000  # classes that are listed
TABLE, DIGITS, REVIEWS, TEXT = "table", "digits", "reviews", "text"
STRINGS = "strings"  # a public network in a folder of transformers
BACKBONE = "backbone"  # a protein's structure


class Found(NamedTuple):
    """The kind (nothing: an empty word), the names of the classes, and whether states are masked."""

    kind: str = ""
    classes: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()  # the classes that a potential knows
    masked: bool = True


def found_at(path: str | Path) -> Found:
    """What the path holds; a folder without a description is taken to hold digit networks."""
    try:
        place = Path(path)
        if not str(path) or not place.exists():
            return Found()
        if place.is_file():
            return Found(TABLE)
        if not place.is_dir():  # a pipe or a device, which never ends
            return Found()
        if is_reviews(place):
            return _reviews(place)
        if is_transformers(place) and not is_published(place):
            return _strings(place)
        return _text(place) if (place / CONFIG).is_file() else Found(DIGITS)
    except (OSError, ValueError):  # a name that no file system takes
        return Found()


def sampler_for(there: Found) -> str:
    """A sampler that takes what was found, the recommended one where it can: one net has no classifier to tilt by."""
    if there.kind in (TEXT, STRINGS):
        return "any-order" if there.masked else "tempered"
    return "tilted"


def _reviews(folder: Path) -> Found:
    """The classes named on the card; a damaged card is reported later, when the bundle is loaded."""
    try:
        card = read_card(folder / "sedd")
        classes = tuple(str(name) for name in card["classes"])
        return Found(REVIEWS, classes, tuple(str(name) for members in card["groups"].values() for name in members))
    except (InvalidInput, KeyError, TypeError, AttributeError):
        return Found(REVIEWS)


def _strings(folder: Path) -> Found:
    """A public network: whether its family masks, and its classes, which networks without a mask may have."""
    config = read_json(folder / CONFIG)
    told = {config.get("model_type"), *(config.get("architectures") or ())}
    masked = all(family.masked for family in FAMILIES if told & set(family.known_by))
    many = config.get("num_classes") if not masked else 0
    classes = tuple(str(number) for number in range(min(int(many or 0), _MOST)))
    return Found(STRINGS, classes, masked=masked)


def _text(folder: Path) -> Found:
    try:
        if is_published(folder):
            return Found(TEXT, masked=read_json(folder / CONFIG)["graph"]["type"] == "absorb")
        config = read_json(folder / CONFIG)
        classes = tuple(str(number) for number in range(min(int(config.get("classes") or 0), _MOST)))
        return Found(TEXT, classes, masked=bool(config.get("masked", True)))
    except (InvalidInput, KeyError, TypeError, AttributeError, ValueError, OverflowError):
        return Found(TEXT)
