"""Files that a kill cannot spoil: written whole or not at all, appended line by line, removed with their owner."""

from cudal1_ray.files.atomic import replace_folder, replacing, write_atomically
from cudal1_ray.files.json_lines import JsonLines, read_json_lines, repair_json_lines
from cudal1_ray.files.owned_folder import OwnedFolder

__all__ = [
    "JsonLines",
    "OwnedFolder",
    "read_json_lines",
    "repair_json_lines",
    "replace_folder",
    "replacing",
    "write_atomically",
]
