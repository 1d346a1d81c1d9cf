"""The stage-1 corpus: candidates for the bundled training problems, of several speeds, some of them wrong.

`corpus/<problem_id>/<entry>.py`; a name that starts with `wrong_` marks a candidate the evaluator must
reject. Each file opens with a docstring of three lines, `Technique:`, `Analysis:` and `Design:`, which become
the parts of the answer the policy learns to write. Whether an entry is right, and how fast, the
evaluator alone decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.source.nodes import class_named
from cudal1_ray.source.parsing import parse_named
from cudal1_ray.source.text import split_docstring

FOLDER = Path(__file__).parent / "corpus"
WRONG_PREFIX = "wrong_"
FIELDS = ("Technique", "Analysis", "Design")


@dataclass(frozen=True)
class CorpusEntry:
    """One candidate of the corpus.

    Attributes:
        entry_id: `<problem_id>/<file name without .py>`.
        code: the file without its docstring; defines `ModelNew`.
        technique: what makes it fast, e.g. "operation fusion"; "none" where nothing does.
        analysis: one sentence, why the code is fast or slow.
        design: one sentence, what the code does.
        expected: "accepted" or "rejected".
        reason: one sentence on what makes the code as fast as it is; empty where the analysis is that.
        speedup: as an evaluator measured and credited it; 0.0 where none has.
        hardware: name of the device that measured it; empty where that was not recorded.
        speedups: what several devices measured, by the name of the device; empty where `speedup` is all that is known.
    """

    problem_id: str
    entry_id: str
    code: str
    technique: str
    analysis: str
    design: str
    expected: str
    reason: str = ""
    speedup: float = 0.0
    hardware: str = ""
    speedups: Mapping[str, float] = field(default_factory=dict)

    def as_measured_on(self, device: str) -> CorpusEntry:
        """Return the entry with the speedup that this device measured; as it is where the device measured none."""
        if device not in self.speedups:
            return self
        return replace(self, speedup=self.speedups[device], hardware=device)


def load_corpus(folder: str | Path = FOLDER) -> list[CorpusEntry]:
    """Return every entry of a corpus folder (the bundled one by default), in the order of their ids.

    Raises:
        UserError: naming the folder when it is missing or empty, or the file whose docstring or code is not as above.
    """
    root = Path(folder).expanduser()
    files = sorted(file for file in root.glob("*/*.py") if not file.name.startswith("_"))
    if not files:
        raise UserError(f"{root}: no corpus here; expected <problem id>/<entry>.py")
    return [parse_entry(file.read_text(encoding="utf-8"), file.parent.name, file.stem, str(file)) for file in files]


def measured_elsewhere(entries: Iterable[CorpusEntry], device: str) -> str:
    """Return how many candidates have a speedup of other devices alone, and of which; empty where none has."""
    others = Counter(
        entry.hardware or "a device that is not recorded"
        for entry in entries
        if entry.speedup > 0 and entry.hardware != device and device not in entry.speedups
    )
    return ", ".join(f"{count} on {name}" for name, count in sorted(others.items()))


def parse_entry(text: str, problem_id: str, name: str, origin: str) -> CorpusEntry:
    """Split an entry's file into docstring and code. Raises UserError naming `origin`."""
    tree = parse_named(text, origin)
    docstring, code = split_docstring(text, tree)
    pairs = dict(line.partition(":")[::2] for line in docstring.splitlines())
    fields = {label: pairs.get(label, "").strip() for label in FIELDS}
    for label, value in fields.items():
        if not value:
            raise UserError(f"{origin}: the module docstring has no line `{label}: ...`")
    if class_named(tree, "ModelNew") is None:
        raise UserError(f"{origin}: no top-level class `ModelNew`")
    expected = "rejected" if name.startswith(WRONG_PREFIX) else "accepted"
    technique, analysis, design = (fields[label] for label in FIELDS)
    return CorpusEntry(problem_id, f"{problem_id}/{name}", code.strip() + "\n", technique, analysis, design, expected)
