"""What runs beside each device: it lets the device observe, hands over sums with masks, and gives it the fleet's head.

Flower starts this for each message. `--node-config` says which device it is: `number`, a `port` (host, emulated:NAME,
exec:COMMAND or a serial one), its `data`, and a file for its `sums`, which are observed once; `leaves` is for a device
that wants to be taken out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

import smidgen as sm
from smidgen.data import as_input, pixel_encoding
from smidgen.learning.sums import KeptSums, read_sums, write_sums
from smidgen.link import fitting_target
from smidgen.targets.device import Device, one_pass_of, with_sums
from smidgen.training.one_pass import features_fingerprint

from .adding import Content, Part
from .masks import masked, new_keys

app = ClientApp()


@app.query("keys")
def keys(message: Message, context: Context) -> Message:
    """Draw the keys of a round."""
    private, public = new_keys()
    context.state["secret"] = ConfigRecord({"private": private})
    number, leaves = int(context.node_config["number"]), bool(context.node_config.get("leaves", False))
    return answer(message, {"public": public, "number": number, "leaves": leaves})


@app.train("sums")
def sums(message: Message, context: Context) -> Message:
    """Hand over what the device saw, masked against the others of the round."""
    part = Part.plain(seen(context))
    secret, public = context.state["secret"]["private"], message.content["content"]["keys"]
    return answer(message, Part(masked(part.vector, secret, public), part.of).content)


@app.train("leave")
def leave(message: Message, context: Context) -> Message:
    """Hand over what the device saw as it is, to be subtracted, if it is one that leaves."""
    if not context.node_config.get("leaves", False):
        raise sm.InputError("this device does not leave, and shows its sums to nobody without masks")
    return answer(message, Part.plain(seen(context)).content)


@app.evaluate("adopt")
def adopt(message: Message, context: Context) -> Message:
    """Put the fleet's sums on the device, let it make its head of them, and test that with the device's own samples."""
    kept = Part.read(dict(message.content["content"])).kept
    with opened(context) as (program, device, data):
        device.restore(with_sums(program.graph, device.state(), kept.sums))
        device.solve()
        state, encoding = device.state(), pixel_encoding(program.graph)
        test = zip(data.test.images, data.test.labels, strict=True)
        right = sum(device.predict(as_input(image, encoding)) == label for image, label in test)
    *head, _ = one_pass_of(program.graph).lasting
    digest = sha256(b"".join(state[v.name].tobytes() for v in head)).hexdigest()
    return answer(message, {"head": digest, "right": right, "tested": len(data.test)})


def seen(context: Context) -> KeptSums:
    """Return the device's sums: out of their file, or observed now."""
    file = Path(str(context.node_config["sums"]))
    if not file.exists():
        with opened(context) as (program, device, data):
            encoding = pixel_encoding(program.graph)
            for image, label in zip(data.train.images, data.train.labels, strict=True):
                device.observe(as_input(image, encoding), label)
            write_sums(KeptSums(device.sums(), features_fingerprint(program.graph), program.graph.classes), file)
    return read_sums(file)


@contextmanager
def opened(context: Context) -> Iterator[tuple[sm.Program, Device, sm.Data]]:
    """Open the device, with the program that it runs and the samples that it meets."""
    port, data = str(context.node_config["port"]), sm.load_data(str(context.node_config["data"]))
    program = sm.compile(
        sm.load(str(context.run_config["model"])), target=fitting_target(port), one_pass=True,
        options=sm.Options(len(data.classes)), class_names=data.classes, streamed_input=port != "host",
    )  # fmt: skip
    with program.start() if port == "host" else sm.connect(port, program) as device:
        yield program, device, data


def answer(message: Message, content: Content) -> Message:
    return Message(RecordDict({"content": ConfigRecord(content)}), reply_to=message)
