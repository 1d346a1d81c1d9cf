"""`cudal1 serve`: the endpoint in the foreground until a signal, and the keys to it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from cudal1_ray.config import read_settings
from cudal1_ray.errors import UserError
from cudal1_ray.serving import ServingConfig, load_serving_config
from cudal1_ray.serving.access.keys import KeyFile
from cudal1_ray.serving.config import ENDPOINT, check_gpus
from cudal1_ray.uncollected import imported_to_stay

KEYS = "security.keys_file="


def serve(overrides: list[str], show_config: bool = False, add_key: str = "", revoke_key: str = "") -> int:
    """Serve until SIGTERM or SIGINT, then drain; or change the file of keys and return.

    Returns:
        0; 1 where requests had to be cut off at the end.

    Raises:
        UserError: naming the key, folder or port at fault.
    """
    if add_key or revoke_key:
        return _change_keys(overrides, add_key, revoke_key)
    config = load_serving_config(overrides)
    if config.policy.path == ENDPOINT:
        raise UserError(f"policy={ENDPOINT}: the model is served at {config.policy.url} already; give a model folder")
    if show_config:
        from cudal1_ray.config import to_yaml

        print(to_yaml(config), end="")
        return 0
    if config.address is None:
        check_gpus(config)
    return _run(config, Console(highlight=False, markup=False))


def _run(config: ServingConfig, console: Console) -> int:
    with imported_to_stay():
        from cudal1_ray.serving.application import leave, start, stop

    stop_request = threading.Event()
    try:
        with console.status(escape(f"starting {config.policy.name}")):
            _owned = start(config)  # held until the end
        # After Ray has set handlers of its own: theirs would end this process in the middle of a request.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop_request.set())
        console.print(start_line(config), soft_wrap=True)
        if config.weights.follow:
            console.print(follows(Path(config.weights.follow)))
        while not stop_request.wait(timeout=1.0):
            pass
        finished = stop(config, console.print)
        console.print("stopped" if finished else "stopped; some requests had to be cut off")
        return 0 if finished else 1
    finally:
        leave()


def start_line(config: ServingConfig) -> str:
    """Return the line that a server which is up prints: the addresses of the API and of the page."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)  # addresses that a browser opens
    site = f"http://[{host}]:{config.port}" if ":" in host else f"http://{host}:{config.port}"
    return f"{config.policy.name} answers at {site}/v1, its page is {site}/ (stop with Ctrl-C)"


def follows(run: Path) -> str:
    """Return what following a run amounts to: it exports its policy at every checkpoint only where configured so."""
    try:
        exports = read_settings(run).get("checkpoint", {}).get("export_policy")
    except UserError:
        exports = False
    if exports:
        return f"follows {run}: the policy of every checkpoint is rolled in"
    return f"follows {run}: the last policy of each stage is rolled in (all, where it has checkpoint.export_policy)"


def _change_keys(overrides: list[str], add_key: str, revoke_key: str) -> int:
    path = next((value[len(KEYS) :] for value in reversed(overrides) if value.startswith(KEYS)), "")
    if not path:
        raise UserError(f"security.keys_file: missing; name the file that holds the keys, {KEYS}FILE")
    keys = KeyFile(Path(path).expanduser())
    if revoke_key:
        keys.revoke(revoke_key)
        print(f"{revoke_key}: revoked; a running server refuses it from now on")
        return 0
    key = keys.add(add_key)
    print(f"{key}\nIt is shown only now: {keys.path} holds its hash.")
    return 0
