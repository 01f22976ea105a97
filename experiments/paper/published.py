"""The paper's own figures, in percent and kilobytes, beside which ours stand; for MCUNet-5FPS unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping

By = Mapping[str, float]  # by data set

# Table 1: last two blocks, batch 128, 50 epochs (VWW 10), best of several rates.
OPTIMIZERS: Mapping[tuple[str, str, bool], By] = {
    ("fp32", "momentum", True): {"flowers102": 88.8, "cars196": 56.7, "cifar10": 86.0, "vww": 88.7},
    ("int8", "momentum", False): {"flowers102": 84.5, "cars196": 31.2, "cifar10": 75.4, "vww": 85.4},
    ("int8", "adam", False): {"flowers102": 87.2, "cars196": 54.0, "cifar10": 84.5, "vww": 86.5},
    ("int8", "lars", False): {"flowers102": 28.8, "cars196": 5.1, "cifar10": 64.8, "vww": 85.0},
    ("int8", "momentum", True): {"flowers102": 89.1, "cars196": 55.2, "cifar10": 86.9, "vww": 89.3},
}
# Appendix, batch and momentum: last two blocks, SGD with QAS.
BATCHES: Mapping[tuple[int, str], By] = {
    (128, "momentum"): {"flowers102": 89.1, "cars196": 55.2, "vww": 89.3},
    (128, "sgd"): {"flowers102": 87.3, "cars196": 47.8, "vww": 88.8},
    (1, "momentum"): {"flowers102": 88.5, "cars196": 47.8, "vww": 86.2},
    (1, "sgd"): {"flowers102": 88.7, "cars196": 51.1, "vww": 86.0},
}
# Appendix, the classifier's type: last two blocks, batch 128, momentum and QAS.
HEADS: Mapping[str, By] = {
    "float32": {"flowers102": 89.1, "cars196": 55.2, "cifar10": 86.9, "vww": 89.3},
    "int8": {"flowers102": 82.5, "cars196": 50.8, "cifar10": 86.1, "vww": 87.8},
}
# Appendix, gradient accumulation: batch 1.
ACCUMULATION: Mapping[bool, By] = {False: {"vww": 86.6}, True: {"vww": 89.1}}
# The release's hyper-parameters, 50 epochs, batch 128, no momentum, QAS unless said otherwise.
SCHEMES: Mapping[tuple[str, bool], By] = {
    ("last:6", False): {"flowers102": 84.3},
    ("last:6", True): {"flowers102": 88.1},
    ("99kb", True): {"flowers102": 88.8},
    ("last:12", True): {"flowers102": 87.7},
    ("full", True): {"flowers102": 1.1},  # diverged
}
SCHEMES_MBV2: Mapping[tuple[str, bool], By] = {  # the mean of the appendix's three runs
    ("99kb", True): {"flowers102": 85.53, "cars196": 52.32, "cifar10": 86.99, "vww": 88.40},
}
# SRAM of a training step, measured on an STM32F746: full update, and sparse with graph optimization; ms per step.
SRAM_KB: Mapping[str, tuple[int, int]] = {
    "mbv2-w0.35": (2939, 141), "proxyless-w0.3": (2745, 135), "mcunet-5fps": (3650, 173),
}  # fmt: skip
STEP_MS: Mapping[str, int] = {"mbv2-w0.35": 373, "proxyless-w0.3": 443, "mcunet-5fps": 546}
CHIP_MHZ = 216
SIZES: Mapping[str, str] = {  # of the sets the paper learned, train / test
    "flowers102": "2,040 / 6,149", "cars196": "8,144 / 8,041", "cifar10": "50,000 / 10,000",
    "vww": "about 115,000 / 8,000",
}  # fmt: skip
