"""A network that learns spoken words on the emulated Cortex-M7, from samples on, and on this machine: the same bytes.

    python tools/speak.py -o words
    python benchmarks/words.py --data words

    python tools/speak.py -o keywords --words down,go,left,no,off,on,right,stop,up,yes
    python benchmarks/words.py --data keywords --known

Without `--model` it is MLPerf Tiny's DS-CNN beside the checkout. Every step the board hears a recording with its own
front end and learns it; this machine does the same in Python and C. Features, losses and weights are compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shared import SHARED, arguments_of, report, start
from smidgen.cli.options import MEMORY
from smidgen.cli.shared import memory_bytes, parse_rate
from smidgen.data import load_data
from smidgen.data.audio import with_front_end
from smidgen.zoo import load

sys.path.append(str(Path(__file__).parents[1]))
from experiments.hearing import LearnedAlike, Recognized, learn_alike, recognize

MODEL = SHARED / "models" / "mlperf-tiny" / "kws_ref_model.tflite"


def show(found: LearnedAlike) -> None:
    table = Table(title=f"{found.steps} steps on the emulated Cortex-M7")
    for column in ("", "before", "after"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("loss, mean of the first and last quarter", f"{found.first_loss:.3f}", f"{found.last_loss:.3f}")
    table.add_row("top-1 of the test recordings", f"{found.before:.1%}", f"{found.after:.1%}")
    Console().print(table)
    print(f"the front end takes {found.heard:,} instructions, learning {found.step:,}; SRAM {found.sram:,} bytes")
    print(f"features, losses and weights {'are' if found.exact else 'are NOT'} those of this machine")


def show_known(found: Recognized) -> None:
    for word, (right, count) in found.words.items():
        print(f"{word:8} {right:4} of {count}")
    print(f"together {found.share:.1%}")


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--data", required=True, help="a folder of .wav files by label")
    parser.add_argument("--model", default=str(MODEL), help="an int8 model file; MLPerf Tiny's DS-CNN otherwise")
    parser.add_argument("--audio", help="how sound becomes its input, where that is not known: see smidgen train")
    parser.add_argument("--scheme", default="last:4", help="what learns")
    parser.add_argument("--steps", type=int, default=300, help="recordings to learn")
    parser.add_argument("--lr", default="2/256", help="learning rate per sample")
    parser.add_argument("--memory", default=MEMORY, help="most memory that the recordings may take")
    parser.add_argument("--known", action="store_true", help="instead: how many of its own words the model recognizes")
    given = parser.parse_args()
    data = load_data(given.data, memory_bytes(given.memory))
    graph = with_front_end(load(given.model), data.train.images, given.audio)
    if given.known:
        report(recognize(graph, data), show_known, given.json)
        return
    report(learn_alike(graph, data, given.scheme, given.steps, parse_rate(given.lr)), show, given.json)


if __name__ == "__main__":
    start(main)
