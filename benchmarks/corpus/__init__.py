"""The corpus of own kernels for KernelBench's training problems: families, a checker, an emitter, a collector.

- `level1/`, `level2/`, `level3/`: packages whose `drafts()` yields candidates (`record.Draft`). A family writes one
  idea once and adapts it to several problems and launch shapes.
- `check.py`: runs every candidate on a machine without a GPU, against the reference at small sizes (Triton's
  interpreter, CUDA emulated by threads), and compiles its kernels for Hopper.
- `emit.py`: writes problems and candidates as a manifest for `cudal1 evaluate --manifest`.
- `collect.py`: joins candidates and verdicts into `cudal1_ray/problems/corpus/kernelbench_kernels.parquet`.

No text of KernelBench is kept here: a candidate names its problem by level and number.
"""
