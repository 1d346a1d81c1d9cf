"""Which problems a run works on."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, check_values, one_of


@dataclass
class ProblemsConfig:
    """Where problems come from, and which of them are kept. Presets: `conf/problems/`."""

    # One of: bundled (those in this package), folder (KernelBench files), parquet (KernelBench's table), hub
    # (the same table, from the Hugging Face hub), or what a plug-in registered.
    source: str = "bundled"

    # folder: the directory with a .py file for each problem, or with level1/, level2/ and level3/ of them; parquet: the
    # file, or a directory of .parquet files.
    path: str | None = None

    # hub: the data set's name. ScalingIntelligence/KernelBench is the one its authors publish.
    hub_name: str = "ScalingIntelligence/KernelBench"

    # hub: a branch, tag or commit of the data set. None: its default branch.
    hub_revision: str | None = None

    # KernelBench levels to keep; problems that have no level are always kept. Levels 1 to 3 are the 250
    # problems of the CUDA-L1 paper (arXiv 2507.14111); level 4 needs downloads of models.
    levels: list[int] = field(default_factory=lambda: [1, 2, 3])

    # Problem ids to keep, e.g. [kernelbench-l1-p009]. Empty: all. An id that does not exist is an error.
    ids: list[str] = field(default_factory=list)

    # Families to keep (bundled problems have one). Empty: all. A family that does not exist is an error.
    families: list[str] = field(default_factory=list)

    # Most problems of each split that are kept, in the order of their ids. None: all.
    limit: int | None = bounded(None, least=1)

    # Training problems that stages 2 and 3 ask about, the same ones for every seed, and the same that an assessment of
    # as many is made of; stage 1, and the related kernels that prompts show, have all. None: all. A few hundred
    # samples teach little when each problem is asked once: 128 questions about 152 problems of KernelBench left a
    # policy where stage 1 had it (docs/results.md).
    asked: int | None = bounded(None, least=1)

    # Which side of the split to keep. KernelBench's levels 1 to 3 are split by the
    # committed file splits/kernelbench.json: 188 problems to train on, 62 held out, near twins on one side.
    split: str = one_of("all", "train", "held_out")

    # Share of problems held out, 0 to 1: never trained on, only assessed. Chosen by a hash of the problem's
    # id, so a problem stays on its side when others come or go. None: KernelBench's problems by the committed
    # split, others with a share of 0.1. Bundled problems carry their own split and ignore it.
    held_out_fraction: float | None = bounded(None, least=0, most=1)

    # Sizes of the problems: published; scaled (the larger of a call's inputs and outputs is 64 to 256 MiB
    # where size constants of the file allow it: the device is measured, and evaluation is cheap; the code of problems
    # other than KernelBench's runs without a sandbox to compute their sizes); paper (the CUDA-L1 paper's sizes, from
    # `paper_path`).
    sizes: str = one_of("published", "scaled", "paper")

    # sizes=paper: a Parquet file with KernelBench's columns that holds the problems at the paper's sizes.
    paper_path: str | None = None

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        check_values(self, "problems.")
        from cudal1_ray.problems.select import source_names  # imports this module

        if self.source not in source_names():
            raise UserError(f"problems.source={self.source}: must be one of {', '.join(source_names())}")

    def require_paths(self) -> None:
        """Raise UserError naming a path that loading needs and is not given, or that it would ignore; no file is looked
        for.
        """
        if self.source in ("bundled", "hub") and self.path:
            raise UserError(
                f"problems.path={self.path}: problems.source={self.source} reads no path; give "
                "problems=kernelbench_folder or problems=kernelbench_parquet with it"
            )
        if self.source in ("folder", "parquet") and not self.path:
            raise UserError(f"problems.path: needed with problems.source={self.source}; set it to where the files are")
        if self.sizes == "paper" and not self.paper_path:
            raise UserError(
                "problems.paper_path: needed with problems.sizes=paper; give the KernelBench Parquet of the paper's "
                "sizes"
            )
