"""LiteRT's reference kernels as an oracle: what they compute for a `.tflite` file."""

from __future__ import annotations

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from smidgen.ir import Array


class LiteRT:
    """A model loaded once, to be run many times."""

    def __init__(self, model: bytes, kernels: OpResolverType = OpResolverType.BUILTIN_REF) -> None:
        self.interpreter = Interpreter(model_content=model, experimental_op_resolver_type=kernels, num_threads=1)
        self.interpreter.allocate_tensors()
        self.inputs = [detail["index"] for detail in self.interpreter.get_input_details()]
        self.outputs = [detail["index"] for detail in self.interpreter.get_output_details()]

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        for index, array in zip(self.inputs, arrays, strict=True):
            self.interpreter.set_tensor(index, array)
        self.interpreter.reset_all_variables()  # of recurrent layers, which begin at zero here in every run
        self.interpreter.invoke()
        return tuple(self.interpreter.get_tensor(index) for index in self.outputs)


def run_litert(model: bytes, *arrays: Array, kernels: OpResolverType = OpResolverType.BUILTIN_REF) -> tuple[Array, ...]:
    """The model's outputs, in the file's order, by LiteRT's reference kernels unless others are asked for."""
    return LiteRT(model, kernels).run(*arrays)
