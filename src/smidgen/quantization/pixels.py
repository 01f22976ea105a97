"""Pixel conventions, and the choice between them: each is tried on the data, and a clear winner is taken.

With labels the convention wins under which they are likeliest. Without labels, or where they show nothing, the one wins
under which the network's answer for a picture best predicts its choice for the mirror image, in bits: given numbers
that it was not trained on, a network chooses one class for everything, which predicts nothing, or is sure of one class
here and of another there. Confidence alone would mislead: numbers that are far too large make every network confident.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from smidgen.data import centre, pixel_encoding
from smidgen.data.inputs import kind_of, takes_images
from smidgen.data.samples import Data, DataError, Samples, match_classes
from smidgen.errors import InputError
from smidgen.ir import Array, Graph
from smidgen.ir.log_mel import LogMel
from smidgen.ir.preprocessing import Preprocessing
from smidgen.ir.rewriting import producers, readers
from smidgen.ops.softmax import Softmax
from smidgen.quantization.batch import Passes, scores_of
from smidgen.quantization.calibration import QuantizationError
from smidgen.quantization.folding import affine
from smidgen.quantization.report import scored_classes

Conventions = Mapping[str, Preprocessing]
GivenPixels = Preprocessing | Conventions | None  # the preprocessing, the conventions to try, or nothing
# By the words that --pixels takes: the numbers of pixels 0 and 255, or the framework that made a convention known.
CONVENTIONS: Conventions = MappingProxyType(
    {
        "0,255": Preprocessing((0.0,), (1.0,), range=(0.0, 255.0)),
        "0,1": Preprocessing((0.0,), (1.0,)),
        "-1,1": Preprocessing(),
        "imagenet": Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        "caffe": Preprocessing((103.939, 116.779, 123.68), (1.0,), "bgr", (0.0, 255.0)),
    }
)
BARE = ("0,255", "0,1", "-1,1")  # for networks that normalize by themselves
BYTES = "0,255"
LARGE = 2.0  # a mean above this is one of pixels 0 … 255
NORMALIZED = 0.9, 6.0  # the spread of normalized pixels: 1 for 0 … 1, 4.5 for ImageNet's, 5 for small deviations
BESIDE = 0.1  # of the spread: how far normalized pixels may stay away from zero
TRIED, FEWEST = 128, 8  # images that a convention is tried on, at most and at least
FIRST = 16  # images of the first round of trials
CLEAR = 3.0  # standard errors between the winner and every other convention
LEAST = 1e-3  # a probability counts as at least this much
ENOUGH = 0.25  # bits: the least of a winner without labels


@dataclass(frozen=True)
class Tried:
    """The results of a network on the images under one convention."""

    convention: str
    preprocessing: Preprocessing
    accuracy: float | None  # with labels
    bits: float | None  # without labels: how well its answer for a picture predicts its choice for the mirror image
    confidence: float  # the mean probability of the first choice

    def __str__(self) -> str:
        if self.bits is None:
            return f"{self.convention} {self.accuracy:.1%}"
        return f"{self.convention} {self.bits:.2f} bits ({self.confidence:.0%} sure)"


@dataclass(frozen=True)
class PixelChoice:
    """The preprocessing of pixels, and how it was found."""

    preprocessing: Preprocessing
    found: str  # given, stated, layers, labels or mirrors
    convention: str | None  # its name, where it is one of the usual
    images: int = 0  # that the conventions were tried on
    tried: tuple[Tried, ...] = ()

    def __str__(self) -> str:
        named = f"pixels as {self.convention}" if self.convention else "pixels"
        return {
            "given": f"{named}, as given",
            "stated": f"{named}, as the model states",
            "layers": f"{named}, which the model's first layers normalize",
            "labels": f"{named}, the clear winner by the labels of {self.images} images: ",
            "mirrors": f"{named}, the clear winner by how well {self.images} images predict their mirror images: ",
        }[self.found] + ", ".join(map(str, self.tried))


def settle_pixels(
    graph: Graph, images: Sequence[Array], labelled: Samples | None = None, given: GivenPixels = None,
    passes: Passes | None = None,
) -> PixelChoice | None:  # fmt: skip
    """Return how pictures enter a graph: as given, as it states, as its first layers imply, or as the data show.

    None where nothing has to be known: for other samples, and for int8, whose scale tells. A QuantizationError asks for
    the convention where none is clear. `labelled` are images with the classes that the graph's scores are of.
    """
    if not len(images) or kind_of(images[0], graph.image.type) != "picture" or isinstance(graph.preprocessing, LogMel):
        if given is None:
            return None
        raise QuantizationError(
            f"the samples are numbers or audio as {graph.name} takes them, not pixels; leave out how pixels become "
            "numbers"
        )
    if needs_trial(graph, given):
        return _tried(graph, images, labelled, given, passes or Passes())
    if (known := known_pixels(graph, given)) is not None or given is None:
        return known
    raise QuantizationError(f"{graph.name} is int8, whose scale tells what pixels are; give --pixels, too")


def needs_trial(graph: Graph, given: GivenPixels = None) -> bool:
    """Return whether only a trial can show how pictures enter a graph: it is float32, and nothing says so."""
    takes = graph.image.type.dtype == "float32" and takes_images(graph.image.type.shape)
    return takes and not isinstance(graph.preprocessing, LogMel) and known_pixels(graph, given) is None


def known_pixels(graph: Graph, given: GivenPixels = None) -> PixelChoice | None:
    """Return how pixels enter a graph where no trial is needed; None where it is, and in int8 unless it is given."""
    if isinstance(given, Preprocessing):
        given.check(graph.image.type.shape[-1])
        return PixelChoice(given, "given", usual_name(given))
    if graph.image.type.dtype != "float32":
        return None
    if isinstance(stated := graph.preprocessing, Preprocessing):
        return PixelChoice(stated, "stated", usual_name(stated))
    usable = fitting(given or CONVENTIONS, graph.image.type.shape[-1])
    name = named_by_layers(graph, usable)
    return None if name is None else PixelChoice(usable[name], "layers", name)


def labels_for(graph: Graph, data: Data, samples: Samples) -> Samples | None:
    """Return samples of the data labelled by the graph's classes, by name or else in order; None if they have none."""
    count = scored_classes(graph)
    if count is None or data.label_kind != "classes":
        return None
    try:
        places = match_classes(data.classes, data.names, graph.classes, count, graph.name).places
    except DataError:
        return None
    return replace(samples, labels=tuple(places[label] for label in samples.labels))


def _tried(
    graph: Graph, images: Sequence[Array], labelled: Samples | None, given: GivenPixels, passes: Passes
) -> PixelChoice:
    """Return the convention that wins by labels, or else by mirror images; raise QuantizationError if none does."""
    assert not isinstance(given, Preprocessing)
    usable, why = fitting(given or CONVENTIONS, graph.image.type.shape[-1]), []
    some = Samples(tuple(images), (0,) * len(images)) if labelled is None else labelled
    some = some.spread(TRIED)
    some = some.at(np.random.default_rng(0).permutation(len(some)))  # a round is to have images of all classes
    if scored_classes(graph) is None or graph.scores.type.size == graph.image.type.size:  # no scores to compare
        why.append(f"its output {list(graph.scores.type.shape)} is no list of scores to compare conventions by")
    elif len(some) < FEWEST:
        why.append(f"{len(some)} image{'s' if len(some) > 1 else ''} cannot show it, {FEWEST} may")
    else:
        trial = _Conventions(graph, usable, some.images, passes)
        if labelled is not None and (found := trial.by_labels(np.array(some.labels))):
            return found
        if found := trial.by_mirrors():
            return found
        why = trial.unclear
    raise QuantizationError(
        f"{graph.name} does not say how pixels become numbers, and {'; '.join(why)}; give --pixels with one of "
        f"{' '.join(usable)}, or --mean and --std (preprocessing= in Python)"
    )


class _Conventions:
    """A network under each of some conventions, and why those that were tried gave no answer."""

    def __init__(self, graph: Graph, usable: Conventions, images: Sequence[Array], passes: Passes) -> None:
        self.graph, self.usable, self.passes = graph, usable, passes
        self.images, self.unclear, self._seen = images, list[str](), dict[tuple[str, bool], list[Array]]()
        made_by = producers(graph).get(graph.scores)
        self.probabilities = made_by is not None and type(made_by.op) is Softmax

    def by_labels(self, labels: Array) -> PixelChoice | None:
        chance = float(np.bincount(labels).max() / len(labels))

        def right(name: str, count: int) -> float:
            return float(np.mean(self.run(name, count).argmax(axis=1) == labels[:count]))

        def evidence(name: str, count: int) -> Array:
            return _likelihoods(self.run(name, count), labels[:count])

        def enough(name: str, count: int) -> bool:
            return right(name, count) > chance + CLEAR * math.sqrt(chance * (1 - chance) / count)

        counts, best = self._rounds(evidence, enough)
        what = f"the accuracy on {len(labels)} images, {chance:.1%} of them of one class,"
        return self._choice("labels", best, counts, what, lambda *one: (right(*one), None))

    def by_mirrors(self) -> PixelChoice | None:
        def evidence(name: str, count: int) -> Array:
            return _predicted_bits(self.run(name, count), self.run(name, count, mirrored=True))

        counts, best = self._rounds(evidence, lambda *one: float(evidence(*one).mean()) >= ENOUGH, ENOUGH)
        what = f"how well {max(counts.values())} images without labels predict their mirror images"
        return self._choice("mirrors", best, counts, what, lambda *one: (None, float(evidence(*one).mean())))

    def _rounds(
        self, evidence: Callable[[str, int], Array], enough: Callable[[str, int], bool], least: float | None = None
    ) -> tuple[dict[str, int], str | None]:
        """Return the images that each convention was tried on, and the winner, if any.

        Each round has twice as many images and only the conventions that did not clearly lose. Early rounds ask for as
        many more standard errors as O'Brien and Fleming's bounds for looks at a trial under way. It ends where one is
        left, or where none can come to the `least` that a winner needs.
        """
        left, counts, whole = list(self.usable), dict[str, int](), len(self.images)
        for count in sorted({min(FIRST << doubled, whole) for doubled in range(8)}):
            counts |= dict.fromkeys(left, count)
            found = {name: evidence(name, count) for name in left}
            best = max(left, key=lambda name: float(found[name].mean()))
            clear = CLEAR * math.sqrt(whole / count)
            left = [name for name in left if name == best or not _above(found[best] - found[name], clear)]
            if left == [best] and enough(best, count):
                return counts, best
            if least is not None and all(_above(least - one, CLEAR) for one in found.values()):
                break
        return counts, None

    def _choice(
        self, found: str, best: str | None, counts: Mapping[str, int], what: str,
        figures: Callable[[str, int], tuple[float | None, float | None]],
    ) -> PixelChoice | None:  # fmt: skip
        """Return the winner with the figures of all, or None, and remember them."""
        tried = tuple(
            Tried(name, self.usable[name], *figures(name, count), float(self.run(name, count).max(axis=1).mean()))
            for name, count in counts.items()
        )
        if best is None:
            self.unclear.append(f"{what} leaves no clear winner: {', '.join(map(str, tried))}")
            return None
        return PixelChoice(self.usable[best], found, best, counts[best], tried)

    def run(self, name: str, count: int, mirrored: bool = False) -> Array:
        """Return the probability of each class for each of the first images, or for their mirror images."""
        seen = self._seen.setdefault((name, mirrored), [])
        if len(seen) < count:
            seen.extend(self._run(name, self.images[len(seen) : count], mirrored))
        return np.stack(seen[:count])

    def _run(self, name: str, images: Sequence[Array], mirrored: bool) -> Array:
        graph = replace(self.graph, preprocessing=self.usable[name])

        def run(places: slice) -> Array:
            seen = (np.ascontiguousarray(image[:, ::-1]) if mirrored else image for image in images[places])
            shown = [centre(image, pixel_encoding(graph)) for image in seen]
            with np.errstate(all="ignore"):  # numbers the network was not made for may overflow, and lose
                return scores_of(graph, np.stack(shown)).astype(np.float64)

        parts = self.passes.each(run, len(images), f"trying pixels {name}")
        scores: Array = np.nan_to_num(np.concatenate(list(parts)), nan=0.0)
        if self.probabilities:
            return scores
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _likelihoods(p: Array, classes: Array) -> Array:
    """Return the logarithm of the probability of each image's class."""
    return np.asarray(np.log2(np.maximum(p[np.arange(len(p)), classes], LEAST)))


def _predicted_bits(p: Array, mirrored: Array) -> Array:
    """Return the bits that each image predicts of the class chosen for its mirror image: 0 if all images are alike."""
    chosen = mirrored.argmax(axis=1)
    usual = (p.mean(axis=0) + mirrored.mean(axis=0)) / 2
    return np.asarray(_likelihoods(p, chosen) - np.log2(np.maximum(usual[chosen], LEAST)))


def _above(gain: Array, clear: float) -> bool:
    """Return whether a mean is above zero by so many of its standard errors."""
    return bool(gain.mean() > clear * gain.std(ddof=1) / math.sqrt(len(gain)))


def usual_name(stated: Preprocessing) -> str | None:
    """Return the convention that a preprocessing is, its order and fit aside; None if it is none."""
    alike = (name for name, usual in CONVENTIONS.items() if replace(stated, order=usual.order, fit=usual.fit) == usual)
    return next(alike, None)


def fitting(conventions: Conventions, channels: int) -> dict[str, Preprocessing]:
    """Return the conventions that can be applied to pixels of `channels` channels."""
    found = {}
    for name, usual in conventions.items():
        try:
            usual.check(channels)
        except InputError:
            continue
        found[name] = usual
    return found


def named_by_layers(graph: Graph, conventions: Conventions) -> str | None:
    """Return the only convention whose pixels a network's first layers normalize; None if there is none.

    A Rescaling, a batch norm, a product or a sum with constants that reads the image takes pixels to numbers around
    zero, and of 0 … 255, 0 … 1 and −1 … 1 only one comes out so.
    """
    scale, shift = _first_map(graph)
    if np.all(scale == 1) and np.all(shift == 0):
        return None
    with np.errstate(all="ignore"):  # a channel that is multiplied by zero has no mean
        means = -shift / scale
    if np.all((means > LARGE) & (means < 255)):
        return BYTES if BYTES in conventions else None
    found = []
    for name in (name for name in BARE if name in conventions):
        low, high = np.sort(conventions[name].numbers(len(scale))[[0, 255]] * scale + shift, axis=0)
        spread = high - low
        near = np.all((low <= BESIDE * spread) & (high >= -BESIDE * spread))
        if near and np.all((spread >= NORMALIZED[0]) & (spread <= NORMALIZED[1])):
            found.append(name)
    return found[0] if len(found) == 1 else None


def _first_map(graph: Graph) -> tuple[Array, Array]:
    """Return scale and shift of all maps y = x · scale + shift at the beginning of a network, channel by channel."""
    read_by, value = readers(graph), graph.image
    scale, shift = np.ones(value.type.shape[-1]), np.zeros(value.type.shape[-1])
    while len(nodes := read_by.get(value, ())) == 1:
        found = affine(graph, nodes[0])
        if found is None or found.x != value or found.activation != "none":
            break
        a, b = found.scale.astype(np.float64), found.shift.astype(np.float64)
        scale, shift, value = scale * a, shift * a + b, nodes[0].out
    return scale, shift
