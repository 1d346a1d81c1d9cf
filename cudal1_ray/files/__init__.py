"""Files that a kill cannot spoil: written whole or not at all, appended line by line, locked, removed with an owner."""

from cudal1_ray.files.atomic import replace_folder, replacing, replacing_folder, settle_folder, write_atomically
from cudal1_ray.files.json_lines import (
    JsonLines,
    read_json_lines,
    read_last_json_line,
    repair_json_lines,
    salvage_json_lines,
)
from cudal1_ray.files.json_object import read_json_object
from cudal1_ray.files.locks import claim_file, lock_file, unlock_file
from cudal1_ray.files.owned_folder import OwnedFolder

__all__ = [
    "JsonLines",
    "OwnedFolder",
    "claim_file",
    "lock_file",
    "read_json_lines",
    "read_json_object",
    "read_last_json_line",
    "repair_json_lines",
    "replace_folder",
    "replacing",
    "replacing_folder",
    "salvage_json_lines",
    "settle_folder",
    "unlock_file",
    "write_atomically",
]
