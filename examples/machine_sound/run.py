"""A sensor learns what its machine sounds like where it stands, and hears when something wears out, on a Cortex-M4.

The autoencoder that ships here has heard 300 other machines in other rooms. It learns to give back the sound of this
one, from 60 half seconds in which nothing is wrong: what it then gives back badly is unusual. Faults are never shown.
"""

from __future__ import annotations

import sys
from pathlib import Path

import smidgen as sm
from smidgen.data import examples, pixel_encoding

sys.path.append(str(Path(__file__).parents[2]))
from examples import common
from examples.machine_sound.machines import place

BOARD = "stm32f446"  # a Cortex-M4 with 128 KB of SRAM
SCHEME = "last:3"  # the layers behind the narrow middle learn
SOUNDS, TESTED = 60, 120
EPOCHS, RATE = 10, 8 / 256
STEPS = 10  # on the emulated board


def main() -> None:
    given = common.arguments(__doc__, "train/normal/*.wav, test/normal/*.wav and test/worn/*.wav in a folder")
    data = sm.load_data(given.data) if given.data else place(SOUNDS, TESTED, given.seed)
    model = sm.load(Path(__file__).parent / "model.smg")
    options = sm.Options(loss="reconstruction", seed=given.seed)
    images = examples(data.train, pixel_encoding(model))  # which set how fine gradients are at first

    def program(of: sm.Graph, target: str = BOARD) -> sm.Program:
        return sm.compile(of, SCHEME, target, options=options, images=images)

    here = program(model, "host")
    course = sm.Course(EPOCHS, RATE, augment=None, seed=given.seed, test_every=EPOCHS)  # a shift would show silence
    learned = sm.learn(here, data, course)
    board = common.on_board(here, program(model), data, RATE, STEPS)
    figures = (common.Figure("area under the ROC curve", stands_out(model, data), stands_out(learned.model, data)),)
    outcome = common.Outcome("machine_sound", len(data.train), len(data.test), figures, board)
    common.finish(given, outcome, learned.model, program)


def stands_out(model: sm.Graph, data: sm.Data) -> float:
    """How often a worn machine has a larger error than a normal one, of two sounds, one of each."""
    tested = sm.test(model, data)
    if tested.told != "nothing" or tested.auc is None:
        raise sm.InputError(f"{data.name} has to hold sounds of two classes to test with, normal and worn")
    return tested.auc


if __name__ == "__main__":
    common.start(main)
