"""The page as files: what is served, under which headers, to which clients; and that it was built from its sources."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import httpx
import pytest

from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.reasons import DESCRIPTIONS
from cudal1_ray.serving.access.keys import KeyFile
from cudal1_ray.serving.access.middleware import HEADERS
from cudal1_ray.serving.config import ServingConfig
from cudal1_ray.serving.page import POLICY, STATIC, page_settings
from tests.serving.page_site import Playback, Site

SOURCE = STATIC.parent / "source"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Yield a server that wants keys."""
    folder = tmp_path_factory.mktemp("page")
    config = ServingConfig()
    config.optimize.jobs_dir, config.security.keys_file = str(folder / "jobs"), str(folder / "keys.json")
    KeyFile(config.security.keys_file).add("alice")
    site = Site(config, Playback())
    site.start()
    yield site
    site.stop()


@pytest.fixture
def http(site):
    with httpx.Client(base_url=site.url, timeout=60) as client:
        yield client


def linked(page: str) -> list[str]:
    return re.findall(r'(?:src|href)="(/static/[^"]+)"', page)


def test_page_when_asked_for_needs_no_key_and_its_jobs_do(http):
    answer = http.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert http.head("/").status_code == 200 and http.head("/").content == b""
    assert http.get("/v1/optimize").status_code == 401
    assert http.post("/", json={}).status_code == 405


def test_page_when_served_allows_nothing_inline_and_nothing_from_elsewhere(http):
    answer = http.get("/")
    headers = {name.decode(): value.decode() for name, value in HEADERS} | {"content-security-policy": POLICY}
    assert headers | {"cache-control": "no-cache"} == {name: answer.headers[name] for name in headers}
    assert "unsafe" not in POLICY and "http" not in POLICY and "'none'" in POLICY
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", answer.text)
    for file in STATIC.glob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", file.read_text())
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", answer.text)


def test_files_when_the_page_names_them_are_there_with_their_type_and_may_be_kept(http):
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
    names = linked(http.get("/").text)
    names += [f"/static/{name}" for name in re.findall(r"url\(\"?([^)\"]+)", next(STATIC.glob("*.css")).read_text())]
    assert {Path(name).suffix for name in names} == {*kinds, ".txt"}
    for name in names:
        answer = http.get(name)
        assert answer.status_code == 200, name
        if name.endswith(".txt"):
            assert answer.headers["cache-control"] == "no-cache"
            continue
        assert answer.headers["content-type"].split(";")[0] == kinds[Path(name).suffix]
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        digest = re.search(r"-([0-9a-f]{12})\.", name)[1]
        assert hashlib.sha256(answer.content).hexdigest().startswith(digest)


def test_files_when_unchanged_are_not_sent_again_and_text_is_compressed(http):
    first = http.get("/")
    assert first.headers["etag"]
    again = http.get("/", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304 and again.content == b"" and again.headers["cache-control"] == "no-cache"
    assert again.headers["content-security-policy"] == POLICY
    script = next(name for name in linked(first.text) if "main-" in name)
    packed = http.get(script, headers={"accept-encoding": "gzip"})
    plain = http.get(script, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert packed.content == plain.content and packed.num_bytes_downloaded < len(plain.content) / 2


@pytest.mark.parametrize(
    "path", ["../__init__.py", "..%2f__init__.py", "%2e%2e/__init__.py", "nothing.js", "", "/etc/passwd"]
)
def test_files_when_not_of_the_page_are_not_served(http, path):
    answer = http.get(f"/static/{path}")
    assert answer.status_code in (401, 404) and "import" not in answer.text


def test_settings_when_asked_for_have_limits_and_reasons_and_nothing_of_the_machine(http, site):
    settings = http.get("/settings.json").json()
    assert settings == page_settings(site.config) and settings["needs_key"] is True
    assert settings["rounds"] == [4, 32] and settings["reasons"] == DESCRIPTIONS
    own_baseline = EvaluationConfig(against="/of/this/server.py")
    settings = page_settings(ServingConfig(evaluation=own_baseline))
    assert settings["needs_key"] is False and settings["against"] == "<path>"
    assert site.config.optimize.jobs_dir not in str(settings)


def test_page_when_shipped_was_built_from_its_sources_and_is_small():
    built_from = dict(reversed(line.split("  ")) for line in (STATIC / "built-from.txt").read_text().splitlines())
    sources = [file for file in SOURCE.iterdir() if file.suffix in (".ts", ".css", ".html", ".svg", ".mjs", ".json")]
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sources}
    assert digests == built_from, "the page's sources have changed: `make page` builds it"
    examples = re.findall(r'from "([^"]+\.py)"', (SOURCE / "examples.ts").read_text())
    script = next(STATIC.glob("main-*.js")).read_text()
    for example in examples:
        assert max((SOURCE / example).read_text().splitlines(), key=len).strip() in script, f"{example}: `make page`"
    assert len(examples) >= 3
    assert sum(file.stat().st_size for file in STATIC.iterdir()) < 800_000


def test_packages_when_bundled_come_with_their_licences():
    text, package_file = (STATIC / "licences.txt").read_text(), json.loads((SOURCE / "package.json").read_text())
    for package, version in package_file["dependencies"].items():
        assert f"\n{package} {version} (" in text, package
    assert text.count("Permission is hereby granted") + text.count("SIL OPEN FONT LICENSE") >= 10
