"""Firmware run by QEMU: a second emulator, which refuses accesses that are not aligned as the chip demands."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from smidgen.compiler import find_compiler
from smidgen.targets.image import read_image

PLUGIN = Path(__file__).parent / "qemu_count.c"


ARM = ("qemu-system-arm", "-M", "mps2-an500", "-cpu", "cortex-m7")
RISCV = ("qemu-system-riscv32", "-M", "virt", "-bios", "none", "-cpu", "rv32,f=off,d=off,a=off")


def run_firmware(firmware: Path, folder: Path, patience: float = 60, machine: Sequence[str] = ARM) -> None:
    """Run firmware on the folder's `requests`; with the plugin that counts, where this QEMU takes one of ours."""
    command = [*machine, "-nographic", "-monitor", "none", "-serial", "none", "-semihosting"]
    command += ["-kernel", str(firmware)] if machine is ARM else loaded(firmware, folder)
    for version in (1, 2, 3, 4):
        find_compiler()("-shared", f"-DPLUGIN_VERSION={version}", "-o", "count.so", str(PLUGIN), folder=folder)
        counting = [*command, "-plugin", "./count.so"]
        if subprocess.run(counting, cwd=folder, capture_output=True, timeout=patience, check=False).returncode == 0:
            return
    subprocess.run(command, cwd=folder, capture_output=True, timeout=patience, check=True)


def loaded(firmware: Path, folder: Path) -> list[str]:
    """Return the options that load firmware into flash and start the core there; QEMU starts a kernel in RAM only."""
    image, arguments = read_image(firmware), []
    for address, data in image.loads:
        (folder / f"{address:08x}").write_bytes(data)
        arguments += ["-device", f"loader,file={address:08x},addr=0x{address:x},force-raw=on"]
    return [*arguments, "-device", f"loader,addr=0x{image.section('.text').address:x},cpu-num=0"]
