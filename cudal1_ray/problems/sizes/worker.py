"""Scale problems in a process of its own: a JSON list of sources on stdin, a JSON list of results on stdout."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from dataclasses import asdict

from cudal1_ray.problems.sizes.scaling import scale


def main() -> None:
    warnings.simplefilter("ignore")
    sources = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # a problem may print
        results = [asdict(scale(source)) for source in sources]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
