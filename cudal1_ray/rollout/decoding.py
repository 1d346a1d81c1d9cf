"""Where a completion ends and what its text is, alike for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudal1_ray.files import read_json_object


def end_token_ids(model_path: str, tokenizer) -> tuple[int, ...]:
    """Return the tokens that end a completion: the tokenizer's end of sequence, those of `generation_config.json`."""
    ids = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    file = Path(model_path) / "generation_config.json"
    if file.is_file():
        listed = read_json_object(file).get("eos_token_id")
        ids += [] if listed is None else [listed] if isinstance(listed, int) else listed
    return tuple(dict.fromkeys(ids))


def cut_at_stop(text: str, stop: Sequence[str]) -> str | None:
    """Return `text` up to the first stop string in it; None when there is none."""
    places = [place for place in (text.find(string) for string in stop) if place >= 0]
    return text[: min(places)] if places else None
