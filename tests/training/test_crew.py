"""Where a run's actors keep what other runs use too."""

from __future__ import annotations

from cudal1_ray.training.crew import _opened_problems
from cudal1_ray.training.run_folder import RunFolder


def test_opened_problems_when_runs_lie_beside_each_other_are_in_one_closed_folder(tmp_path):
    folders = {_opened_problems(RunFolder(tmp_path / name)) for name in ("one", "two")}
    assert folders == {str(tmp_path / ".opened-problems")}
    assert (tmp_path / ".opened-problems").stat().st_mode & 0o777 == 0o700


def test_opened_problems_when_others_may_write_there_are_kept_by_no_run(tmp_path):
    (tmp_path / ".opened-problems").mkdir()
    (tmp_path / ".opened-problems").chmod(0o777)
    assert _opened_problems(RunFolder(tmp_path / "run")) == ""
