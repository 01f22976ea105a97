"""A figure that several pages quote is the same on all of them: the one in the tables made from measured results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
RESULTS = (TOP / "docs" / "results" / "accuracy.md").read_text()
NETWORKS = {"MobileNetV2-w0.35": "mbv2-w0.35", "ProxylessNAS-w0.3": "proxyless-w0.3", "MCUNet-5FPS": "mcunet-5fps"}
SMALL, MIDDLE, LARGE = ("49kb",), ("98kb", "99kb"), ("138kb", "148kb")
# Sentences and rows with figures of MCUNet-5FPS, scheme 49kb, on the emulated Cortex-M7.
QUOTED = (
    ("README.md", "{step} instructions, {sram} bytes of SRAM"),
    ("docs/budget.md", "takes {step} instructions on a Cortex-M7, of which {forward} are the forward pass"),
    ("docs/budget.md", "({flash} bytes for MCUNet-5FPS with its code)"),
    ("docs/results/comparison.md", "ours {step} and {sram}."),
    ("docs/internals/memory.md", "says what holds its {flash} bytes"),
    ("docs/internals/chip.md", "| SRAM: static data and the deepest stack | {sram} bytes |"),
    ("docs/internals/chip.md", "| flash | {flash} bytes |"),
    ("docs/internals/chip.md", "| MCUNet-5FPS, scheme 49kb, forward | {forward} |"),
    ("docs/internals/chip.md", "| the same, training step | {step} |"),
)


def row(network: str, schemes: tuple[str, ...]) -> dict[str, str]:
    """Return the cells of a scheme in a network's table of memory and instructions."""
    section = RESULTS.split(f"## Memory and instructions ({network})")[1].split("\n## ")[0]
    (line,) = re.findall(rf"^\| (?:{'|'.join(schemes)}) \|.*$", section, re.MULTILINE)
    names = ("scheme", "analytic", "planned", "sram", "flash", "forward", "step", "chip")
    return dict(zip(names, (cell.strip() for cell in line.strip("|").split("|")), strict=True))


@pytest.mark.parametrize(("page", "text"), QUOTED)
def test_a_quoted_figure_is_the_measured_one(page: str, text: str) -> None:
    assert text.format(**row("mcunet-5fps", SMALL)) in (TOP / page).read_text()


@pytest.mark.parametrize("shown", NETWORKS)
def test_planned_memory_is_that_of_the_results(shown: str) -> None:
    page = (TOP / "docs" / "internals" / "memory.md").read_text()
    (cells,) = re.findall(
        rf"^\| {re.escape(shown)} \| (\S+) / \S+ \| (\S+) / \S+ \| (\S+) / \S+ \|$", page, re.MULTILINE
    )
    assert cells == tuple(row(NETWORKS[shown], schemes)["planned"] for schemes in (SMALL, MIDDLE, LARGE))


@pytest.mark.parametrize("shown", NETWORKS)
def test_the_larger_schemes_measure_alike(shown: str) -> None:
    found = row(NETWORKS[shown], MIDDLE)
    line = f"| {shown} {found['scheme']} | {found['sram']} | {found['flash']} | {found['forward']} | {found['step']} |"
    assert line in (TOP / "docs" / "internals" / "chip.md").read_text()


def test_the_readme_quotes_the_card_of_the_network() -> None:
    card = (TOP / "docs" / "models" / "mcunet-5fps.md").read_text()
    head, small, middle = re.findall(r"^\| (?:the head alone|scheme `\w+`) \| ([\d.]+) \|", card, re.MULTILINE)
    assert f"head alone {head} %, 49kb {small} %, 99kb {middle} %" in (TOP / "README.md").read_text()


def test_the_table_of_one_pass_is_that_of_the_kept_results() -> None:
    kept = [json.loads(line) for line in (TOP / "benchmarks" / "results" / "one_pass.jsonl").read_text().splitlines()]
    found: dict[tuple[object, ...], dict[str, float]] = {}
    for one in kept:
        key = one["weights"], one["network"], one["data"], one["each"]
        found.setdefault(key, {}).update({name: value for name, value in one.items() if isinstance(value, float)})
    names = {short: shown for shown, short in NETWORKS.items()}
    sets = {"cifar10": "CIFAR-10", "flowers102": "Flowers-102", "cars196": "Cars", "vww": "VWW"}
    columns = "one_pass", "nearest_mean", "trained_head", "from_new_head", "after_one_pass"
    page = (TOP / "docs" / "results" / "one-pass.md").read_text().split("## Projected features")[0]
    released, zoo = page.split("## Weights of the zoo")
    for (weights, network, data, each), figures in found.items():
        cells = [f"{figures[name]:.1f}" if name in figures else "—" for name in columns]
        line = f"| {names[str(network)]} | {sets[str(data)]} | {each or 'all'} | {' | '.join(cells)} |"
        assert line in (released if weights == "released" else zoo)
    assert page.count("\n| ") - 4 == len(found) == 96


def test_the_tables_of_projections_are_those_of_the_kept_results() -> None:
    lines = (TOP / "benchmarks" / "results" / "projection.jsonl").read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    found: dict[tuple[str, str, int], dict[int, str]] = {}
    for one in kept:
        if one["kind"] == "accuracy":
            row_of = found.setdefault((one["network"], one["data"], one["each"]), {})
            row_of[one["count"]] = f"{one['projected']:.1f} ({one['chosen']:.1f})"
    page = (TOP / "docs" / "results" / "one-pass.md").read_text().split("## Projected features")[1]
    shown = {
        "mcunet-5fps": "MCUNet-5FPS",
        "mcunet-5fps cut": "MCUNet-5FPS, cut",
        "mobilenet-v1-0.25": "MobileNetV1-0.25",
    }
    sets = {"cifar10": "CIFAR-10", "flowers102": "Flowers-102", "cars196": "Cars", "vww": "VWW"}
    for (network, data, each), cells in found.items():
        whole = cells[max(cells)].split(" ")[0]
        fewer = (cells.get(count, "—") for count in (192, 128, 96, 64, 32))
        assert f"| {shown[network]} | {sets[data]} | {each} | {whole} | {' | '.join(fewer)} |" in page
    assert page.count("\n| ") - 2 == len(found) == 24
    internals = (TOP / "docs" / "internals" / "one-pass.md").read_text()
    for one in kept:
        if one["kind"] == "chip":
            reads = f"{one['count']} numbers" if one["count"] else "160 features"
            figures = f"{one['observe'] / 1e6:.2f} | {one['solve'] / 1e6:.2f} | {one['sums']:,} | {one['sram']:,}"
            assert f"| {one['classes']} | {reads} | {figures} |" in internals
