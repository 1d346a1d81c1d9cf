"""launch/slurm.sbatch on this machine, its only node: Slurm's two commands are stood in for, the rest is real."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# Ray's `symmetric-run` stops every Ray on the machine when it is done: it runs where it sees no process but its own.
APART = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc"]
STAND_INS = {
    "scontrol": "#!/bin/sh\necho this-node\n",
    "srun": '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n',
}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_batch_script_when_run_starts_ray_runs_the_command_and_stops(repository, tmp_path):
    if subprocess.run([*APART, "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces on this machine")
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:  # a short path: sockets
        environment = {
            "PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "RAY_TMPDIR": ray_folder,
            "SLURM_JOB_NODELIST": "this-node",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_CPUS_PER_TASK": "1",
            "SLURM_JOB_ID": str(os.getpid()),
        }
        command = [*APART, "bash", str(repository / "launch" / "slurm.sbatch"), "--cfg", "name=on-slurm", "seed=7"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Head node started" in done.stdout and "name: on-slurm" in done.stdout and "seed: 7" in done.stdout
    assert f":{20000 + os.getpid() % 10000}" in done.stdout.split("cluster:")[1].split("rollout:")[0]
