"""Keras files compute what Keras computes: every layer that is read, in `.keras` and in `.h5`, models within models."""

from __future__ import annotations

import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import smidgen as sm
from smidgen.errors import ImportModelError
from smidgen.frontends import import_model
from smidgen.frontends.keras.hdf5 import Hdf5Group, read_hdf5
from smidgen.frontends.keras.layers import ACTIVATIONS, LAYERS, ONLY_TRAINING
from smidgen.ir import Array, evaluate
from smidgen.ops import Dense
from tests.support.release_files import SHARED

CORPUS = Path(__file__).parents[1] / "corpus" / "keras"
MAP, LINE, ROW = (6, 7, 4), (9, 4), (5,)


def import_keras() -> ModuleType:
    """Import Keras over PyTorch, without the warnings it prints meanwhile."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("keras")


@pytest.fixture(scope="module")
def keras() -> ModuleType:
    try:
        return import_keras()
    except ModuleNotFoundError:
        pytest.skip("Keras files cannot be compared with Keras, which is not installed: pip install keras h5py")


Build = Callable[[Any], Any]  # of keras.layers, a layer


def with_activation(name: str, layers: Any) -> Any:
    return layers.Activation(name)


def over_time(padding: str, layers: Any) -> Any:
    return layers.Conv1D(3, 3, padding=padding, activation="relu")


def enlarged(padding: str, stride: int, layers: Any) -> Any:
    return layers.Conv2DTranspose(3, 3, stride, padding)


CASES: dict[str, list[tuple[tuple[int, ...], Build]]] = {
    "Activation": [(ROW, partial(with_activation, name)) for name in ACTIVATIONS],
    "AveragePooling1D": [(LINE, lambda k: k.AveragePooling1D(2, padding="same"))],
    "AveragePooling2D": [(MAP, lambda k: k.AveragePooling2D((2, 3), padding="same"))],
    "BatchNormalization": [(MAP, lambda k: k.BatchNormalization()), (ROW, lambda k: k.BatchNormalization(scale=False)),
                           (LINE, lambda k: k.BatchNormalization(center=False))],
    "Conv1D": [(LINE, partial(over_time, padding)) for padding in ("same", "valid", "causal")],
    "Conv2D": [(MAP, lambda k: k.Conv2D(6, 3, 2, "same")),
               (MAP, lambda k: k.Conv2D(6, (2, 3), groups=2, use_bias=False)),
               (MAP, lambda k: k.Conv2D(5, 2, dilation_rate=2, activation="tanh"))],
    "Conv1DTranspose": [(LINE, lambda k: k.Conv1DTranspose(3, 3, 2, "same"))],
    "Conv2DTranspose": [(MAP, partial(enlarged, padding, s)) for padding in ("same", "valid") for s in (1, 2, 4)],
    "Cropping1D": [(LINE, lambda k: k.Cropping1D((1, 2)))],
    "Cropping2D": [(MAP, lambda k: k.Cropping2D(((1, 0), (2, 1)))), (MAP, lambda k: k.Cropping2D(2))],
    "Dense": [(ROW, lambda k: k.Dense(3, "softmax")), (MAP, lambda k: k.Dense(3, use_bias=False))],
    "DepthwiseConv1D": [(LINE, lambda k: k.DepthwiseConv1D(3, depth_multiplier=2))],
    "DepthwiseConv2D": [(MAP, lambda k: k.DepthwiseConv2D((3, 2), 2, "same", depth_multiplier=2, activation="relu"))],
    "ELU": [(ROW, lambda k: k.ELU(0.7))],
    "Flatten": [(MAP, lambda k: k.Flatten())],
    "GlobalAveragePooling1D": [(LINE, lambda k: k.GlobalAveragePooling1D())],
    "GlobalAveragePooling2D": [(MAP, lambda k: k.GlobalAveragePooling2D(keepdims=True))],
    "GlobalMaxPooling1D": [(LINE, lambda k: k.GlobalMaxPooling1D())],
    "GlobalMaxPooling2D": [(MAP, lambda k: k.GlobalMaxPooling2D())],
    "LeakyReLU": [(MAP, lambda k: k.LeakyReLU(0.15))],
    "MaxPooling1D": [(LINE, lambda k: k.MaxPooling1D(3, 1))],
    "MaxPooling2D": [(MAP, lambda k: k.MaxPooling2D(2, padding="same")), (MAP, lambda k: k.MaxPooling2D((3, 2), 1))],
    "Normalization": [(ROW, lambda k: k.Normalization(mean=[0.1] * 5, variance=[2.0] * 5))],
    "PReLU": [(MAP, lambda k: k.PReLU(shared_axes=[1, 2])), (ROW, lambda k: k.PReLU()), (MAP, lambda k: k.PReLU())],
    "Permute": [(MAP, lambda k: k.Permute((3, 1, 2)))],
    "ReLU": [(MAP, lambda k: k.ReLU()), (MAP, lambda k: k.ReLU(6.0)), (MAP, lambda k: k.ReLU(0.7)),
             (MAP, lambda k: k.ReLU(negative_slope=0.2))],
    "Rescaling": [(MAP, lambda k: k.Rescaling(1 / 127.5, -1))],
    "Reshape": [(MAP, lambda k: k.Reshape((-1, 14)))],
    "SeparableConv1D": [(LINE, lambda k: k.SeparableConv1D(5, 3))],
    "SeparableConv2D": [(MAP, lambda k: k.SeparableConv2D(5, 3, padding="same", activation="relu"))],
    "Softmax": [(MAP, lambda k: k.Softmax())],
    "UpSampling1D": [(LINE, lambda k: k.UpSampling1D(3))],
    "UpSampling2D": [(MAP, lambda k: k.UpSampling2D((2, 3))),
                     (MAP, lambda k: k.UpSampling2D(2, interpolation="bilinear"))],
    "ZeroPadding1D": [(LINE, lambda k: k.ZeroPadding1D((2, 1)))],
    "ZeroPadding2D": [(MAP, lambda k: k.ZeroPadding2D(((1, 2), (0, 3)))), (MAP, lambda k: k.ZeroPadding2D(1))],
}  # fmt: skip
JOINS: dict[str, Build] = {
    "Add": lambda k: k.Add(), "Average": lambda k: k.Average(), "Concatenate": lambda k: k.Concatenate(axis=1),
    "Maximum": lambda k: k.Maximum(), "Multiply": lambda k: k.Multiply(), "Subtract": lambda k: k.Subtract(),
}  # fmt: skip


def shaken(model: Any) -> Any:
    """Weights as after training: no bias is zero, no variance one."""
    rng = np.random.default_rng(1)
    for variable in model.weights:
        if "seed" not in variable.path:
            variable.assign(rng.uniform(0.2, 1.1, variable.shape) * rng.choice((0.5, 1.0)))
    return model


def assert_alike(keras: ModuleType, model: Any, folder: Path, close: float = 2e-5) -> None:
    """Read from both kinds of file, the model gives what Keras gives."""
    shape = (1, *model.inputs[0].shape[1:])
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras calls its own h5 files old
        expected = model.predict(x, verbose=0)
        for name in ("model.keras", "model.h5"):
            model.save(folder / name)
    for name in ("model.keras", "model.h5"):
        (found,) = evaluate(import_model(folder / name), x)
        assert found.shape == expected.shape, name
        np.testing.assert_allclose(found, expected, rtol=close, atol=close)


def test_every_layer_that_is_read_has_a_case() -> None:
    assert {*CASES, *JOINS, *ONLY_TRAINING} == set(LAYERS)


@pytest.mark.parametrize("kind", CASES)
def test_a_layer_computes_what_keras_computes(kind: str, keras: ModuleType, tmp_path: Path) -> None:
    for shape, build in CASES[kind]:
        layer = build(keras.layers)
        assert type(layer).__name__ == kind
        assert_alike(keras, shaken(keras.Sequential([keras.Input(shape), layer])), tmp_path)


@pytest.mark.parametrize("kind", JOINS)
def test_what_joins_maps_computes_what_keras_computes(kind: str, keras: ModuleType, tmp_path: Path) -> None:
    layers, x = keras.layers, keras.Input(MAP)
    parts = [layers.Conv2D(4, 3, padding="same")(x), x]
    model = keras.Model(x, JOINS[kind](layers)(parts))
    assert_alike(keras, shaken(model), tmp_path)


def test_what_only_changes_training_leaves_no_node(keras: ModuleType, tmp_path: Path) -> None:
    layers = keras.layers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = keras.Sequential([keras.Input(MAP), layers.RandomFlip(), layers.Flatten(), layers.Dropout(0.5),
                                  layers.GaussianNoise(0.1), layers.Dense(2)])  # fmt: skip
        model.save(tmp_path / "model.keras")
    graph = import_model(tmp_path / "model.keras")
    assert [type(node.op).__name__ for node in graph.nodes] == ["Reshape", "Dense"]


def nested(keras: ModuleType) -> Any:
    """A model in a model, a layer that is called twice, and layers of the same names in both."""
    layers, x = keras.layers, keras.Input((8, 8, 3), name="picture")
    base = keras.Sequential([keras.Input((8, 8, 4)), layers.DepthwiseConv2D(3, padding="same", name="same"),
                             layers.Conv2D(4, 1)], name="base")  # fmt: skip
    shared = layers.Conv2D(4, 3, padding="same", name="shared")
    y = shared(layers.Conv2D(4, 1, name="same")(x))
    y = layers.BatchNormalization()(shared(y))
    y = layers.Add()([base(y), y])
    y = layers.GlobalAveragePooling2D()(layers.ReLU(6.0)(y))
    return shaken(keras.Model(x, layers.Dense(3, activation="softmax")(y)))


def test_models_within_models_and_shared_layers_are_followed(keras: ModuleType, tmp_path: Path) -> None:
    assert_alike(keras, nested(keras), tmp_path)
    assert [v.name for v in import_model(tmp_path / "model.keras").inputs] == ["picture"]


def by_keras(keras: ModuleType, path: Path, x: Array) -> Array:
    """The network of that file, which Keras 3 cannot build from it any more, with the weights that it reads itself."""
    k = keras.layers
    layers = [k.Conv2D(16, 3, activation="relu"), k.Conv2D(24, 3, activation="relu"), k.MaxPooling2D(), k.Dropout(0.25),
              k.Conv2D(32, 3, activation="relu"), k.MaxPooling2D(), k.Dropout(0.25), k.Flatten(), k.Dense(30, "relu"),
              k.Dropout(0.5), k.Dense(10, "softmax")]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = keras.Sequential([keras.Input((28, 28, 1)), *layers])
        model.load_weights(path)
        found: Array = model.predict(x, verbose=0)
    return found


def test_a_file_of_2019_is_read_quantized_and_learns_its_head(keras: ModuleType, tmp_path: Path) -> None:
    path = SHARED / "models" / "wild" / "openmv-mnist_cnn.h5"
    if not path.exists():
        pytest.skip(f"models from the wild are not beside the checkout: no {path.name}")
    graph = import_model(path)
    assert [type(node.op).__name__ for node in graph.nodes].count("Conv2D") == 3
    x = np.random.default_rng(0).normal(size=(1, 28, 28, 1)).astype(np.float32)
    np.testing.assert_allclose(evaluate(graph, x)[0], by_keras(keras, path, x), rtol=1e-4, atol=1e-6)
    images = tuple(np.random.default_rng(i).uniform(0, 1, (28, 28, 1)).astype(np.float32) for i in range(8))
    program = sm.compile(sm.quantize(graph, images).graph, "head", options=sm.Options(10))
    with program.start() as device:
        image = np.zeros(program.graph.image.type.shape, np.int8)
        losses = [device.train(image, 3, 0.1) for _ in range(5)]
    assert losses[-1] < losses[0]


def archive(**changed: bytes) -> bytes:
    """The seed's members, some of them changed."""
    with zipfile.ZipFile(CORPUS / "nested.keras") as seed:
        members = {name: seed.read(name) for name in seed.namelist()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, data in {**members, **{f"{key.replace('_', '.')}": value for key, value in changed.items()}}.items():
            made.writestr(name, data)
    return file.getvalue()


def config(change: Callable[[dict[str, Any]], None]) -> bytes:
    with zipfile.ZipFile(CORPUS / "nested.keras") as seed:
        model = json.loads(seed.read("config.json"))
    change(model)
    return archive(config_json=json.dumps(model).encode())


def layer_of(model: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(one for one in model["config"]["layers"] if one["class_name"] == kind)


def renamed(model: dict[str, Any]) -> None:
    layer_of(model, "ReLU")["class_name"] = "Lambda"
    layer_of(model, "Add")["class_name"] = "MultiHeadAttention"


def opened(model: dict[str, Any]) -> None:
    layer_of(model, "InputLayer")["config"]["batch_shape"] = [None, None, 8, 3]


def crossed(model: dict[str, Any]) -> None:
    layer_of(model, "BatchNormalization")["inbound_nodes"][0]["args"][0]["config"]["keras_history"][0] = "add"


def first(model: dict[str, Any]) -> None:
    layer_of(model, "Conv2D")["config"]["data_format"] = "channels_first"


def wider(model: dict[str, Any]) -> None:
    layer_of(model, "Dense")["config"]["units"] = 7


def lacking(model: dict[str, Any]) -> None:
    layer_of(model, "Dense")["config"]["name"] = "another"


def cubic(model: dict[str, Any]) -> None:
    layer_of(model, "Dense")["config"]["activation"] = "cubic"


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "layers without a rule": (lambda: config(renamed), "are 1 × Lambda, 1 × MultiHeadAttention; convert"),
    "an open size": (lambda: config(opened), r"'picture' has the shape \[None, None, 8, 3\]: only the batch"),
    "a circle": (lambda: config(crossed), "reads what no layer gives, or itself"),
    "channels first": (lambda: config(first), r"'same' \(Conv2D\): its data_format is not channels_last"),
    "weights of another size": (lambda: config(wider), r"its weight 0 is \[4, 3\], expected \[4, 7\]"),
    "no weights": (lambda: config(lacking), r"'another' \(Dense\): the file holds 0 of its weights"),
    "an unknown activation": (lambda: config(cubic), "its activation is 'cubic'; read are linear, relu"),
    "no description": (lambda: archive(config_json=b"[]"), "should be a mapping"),
    "damaged weights": (lambda: archive(model_weights_h5=b"\x89HDF\r\n\x1a\n" + bytes(200)), r"model\.weights\.h5 "),
    "weights alone": (lambda: (CORPUS / "nested.h5").read_bytes().replace(b"model_config", b"model_confjg"),
                      "holds weights alone, without the model"),
    "another file": (lambda: b"something else", "not a complete archive"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_supported_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    made, sentence = REFUSED[what]
    path = tmp_path / "model.keras"
    path.write_bytes(made())
    with pytest.raises(ImportModelError, match=sentence) as caught:
        import_model(path)
    assert str(caught.value).startswith("model.keras")
    assert "\n" not in str(caught.value)


def test_the_page_lists_every_layer() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "keras.md").read_text()
    listed = re.findall(r"\b[A-Z]\w+(?=[,.])", page.partition("## Layers")[2])
    assert set(listed) == set(LAYERS)


def test_our_reading_of_hdf5_is_that_of_its_library() -> None:
    h5py = pytest.importorskip("h5py", reason="SKIPPED: HDF5 beside its library, which pip install h5py brings")
    path = CORPUS / "nested.h5"
    ours = read_hdf5(path.read_bytes(), "nested.h5")
    with h5py.File(path) as theirs:
        assert ours.attributes["model_config"] == theirs.attrs["model_config"]
        names: list[str] = []
        theirs.visit(names.append)
        for name in names:
            *parents, last = name.split("/")
            group = ours.group(*parents)
            assert group is not None
            assert last in group.members, name
            if list(theirs[name].attrs.get("weight_names", [])):
                held = group.members[last]
                assert isinstance(held, Hdf5Group)
                assert list(held.attributes["weight_names"]) == list(theirs[name].attrs["weight_names"])


def test_a_head_of_a_keras_model_is_its_last_dense_layer() -> None:
    graph = import_model(CORPUS / "nested.keras")
    assert isinstance(graph.nodes[-2].op, Dense)


def test_names_too_long_for_one_attribute_are_read_from_several(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="SKIPPED: HDF5 is not written without its library, pip install h5py")
    path = tmp_path / "model.h5"
    path.write_bytes((CORPUS / "nested.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        attributes = file["model_weights"]["base"].attrs
        names = list(attributes["weight_names"])
        del attributes["weight_names"]
        attributes["weight_names0"], attributes["weight_names1"] = names[:1], names[1:]
    x = np.random.default_rng(0).normal(size=(1, 8, 8, 3)).astype(np.float32)
    (found,), (expected,) = evaluate(import_model(path), x), evaluate(import_model(CORPUS / "nested.h5"), x)
    np.testing.assert_array_equal(found, expected)
