"""Whether something at an address answers as Ray does: Ray itself keeps trying for minutes, or for ever.

Ray's servers speak gRPC: HTTP/2 in which every call is answered with status 200, even one that is not known.
"""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

from smidgen.errors import InputError, TargetError

SECONDS = 4.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4  # kinds of frames
_END_STREAM, _END_HEADERS = 1, 4  # flags
_POST, _HTTP, _STATUS_200 = 0x83, 0x86, 0x88  # fields that HPACK's table holds whole
_RESIZE = range(0x20, 0x40)  # HPACK: the size of the table changes; no field yet
_TLS_ALERT = b"\x15\x03"  # from a cluster that is encrypted, which Ray has to judge by itself


def check_answers(address: str, seconds: float = SECONDS) -> None:
    """Raise TargetError unless a Ray cluster answers at `host:port` or `ray://host:port` within so many seconds."""
    host, port = _parsed(address)
    until = time.monotonic() + seconds
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(_call(f"{host}:{port}"))
            answers = _is_ray(connection, until)
    except OSError as error:
        raise _silent(address, error.strerror or str(error)) from None
    if not answers:
        raise _silent(address, "what listens there is not Ray")


def _silent(address: str, why: str) -> TargetError:
    return TargetError(f"no Ray cluster answers at {address} ({why}); give the address that ray start printed, or auto")


def _parsed(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise InputError(f"{address!r} is not the address of a Ray cluster; give auto, or one such as 10.0.0.1:6379")
    return host, port


def _call(authority: str) -> bytes:
    """A call without arguments, as one client's first bytes."""
    fields = {
        ":path": "/ray.rpc.NodeInfoGcsService/GetClusterId",
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
    }
    packed = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, b""),
            _frame(_HEADERS, _END_HEADERS, 1, bytes((_POST, _HTTP)) + packed),
            _frame(_DATA, _END_STREAM, 1, bytes(5)),
        )
    )


def _text(text: str) -> bytes:
    data = text.encode()[:126]  # what one byte of length can tell
    return bytes((len(data),)) + data


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _is_ray(connection: socket.socket, until: float) -> bool:
    """Whether the call is answered with status 200, or by a server that wants encryption."""
    first = True
    while head := _read(connection, 9, until):
        if first and head.startswith(_TLS_ALERT):
            return True
        if first and head[3] != _SETTINGS:
            return False
        first = False
        payload = _read(connection, int.from_bytes(head[:3], "big"), until)
        if head[3] == _HEADERS:
            fields = payload.lstrip(bytes(_RESIZE))
            return fields[:1] == bytes((_STATUS_200,))
    return False


def _read(connection: socket.socket, count: int, until: float) -> bytes:
    """So many bytes, or fewer where the other side ends; TimeoutError where it takes too long."""
    data = b""
    while len(data) < count:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        if not (part := connection.recv(count - len(data))):
            return data if data.startswith(_TLS_ALERT) else b""
        data += part
    return data
