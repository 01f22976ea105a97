"""A camera learns who is a person from 100 pictures, in 128 KB of SRAM.

A network that knows nothing of people but has seen a million other pictures learns two classes: what is worth training
within the budget is searched for, and learned with the arithmetic of the board.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import smidgen as sm
from smidgen.data import examples, pixel_encoding

sys.path.append(str(Path(__file__).parents[2]))
from examples import common
from examples.person_detection.drawing import scenes

BOARD, BUDGET = "cortex-m7", "128KB"
PICTURES, TESTED = 100, 200
EPOCHS, RATE = 15, 4 / 256
STEPS = 5  # on the emulated board


def main() -> None:
    given = common.arguments(__doc__, "a folder with a subfolder of pictures for each class")
    data = sm.load_data(given.data) if given.data else scenes(PICTURES, TESTED, given.seed)
    data = replace(data, train=data.train.spread(PICTURES))
    model = sm.load("mcunet-5fps")
    options = sm.Options(classes=len(data.classes), seed=given.seed)
    scheme = sm.search(model, budget=BUDGET, target=BOARD, options=options).scheme
    images = examples(data.train, pixel_encoding(model))  # which set how fine gradients are at first

    def program(of: sm.Graph, target: str = BOARD) -> sm.Program:
        streamed = target != "host"  # a board reads its camera row by row and never holds a whole picture
        return sm.compile(
            of, scheme, target, options=options, images=images, streamed_input=streamed, class_names=data.classes
        )

    here = program(model, "host")
    course = sm.Course(EPOCHS, RATE, augment=sm.Augment((0.8, 1.0)), seed=given.seed, test_every=EPOCHS)
    learned = sm.learn(here, data, course)
    board = common.on_board(here, program(model), data, RATE, STEPS)
    figures = (common.Figure("pictures recognized", learned.before, learned.accuracy),)
    outcome = common.Outcome("person_detection", len(data.train), len(data.test), figures, board)
    common.finish(given, outcome, learned.model, program)


if __name__ == "__main__":
    common.start(main)
