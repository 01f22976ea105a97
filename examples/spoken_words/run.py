"""A device learns eight words it never heard, from two speakers who say each three times, on a Cortex-M4.

The network that ships here knows twelve other words. Its layers have learned what speech is; a new head, and the last
layers before it, learn the new words. The board hears with its own front end: samples in, features in integers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import smidgen as sm
from smidgen.data import examples, pixel_encoding

sys.path.append(str(Path(__file__).parents[2]))
from examples import common
from examples.spoken_words.speaking import new_words

BOARD = "nrf52840"  # a Cortex-M4
SCHEME = "last:4"
SPEAKERS, EACH, OTHERS = 2, 3, 12
EPOCHS, RATE = 15, 4 / 256
STEPS = 8  # on the emulated board


def main() -> None:
    given = common.arguments(__doc__, "a folder of <word>/*.wav, or train/<word>/*.wav and test/<word>/*.wav")
    data = sm.load_data(given.data) if given.data else new_words(SPEAKERS, EACH, OTHERS, given.seed)
    model = sm.load(Path(__file__).parent / "model.smg")
    images = examples(data.train, pixel_encoding(model))  # which set how fine gradients are at first

    def program(of: sm.Graph, target: str = BOARD) -> sm.Program:
        known = of.classes == data.classes
        options = sm.Options(len(data.classes), head="keep" if known else "new", seed=given.seed)
        return sm.compile(of, SCHEME, target, options=options, images=images, class_names=data.classes)

    here = program(model, "host")
    learned = sm.learn(here, data, sm.Course(EPOCHS, RATE, seed=given.seed, test_every=EPOCHS))
    board = common.on_board(here, program(model), data, RATE, STEPS)
    figures = (common.Figure("words of other speakers recognized", learned.before, learned.accuracy),)
    outcome = common.Outcome("spoken_words", len(data.train), len(data.test), figures, board)
    common.finish(given, outcome, learned.model, program)


if __name__ == "__main__":
    common.start(main)
