"""Pre-train a network of the zoo in float on Tiny-ImageNet-200, on a GPU, and keep the weights of its moving average.

    python tools/pretrain.py teacher --data DIR --epochs 80 --smoothing 0 -o teacher.safetensors
    python tools/pretrain.py mcunet-5fps --data DIR --teacher teacher.safetensors -o mcunet-5fps.safetensors

With a teacher a network learns what that one, larger, says of every image as well as what the labels say.
Images lie on the GPU as bytes; crops, flips and colours are drawn there, a batch at a time: the CPU does nothing.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from backbone import TEACHER, TorchNetwork, build, read_network
from tiny_imagenet import read_images

RESOLUTION = 128
PIXEL_ZERO, PIXEL_SCALE = 128.0, 2 / 255  # a pixel's number is (pixel − 128)·2/255, as in the int8 graphs
SMALLEST_CROP, ASPECT = 0.12, 4 / 3  # of the area; of width to height
COLOUR = 0.4  # the most brightness, contrast and saturation change


@dataclass(frozen=True)
class PretrainingRecipe:
    """How to train; the learning rate rises for some epochs, then falls along a cosine to zero."""

    epochs: int
    batch: int = 512
    rate: float = 1.0
    warm_up: int = 5
    momentum: float = 0.9
    weight_decay: float = 2.5e-4
    smoothing: float = 0.1
    mixing: float = 0.5  # the most of another image that is laid over one
    average: float = 0.998  # of the weights, from step to step
    taught: float = 0.0  # how much of the loss is the teacher's
    temperature: float = 2.0  # at which the teacher is listened to
    seed: int = 0


def fast(network: TorchNetwork) -> TorchNetwork:
    """On the GPU, channels last in memory."""
    return network.cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def to_gpu(archives: list[Path]) -> tuple[Tensor, Tensor]:
    """Images [n, colours, rows, columns] and labels."""
    images, labels = read_images(archives)
    return torch.from_numpy(images.transpose(0, 3, 1, 2)).cuda().contiguous(), torch.from_numpy(labels).cuda()


def to_numbers(pixels: Tensor) -> Tensor:
    """Pixels 0 … 255 as what the network reads."""
    return (pixels - PIXEL_ZERO) * PIXEL_SCALE


def augment(images: Tensor) -> Tensor:
    """Random crops, flips and colours, enlarged to the network's resolution."""
    n, device = len(images), images.device
    area = torch.empty(n, device=device).uniform_(SMALLEST_CROP, 1)
    aspect = torch.empty(n, device=device).uniform_(-math.log(ASPECT) / 2, math.log(ASPECT) / 2).exp()
    wide, high = (area.sqrt() * aspect).clamp(max=1), (area.sqrt() / aspect).clamp(max=1)
    left, top = ((torch.rand(n, device=device) * 2 - 1) * (1 - size) for size in (wide, high))
    flip = (torch.rand(n, device=device) < 0.5).float() * 2 - 1
    zero = torch.zeros_like(wide)
    affine = torch.stack([torch.stack([wide * flip, zero, left], 1), torch.stack([zero, high, top], 1)], 1)
    grid = F.affine_grid(affine, [n, 3, RESOLUTION, RESOLUTION], align_corners=False)
    crops = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    return to_numbers(recolour(crops))


def recolour(images: Tensor) -> Tensor:
    """Brightness, contrast and saturation, each by its own random factor."""
    n = len(images)
    brightness, contrast, saturation = (
        torch.empty(n, 1, 1, 1, device=images.device).uniform_(1 - COLOUR, 1 + COLOUR) for _ in range(3)
    )
    grey = images.mean(1, keepdim=True)
    images = grey + (images - grey) * saturation
    mean = images.mean((1, 2, 3), keepdim=True)
    return ((mean + (images - mean) * contrast) * brightness).clamp(0, 255)


def mix(images: Tensor, share: Tensor) -> Tensor:
    """Each image with a share of its neighbour in the batch (mixup)."""
    return torch.lerp(images, images.roll(1, 0), share[:, None, None, None])


def mixed_loss(logits: Tensor, labels: Tensor, share: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with an image's own label and, by its share, with its neighbour's."""
    own, other = (
        F.cross_entropy(logits, known, label_smoothing=smoothing, reduction="none")
        for known in (labels, labels.roll(1))
    )
    return torch.lerp(own, other, share).mean()


def taught_loss(logits: Tensor, guide: Tensor, temperature: float) -> Tensor:
    """How far the network's probabilities are from the teacher's, both softened."""
    said, wanted = (F.log_softmax(x / temperature, dim=1) for x in (logits, guide))
    return F.kl_div(said, wanted, reduction="batchmean", log_target=True) * temperature**2


def enlarge(images: Tensor) -> Tensor:
    """Images as they are validated: whole, at the network's resolution."""
    size = (RESOLUTION, RESOLUTION)
    return to_numbers(F.interpolate(images.float(), size=size, mode="bilinear", align_corners=False))


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Top-1 in percent, in float32."""
    network.eval()
    right = 0
    for i in range(0, len(images), 500):
        x = enlarge(images[i : i + 500]).contiguous(memory_format=torch.channels_last)
        right += int((network(x).argmax(1) == labels[i : i + 500]).sum())
    network.train()
    return 100 * right / len(images)


class Trainer:
    """A network, its moving average, and one step captured as a CUDA graph: small networks starve on launches."""

    def __init__(
        self,
        network: TorchNetwork,
        teacher: TorchNetwork | None,
        data: tuple[Tensor, Tensor],
        recipe: PretrainingRecipe,
    ) -> None:
        self.images, self.labels = data
        self.network, self.teacher, self.recipe = network, teacher, recipe
        self.average = copy.deepcopy(network)
        decayed = [p for p in self.network.parameters() if p.ndim > 1]
        plain = [p for p in self.network.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        self.rate = torch.zeros((), device="cuda")
        self.optimizer = torch.optim.SGD(groups, lr=self.rate, momentum=recipe.momentum, nesterov=True, fused=True)
        self.indices = torch.zeros(recipe.batch, dtype=torch.int64, device="cuda")
        self.loss = torch.zeros((), device="cuda")

    def step(self) -> None:
        """One step on the images at `indices`, at `rate`."""
        labels = self.labels[self.indices]
        share = self.recipe.mixing * torch.rand(len(labels), device="cuda") ** 2
        x = mix(augment(self.images[self.indices]), share).contiguous(memory_format=torch.channels_last)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.network(x)
        loss = mixed_loss(logits.float(), labels, share, self.recipe.smoothing)
        if self.teacher is not None:
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                guide = self.teacher(x)
            loss = torch.lerp(
                loss, taught_loss(logits.float(), guide.float(), self.recipe.temperature), self.recipe.taught
            )
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.loss.copy_(loss.detach())
        follow(self.average, self.network, self.recipe.average)

    def capture(self) -> torch.cuda.CUDAGraph:
        """The step as one graph, after a few in the open."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, by: float) -> None:
    """Move an average of weights and of normalization's moments towards the network's."""
    pairs = [(a, b) for a, b in zip(average.state_dict().values(), network.state_dict().values(), strict=True)]
    floats = [(a, b) for a, b in pairs if a.dtype == torch.float32]
    torch._foreach_lerp_([a for a, _ in floats], [b for _, b in floats], 1 - by)


def rate_at(step: int, steps: int, recipe: PretrainingRecipe) -> float:
    warm = recipe.warm_up * steps // recipe.epochs
    if step < warm:
        return recipe.rate * (step + 1) / warm
    return recipe.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def train(trainer: Trainer, validate: tuple[Tensor, Tensor]) -> None:
    """All epochs; a line every tenth."""
    recipe, count = trainer.recipe, len(trainer.images)
    graph, per_epoch = trainer.capture(), count // recipe.batch
    trainer.average.load_state_dict(trainer.network.state_dict())
    steps, begin = recipe.epochs * per_epoch, time.perf_counter()
    for epoch in range(recipe.epochs):
        order = torch.randperm(count, device="cuda")
        for i in range(per_epoch):
            trainer.rate.fill_(rate_at(epoch * per_epoch + i, steps, recipe))
            trainer.indices.copy_(order[i * recipe.batch : (i + 1) * recipe.batch])
            graph.replay()
        if epoch % 10 == 9 or epoch == recipe.epochs - 1:
            seconds = time.perf_counter() - begin
            plain, averaged = (accuracy(network, *validate) for network in (trainer.network, trainer.average))
            said = f"val top-1 {plain:.2f}, averaged {averaged:.2f}"
            print(f"epoch {epoch + 1:4} loss {float(trainer.loss):.3f} {said}, {seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help=f"a network of the zoo, or {TEACHER}")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, help="what this tool wrote of a larger network")
    parser.add_argument("--taught", type=float, default=0.7, help="how much of the loss is the teacher's")
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--rate", type=float, default=PretrainingRecipe.rate)
    parser.add_argument("--weight-decay", type=float, default=PretrainingRecipe.weight_decay)
    parser.add_argument("--smoothing", type=float, default=PretrainingRecipe.smoothing)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a .safetensors file")
    given = parser.parse_args()
    recipe = PretrainingRecipe(
        given.epochs, rate=given.rate, weight_decay=given.weight_decay, smoothing=given.smoothing,
        taught=given.taught if given.teacher else 0.0,
    )  # fmt: skip
    torch.manual_seed(recipe.seed)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    images, labels = to_gpu(sorted(given.data.glob("train_*.npz")))
    validate = to_gpu([given.data / "val.npz"])
    classes = int(labels.max()) + 1
    teacher = fast(read_network(given.teacher, classes)[0]) if given.teacher else None
    trainer = Trainer(fast(build(given.name, classes)), teacher, (images, labels), recipe)
    train(trainer, validate)
    top = accuracy(trainer.average, *validate)
    card = {"name": given.name, "top1": f"{top:.2f}", "recipe": json.dumps(asdict(recipe))}
    save_file({k: v.contiguous() for k, v in trainer.average.state_dict().items()}, given.output, metadata=card)
    print(f"{given.name}: val top-1 {top:.2f} %")


if __name__ == "__main__":
    main()
