"""A run in a file: what fits goes in, what does not is named, and damage is found."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from cudal1_ray.cli import main
from cudal1_ray.config import load_config
from cudal1_ray.errors import UserError
from cudal1_ray.training import packing
from cudal1_ray.training.checkpoints import CheckpointStore, TrainingState
from cudal1_ray.training.packing import HEADER_BYTES, MIB, pack, unpack
from cudal1_ray.training.run_folder import RunFolder

ADAPTER, OPTIMISER = 200_000, 900_000  # bytes, of noise that does not compress


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))


@pytest.fixture
def run(tmp_path) -> RunFolder:
    (tmp_path / "model").mkdir()
    config = load_config([f"runs_dir={tmp_path}", "name=run", "policy=huggingface", f"policy.path={tmp_path}/model"])
    run = RunFolder.open(config)
    run.policy.symlink_to(tmp_path / "model", target_is_directory=True)
    write(tmp_path / "model" / "model.safetensors", 5_000_000)
    run.metrics.write_text('{"stage": "contrastive", "step": 3}\n')
    write(run.exemplars / "shard.parquet", 1000)
    write(run.in_flight / "contrastive-4.jsonl", 1000)
    write(run.rollouts / "contrastive-000003.parquet", 400_000)
    state = TrainingState(config.seed, config.rewards)
    state.stage, state.step = "contrastive", 3

    def learner(folder: Path) -> None:
        write(folder / "rank-0.pt", 5000)
        write(folder / "deepspeed" / "optim.pt", OPTIMISER)

    def adapter(folder: Path) -> None:
        write(folder / "adapter_model.safetensors", ADAPTER)
        (folder / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 8}')

    CheckpointStore(run.checkpoints, keep=1).write(state, learner, lambda folder: None, adapter)
    return run


def hashes(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_run_when_packed_and_unpacked_is_the_same_except_what_was_left_out(run, tmp_path):
    packed = pack(run.path, tmp_path / "all.pack", limit_mib=3)
    assert packed.size == (tmp_path / "all.pack").stat().st_size <= 3 * MIB
    assert list(packed.left_out) == ["the initial policy"]
    target = unpack([tmp_path / "all.pack"], tmp_path / "there")
    before = {name: value for name, value in hashes(run.path).items() if not name.startswith("policy/")}
    assert hashes(target) == before and not list(tmp_path.glob(".*"))
    assert CheckpointStore(target / "checkpoints", keep=1).latest().step == 3


def test_pack_when_the_run_started_from_an_adapter_keeps_it_for_the_control(run, tmp_path):
    write(run.adapter / "adapter_model.safetensors", 1000)
    packed = pack(run.path, tmp_path / "all.pack", limit_mib=3)
    assert "state and adapters of earlier checkpoints" in packed.inside
    assert (unpack([tmp_path / "all.pack"], tmp_path / "there") / "adapter" / "adapter_model.safetensors").is_file()


def test_pack_when_the_limit_is_small_leaves_the_optimiser_out_and_no_adapter(run, tmp_path):
    packed = pack(run.path, tmp_path / "small.pack", limit_mib=0.5)
    assert "the adapter" in packed.inside and "the steps under way" in packed.inside
    assert {"the optimiser", "the initial policy"} <= set(packed.left_out)
    assert packed.left_out["the optimiser"] >= OPTIMISER
    unpack([tmp_path / "small.pack"], tmp_path / "there")
    assert (tmp_path / "there" / "checkpoints" / "contrastive-000003" / "adapter").is_dir()
    assert not (tmp_path / "there" / "checkpoints" / "contrastive-000003" / "learner" / "deepspeed").exists()
    with pytest.raises(UserError, match="the adapter takes 0.2 MiB and does not fit"):
        pack(run.path, tmp_path / "tiny.pack", limit_mib=0.1)
    assert not (tmp_path / "tiny.pack").exists()


@pytest.mark.parametrize("when", ["goes_on", "never_rests"])
def test_pack_when_the_run_writes_a_checkpoint_meanwhile_takes_the_new_one(run, tmp_path, monkeypatch, when):
    compress, old = packing._compress, run.checkpoints / "contrastive-000003"

    def checkpoint_meanwhile(folder: Path, files: tuple[Path, ...]) -> bytes:
        if files[0].parent.name == "state" and (old.exists() or when == "never_rests"):
            number = int(files[0].parent.parent.name[-6:])
            files[0].parent.parent.rename(run.checkpoints / f"contrastive-{number + 1:06d}")
        return compress(folder, files)

    monkeypatch.setattr(packing, "_compress", checkpoint_meanwhile)
    if when == "never_rests":
        with pytest.raises(UserError, match="went away meanwhile, 4 times"):
            pack(run.path, tmp_path / "run.pack", limit_mib=3)
        return
    pack(run.path, tmp_path / "run.pack", limit_mib=3)
    assert hashes(unpack([tmp_path / "run.pack"], tmp_path / "again") / "checkpoints") == hashes(run.checkpoints)


def test_pieces_when_split_keep_their_limit_and_a_damaged_or_missing_one_is_named(run, tmp_path):
    packed = pack(run.path, tmp_path / "out" / "run.pack", limit_mib=2, split_mib=0.25)
    assert len(packed.files) > 4 and all(file.stat().st_size <= MIB / 4 for file in packed.files)
    with pytest.raises(UserError, match=r"these are missing: 2$"):
        unpack([file for file in packed.files if file.name != "run.pack.002"], tmp_path / "there")
    content = bytearray(packed.files[2].read_bytes())
    content[HEADER_BYTES] ^= 1
    whole = packed.files[2].read_bytes()
    packed.files[2].write_bytes(content)
    with pytest.raises(UserError, match=r"run.pack.003: piece 3 of \d+ is damaged"):
        unpack([tmp_path / "out"], tmp_path / "there")
    packed.files[2].write_bytes(whole)
    other = pack(run.path, tmp_path / "other.pack", limit_mib=0.5)
    with pytest.raises(UserError, match="belongs to another packed run"):
        unpack([*packed.files, *other.files], tmp_path / "there")
    assert not (tmp_path / "there").exists()
    unpack([tmp_path / "out"], tmp_path / "there")
    with pytest.raises(UserError, match="is there already"):
        unpack([tmp_path / "out"], tmp_path / "there")


def test_pack_when_an_earlier_one_had_more_pieces_removes_those_behind_the_last(run, tmp_path):
    out, folder = tmp_path / "pieces" / "run.pack", tmp_path / "pieces"
    earlier = pack(run.path, out, limit_mib=3, split_mib=0.2)
    mixed = earlier.files[-1].read_bytes()
    later = pack(run.path, out, limit_mib=3, split_mib=0.5)
    assert sorted(folder.iterdir()) == list(later.files) and len(later.files) < len(earlier.files)
    assert unpack([folder], tmp_path / "there").is_dir()
    (folder / "run.pack.099").write_bytes(mixed)
    with pytest.raises(UserError, match="099: belongs to another packed run"):
        unpack([folder], tmp_path / "there again")


def test_pack_when_a_packed_run_lies_in_the_runs_folder_leaves_it_out(run):
    first, second = (pack(run.path, run.path / "run.pack", limit_mib=3) for _ in range(2))
    assert first.inside.keys() == second.inside.keys()
    assert second.size == pytest.approx(first.size, abs=100)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        *(({key: value}, "no piece of a packed run") for key in ("run", "of", "piece") for value in (None, [1])),
        *(({key: None}, "no piece of a packed run") for key in ("archive", "sha256", "cudal1_pack")),
        *(({"run": name}, "give a folder with --to") for name in ("", "../run", "/run", "a\0b", ".run", "a" * 300)),
    ],
)
def test_unpack_when_the_header_is_damaged_or_leads_elsewhere_is_refused(run, tmp_path, monkeypatch, changes, named):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    pack(run.path, tmp_path / "run.pack", limit_mib=0.5)
    header, _, archive = (tmp_path / "run.pack").read_bytes().partition(b"\n")
    header = {key: value for key, value in (json.loads(header) | changes).items() if value is not None}
    (tmp_path / "run.pack").write_bytes(json.dumps(header).encode() + b"\n" + archive)
    with pytest.raises(UserError, match=f"run.pack: .*{named}"):
        unpack([tmp_path / "run.pack"])
    assert not list((tmp_path / "there").iterdir())


def test_run_when_packed_as_the_current_folder_keeps_its_name(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.path)
    assert main(["pack", ".", "--limit-mib", "0.5"]) == 0
    monkeypatch.chdir(tmp_path)
    assert unpack([run.path / "run.pack"]) == Path("runs/run")


@pytest.mark.parametrize("limit", [0, 1000, HEADER_BYTES, 2 * HEADER_BYTES])
def test_limit_when_it_holds_no_more_than_headers_is_refused_and_nothing_is_written(run, tmp_path, limit):
    with pytest.raises(UserError, match="--limit-mib .*: must be a number above 0.0078"):
        pack(run.path, tmp_path / "tiny.pack", limit_mib=limit / MIB)
    assert not (tmp_path / "tiny.pack").exists()


def test_pack_commands_when_run_print_what_they_did_and_what_is_wrong(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["pack", str(run.path), "--limit-mib", "0.5"]) == 0
    assert "left out: the optimiser" in capsys.readouterr().out and (tmp_path / "run.pack").is_file()
    assert main(["unpack", "run.pack", "--to", "elsewhere/again"]) == 0
    assert "cudal1 train name=again runs_dir=elsewhere" in capsys.readouterr().out
    assert main(["pack", str(tmp_path / "model")]) == 2 and "no run is there" in capsys.readouterr().err
    (tmp_path / "text").write_text("no pack")
    assert main(["unpack", "text"]) == 2 and "text: no piece of a packed run" in capsys.readouterr().err
    for wrong in (["text"], ["model"], ["x.pack", "--limit-mib", "nan"], ["x.pack", "--split-mib", "inf"]):
        assert main(["pack", str(run.path), *wrong]) == 2 and capsys.readouterr().err.count("\n") == 1
    assert (tmp_path / "text").read_text() == "no pack"
