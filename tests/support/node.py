"""The page's script in Node: a module that reads what it is given in JSON, and prints what it finds."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

TEMPLATES = Path(__file__).parents[2] / "src" / "smidgen" / "play" / "templates"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="NO NODE HERE: apt install nodejs to try the page's script")
SECONDS = 120
READING = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const text = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
const tell = (found) => process.stdout.write(JSON.stringify(found));
"""


def run_script(script: str, given: object, *modules: str) -> Any:
    """What a script prints as JSON that imports these modules of the page, each as an object named like its file."""
    imports = "".join(f'import * as {name} from "{(TEMPLATES / name).as_uri()}.js";\n' for name in modules)
    assert NODE is not None
    command = (NODE, "--no-warnings", "--input-type=module", "-e", imports + READING + script)
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decoded(text: str) -> bytes:
    return base64.b64decode(text)
