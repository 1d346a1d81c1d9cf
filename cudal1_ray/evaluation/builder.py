"""The process of the compile step: imports a candidate so that its inline extensions are built, and hands them over."""

from __future__ import annotations

import os
from typing import Any

from .contestant import Contestant, execute
from .extensions import install_extension_loader


class Builder(Contestant):
    """Operation `build`; it runs where no GPU is visible."""

    def build(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Builds what the import of the code builds; libraries are written, one after another, into the given file."""
        built: list[tuple[str, str]] = []
        install_extension_loader(self.scratch, {}, lambda key, path: built.append((key, path)))
        execute(message["code"], self.scratch, "candidate")
        entries, offset = [], 0
        for key, path in built:
            with open(path, "rb") as file:
                data = file.read()
            written = 0
            while written < len(data):
                written += os.pwrite(fds[0], data[written:], offset + written)
            entries.append([key, offset, len(data)])
            offset += len(data)
        return {"libraries": entries}
