"""A wristband learns the gestures of somebody who wears it the other way round, on a Cortex-M0+.

The network that ships here knows six gestures of people who wear the band as most do. On another wrist, or turned, it
sees other axes. Ten recordings of each gesture are learned with the arithmetic of the board, by all layers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import smidgen as sm
from smidgen.data import examples, pixel_encoding

sys.path.append(str(Path(__file__).parents[2]))
from examples import common
from examples.gesture.motions import draw_data

BOARD = "stm32g0b1"  # a Cortex-M0+ with 144 KB of SRAM
RECORDINGS, TESTED = 60, 300
TURNED = 90.0  # degrees
EPOCHS, RATE = 20, 2 / 256
STEPS = 60  # on the emulated board: an epoch


def main() -> None:
    given = common.arguments(__doc__, "a folder of <gesture>/*.csv, each of 64 rows of three numbers in g")
    data = sm.load_data(given.data) if given.data else draw_data(RECORDINGS, TESTED, TURNED, given.seed)
    model = sm.load(Path(__file__).parent / "model.smg")
    images = examples(data.train, pixel_encoding(model))  # which set how fine gradients are at first

    def program(of: sm.Graph, target: str = BOARD) -> sm.Program:
        known = of.classes == data.classes  # gestures of your own need a new head
        options = sm.Options(len(data.classes), head="keep" if known else "new", seed=given.seed)
        return sm.compile(of, "full", target, options=options, images=images, class_names=data.classes)

    here = program(model, "host")
    learned = sm.learn(here, data, sm.Course(EPOCHS, RATE, seed=given.seed, test_every=EPOCHS))
    board = common.on_board(here, program(model), data, RATE, STEPS)
    figures = (common.Figure("gestures recognized", learned.before, learned.accuracy),)
    outcome = common.Outcome("gesture", len(data.train), len(data.test), figures, board)
    common.finish(given, outcome, learned.model, program)


if __name__ == "__main__":
    common.start(main)
