"""A course's samples on a PyTorch device: the bytes that the host's `Course.image` and `as_input` make, many at a time.

Pillow resizes in two passes, along the rows and then along the columns. Every output pixel is a sum of input pixels
times whole coefficients of 22 fraction bits, rounded to a byte after each pass. Here a pass is a matrix product in
float64, which holds these sums exactly; the coefficients are computed in Pillow's order, so that they round alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smidgen.data import PixelEncoding, Samples, as_input
from smidgen.data.images import Crop, centre_box, image_shape, in_colours
from smidgen.data.inputs import kind_of
from smidgen.data.pixels import pixel_table
from smidgen.learning.course import Course

FRACTION = 1 << 22  # one, as Pillow's coefficients have it
MOST_IMAGES = 256  # resized at once
MOST_PIXELS = 1 << 23  # of the windows they are resized from: bounds the memory beside the images

Numbers = NDArray[Any]


class CourseImages:
    """The samples of a course on a PyTorch device, in the bytes the host's course shows."""

    def __init__(self, samples: Samples, encoding: PixelEncoding, course: Course, device: torch.device | str) -> None:
        kinds = {kind_of(sample, encoding.type) for sample in samples.images}
        self._stored = _Stored(samples, encoding, device) if kinds <= {"picture"} else None
        self._fixed = _encoded(samples, encoding, device) if kinds == {"tensor"} else None
        self._samples, self._encoding, self._course = samples, encoding, course
        self._labels = torch.tensor(samples.labels, dtype=torch.int64, device=device)

    def epoch(self, number: int) -> tuple[Tensor, Tensor]:
        """Every sample [n, …] and label [n] in the order of an epoch, counted from 0."""
        ((images, labels),) = self.chunks(number, len(self._labels))
        return images, labels

    def chunks(self, number: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The same in parts of `size`, the last one of what is left."""
        order = np.array(self._course.order(number, len(self._labels)), np.int64)
        for start in range(0, len(order), size):
            places = order[start : start + size]
            yield self._shown(number, places), self._labels[torch.from_numpy(places).to(self._labels.device)]

    def _shown(self, number: int, places: Numbers) -> Tensor:
        if self._fixed is not None:
            return self._fixed[torch.from_numpy(places).to(self._fixed.device)]
        if self._stored is None:
            made = [self._course.image(self._samples.images[i], self._encoding, number, i) for i in places.tolist()]
            return torch.from_numpy(np.concatenate(made)).to(self._labels.device)
        sizes = self._stored.sizes[places].tolist()
        views = [
            self._course.view(height, width, self._encoding, number, index)
            for (height, width), index in zip(sizes, places.tolist(), strict=True)
        ]
        return self._stored.resized(places, [box for box, _ in views], [flipped for _, flipped in views])


def centred(samples: Samples, encoding: PixelEncoding, device: torch.device | str) -> Tensor:
    """Every sample [n, …] as `as_input` makes it."""
    if any(kind_of(sample, encoding.type) != "picture" for sample in samples.images):
        return _encoded(samples, encoding, device)
    stored = _Stored(samples, encoding, device)
    boxes = [centre_box(height, width, encoding) for height, width in stored.sizes.tolist()]
    return stored.resized(np.arange(len(samples)), boxes, [False] * len(samples))


def _encoded(samples: Samples, encoding: PixelEncoding, device: torch.device | str) -> Tensor:
    return torch.from_numpy(np.concatenate([as_input(sample, encoding) for sample in samples.images])).to(device)


@dataclass(frozen=True, eq=False)
class _Axis:
    """One axis of a group of boxes: where each lies in an image, and the window of pixels it may read."""

    low: Numbers  # float32, as Pillow takes it
    high: Numbers
    size: Numbers  # of the image
    start: Numbers  # of the window
    stop: Numbers

    @staticmethod
    def of(low: Numbers, high: Numbers, size: Numbers, count: int) -> _Axis:
        """The windows for `count` outputs; a pixel wider than need be, whatever rounds."""
        low, high = low.astype(np.float32), high.astype(np.float32)
        reach = np.maximum((high - low) / count, 1.0) + 1.0
        start = np.clip(np.floor(low - reach), 0, size).astype(np.int64)
        stop = np.clip(np.ceil(high + reach), 0, size).astype(np.int64)
        return _Axis(low, high, size, start, stop)

    @property
    def lengths(self) -> Numbers:
        return self.stop - self.start

    def at(self, group: Numbers) -> _Axis:
        parts = (self.low, self.high, self.size, self.start, self.stop)
        return _Axis(*(part[group] for part in parts))

    def matrices(self, count: int, device: torch.device) -> Tensor:
        """The coefficients of `count` outputs, float64 [n, count, length of the longest window]."""
        low, high, size, start = (
            torch.from_numpy(part).to(device)[:, None] for part in (self.low, self.high, self.size, self.start)
        )
        scale = (high - low).double() / torch.full_like(low, count, dtype=torch.float64)
        reach = scale.clamp(min=1.0)
        centres = low.double() + (torch.arange(count, device=device) + 0.5).double() * scale
        first = (centres - reach + 0.5).trunc().clamp_(min=0.0)
        last = (centres + reach + 0.5).trunc().minimum(size.double())
        longest = 2 * int(np.ceil(np.maximum((self.high - self.low) / count, 1.0).max())) + 2
        taps = first[..., None] + torch.arange(longest, device=device)
        distances = ((taps - centres[..., None] + 0.5) * (torch.ones_like(reach) / reach)[..., None]).abs_()
        weights = (1.0 - distances).clamp_(min=0.0) * (taps < last[..., None])
        sums = torch.zeros_like(centres)
        for tap in weights.unbind(-1):  # one after another, as they round
            sums += tap
        whole = (weights / sums[..., None] * FRACTION + 0.5).trunc_()
        length = int(self.lengths.max())
        dense = torch.zeros((*centres.shape, length + longest), dtype=torch.float64, device=device)
        return dense.scatter_(2, (taps - start[..., None]).long(), whole)[..., :length]


class _Stored:
    """Images of any sizes on a device, one behind the other, in the colours a model sees."""

    def __init__(self, samples: Samples, encoding: PixelEncoding, device: torch.device | str) -> None:
        _, self._rows, self._columns, self._colours = image_shape(encoding)
        self._device = torch.device(device)
        seen = [np.asarray(in_colours(image, encoding)) for image in samples.images]
        self.sizes = np.array([image.shape[:2] for image in seen], np.int64).reshape(-1, 2)
        areas = self.sizes.prod(axis=1)
        self._begins = np.cumsum(areas) - areas
        bands = 1 if all(image.ndim == 2 for image in seen) else 3
        flat = np.concatenate([np.zeros((0, bands), np.uint8), *(image.reshape(-1, bands) for image in seen)])
        self._pixels = torch.from_numpy(flat).to(self._device)
        table = torch.from_numpy(pixel_table(encoding)).to(self._device)
        reverse = encoding.preprocessing is not None and encoding.preprocessing.order == "bgr"
        self._channels = torch.arange(self._colours, device=self._device)
        self._sources = (self._channels.flip(0) if reverse else self._channels) % bands
        self._table = table

    def resized(self, places: Numbers, boxes: list[Crop], flipped: list[bool]) -> Tensor:
        """Return the boxes of the images at these places as a model's input."""
        shape = (len(places), self._rows, self._columns, self._colours)
        shown = torch.empty(shape, dtype=self._table.dtype, device=self._device)
        edges = np.array(boxes, np.float64).reshape(-1, 4).T
        heights, widths = self.sizes[places].T
        across = _Axis.of(edges[0], edges[2], widths, self._columns)
        down = _Axis.of(edges[1], edges[3], heights, self._rows)
        flips = np.array(flipped, np.bool_)
        for group in _groups(down.lengths, across.lengths):
            pixels = self._bytes(places[group], down.at(group), across.at(group))
            mirrored = torch.from_numpy(flips[group]).to(self._device)[:, None, None, None]
            pixels = torch.where(mirrored, pixels.flip(2), pixels)[..., self._sources]
            shown[torch.from_numpy(group).to(self._device)] = self._table[pixels, self._channels]
        return shown

    def _bytes(self, places: Numbers, down: _Axis, across: _Axis) -> Tensor:
        """Pillow's bytes, as int64 [n, rows, columns, bands]."""
        widths, begins = across.size, self._begins[places]
        rows = down.start[:, None] + np.arange(down.lengths.max())
        columns = across.start[:, None] + np.arange(across.lengths.max())
        rows, columns = np.minimum(rows, down.size[:, None] - 1), np.minimum(columns, widths[:, None] - 1)
        lines, steps = (
            torch.from_numpy(part).to(self._device) for part in (begins[:, None] + rows * widths[:, None], columns)
        )
        window = self._pixels[lines[:, :, None] + steps[:, None, :]].permute(0, 1, 3, 2)  # [n, rows, bands, columns]
        n, height, bands, width = window.shape
        horizontal = across.matrices(self._columns, self._device).transpose(1, 2)
        narrow = _rounded(window.double().reshape(n, height * bands, width) @ horizontal)
        vertical = down.matrices(self._rows, self._device)
        small = _rounded(vertical @ narrow.reshape(n, height, bands * self._columns))
        return small.reshape(n, self._rows, bands, self._columns).permute(0, 1, 3, 2).long()


def _rounded(sums: Tensor) -> Tensor:
    """Sums of 22 fraction bits as bytes, halves up."""
    return sums.add_(FRACTION / 2).mul_(1 / FRACTION).floor_().clamp_(0.0, 255.0)


def _groups(heights: Numbers, widths: Numbers) -> Iterator[Numbers]:
    """Windows of like sizes together, within what is resized at once."""
    order = np.argsort(heights * widths, kind="stable")
    start, tallest, widest = 0, 0, 0
    for end, place in enumerate(order):
        tallest, widest = max(tallest, heights[place]), max(widest, widths[place])
        count = end - start + 1
        if count > 1 and (count > MOST_IMAGES or count * tallest * widest > MOST_PIXELS):
            yield order[start:end]
            start, tallest, widest = end, heights[place], widths[place]
    if len(order):
        yield order[start:]
