"""The layers with weights, by which head, schemes, front ends and quantization know them: a new one is entered here."""

from smidgen.ops.conv import Conv2D, Depthwise
from smidgen.ops.dense import Dense

Windowed = Conv2D | Depthwise  # a window that slides over a map
Weighted = Windowed | Dense  # (x, weights, bias) → y
