"""Firmware run by QEMU: a second emulator, which refuses accesses that are not aligned as the chip demands."""

from __future__ import annotations

import subprocess
from pathlib import Path

from smidgen.targets.compiler import find_compiler

PLUGIN = Path(__file__).parent / "qemu_count.c"


def run_firmware(firmware: Path, folder: Path, patience: float = 60) -> None:
    """Run firmware on the folder's `requests`; with the plugin that counts, where this QEMU takes one of ours."""
    command = ["qemu-system-arm", "-M", "mps2-an500", "-cpu", "cortex-m7", "-nographic", "-monitor", "none"]
    command += ["-serial", "none", "-semihosting", "-kernel", str(firmware)]
    for version in (1, 2, 3, 4):
        find_compiler()("-shared", f"-DPLUGIN_VERSION={version}", "-o", "count.so", str(PLUGIN), folder=folder)
        counting = [*command, "-plugin", "./count.so"]
        if subprocess.run(counting, cwd=folder, capture_output=True, timeout=patience, check=False).returncode == 0:
            return
    subprocess.run(command, cwd=folder, capture_output=True, timeout=patience, check=True)
