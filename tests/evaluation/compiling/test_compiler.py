"""The compile step and its cache. The extension is plain C++ without torch's headers: it builds in a second or two."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest
import torch
import torch.utils.cpp_extension
from evaluator_settings import quick_config
from problems_for_tests import problem

from cudal1_ray.evaluation import Compiler, EvaluationConfig, Evaluator
from cudal1_ray.evaluation.compiling.cache import CompileCache, CompileResult
from cudal1_ray.evaluation.compiling.headers import PrecompiledHeaders, _command
from cudal1_ray.evaluation.inside.executing import execute
from cudal1_ray.evaluation.inside.extensions import install_extension_loader
from cudal1_ray.evaluation.rules import RulesConfig

pytestmark = pytest.mark.usefixtures("warm_server")
EXTENSION = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *args) { return PyFloat_FromDouble(NUMBER); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0, 0, 0, 0}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "fused", "", -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_fused(void) { return PyModule_Create(&module); }
"""
fused = load_inline(name="fused", cpp_sources=SOURCE, no_implicit_headers=True, extra_cflags=["-O0"])


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)

    def forward(self, x):
        return self.norm(torch.tanh(self.b(torch.relu(self.a(x))))) * fused.answer()
'''


def _code(number: str) -> str:
    return EXTENSION.replace("NUMBER", number)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    config = quick_config(compile_cache=str(tmp_path_factory.mktemp("cache")))
    with Compiler(config) as compiler:
        yield compiler


def test_extension_when_built_before_is_taken_from_the_cache(compiler):
    first = compiler.compile(_code("1.0"))
    assert first.ok and not first.cached and len(first.libraries) == 1, first
    again = compiler.compile(_code("1.0"))
    assert again.ok and again.cached and again.libraries == first.libraries


def test_extensions_when_two_have_one_name_stay_apart(compiler):
    config = compiler.config
    with Evaluator(config) as evaluator:
        right = evaluator.evaluate(problem("chain"), _code("1.0"))
        wrong = evaluator.evaluate(problem("chain"), _code("2.0"))
        right_again = evaluator.evaluate(problem("chain"), _code("1.0"))
    assert right.accepted and right_again.accepted, (right, right_again)
    assert not wrong.accepted and wrong.reasons[0] in ("wrong_output", "partial_compute"), wrong


BINDING = """
#include <pybind11/pybind11.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("answer", [] { return NUMBER; }); }
"""


def test_extensions_when_one_candidate_has_two_of_a_name_are_two_modules(compiler):
    """pybind11 gives the first module of a full name for every library that has it."""
    start, rest = EXTENSION.split('SOURCE = """')
    other = BUILD.replace("fused =", "other =").replace("SOURCE", "SOURCE.replace('3.0', '2.0')")
    source = BINDING.replace("NUMBER", "3.0")
    code = f"{start}SOURCE = {source!r}\n{BUILD}\n{other}\n{rest[rest.index('class Mod') :]}"
    code = code.replace("* fused.answer()", "* (fused.answer() - other.answer())")
    assert len(compiler.compile(code, problem("chain").source).libraries) == 2
    with Evaluator(compiler.config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), code)
    assert verdict.accepted, verdict


def test_library_when_it_is_no_python_module_is_only_loaded(compiler):
    start, rest = EXTENSION.split('SOURCE = """')
    built = 'load_inline(name="plain", cpp_sources=SOURCE, no_implicit_headers=True, is_python_module=False)'
    code = f"""{start}SOURCE = 'extern "C" int answer() {{ return 1; }}'
fused = {built}
{rest[rest.index("class ModelNew") :]}""".replace("fused.answer()", "(1.0 if fused is None else 2.0)")
    assert compiler.compile(code).ok
    with Evaluator(compiler.config) as evaluator:
        verdict = evaluator.evaluate(problem("chain"), code)
    assert verdict.accepted, verdict


def test_extension_when_it_does_not_build_is_a_compile_error(compiler):
    result = compiler.compile(_code("undeclared_name"))
    assert not result.ok and result.reason == "compile_error"
    assert "undeclared_name" in result.detail
    assert compiler.compile(_code("undeclared_name")).cached


CAUGHT = """
try:
    {}
except Exception as error:
    fused, REFUSAL = None, str(error)
"""


BUILD = 'fused = load_inline(name="fused", cpp_sources=SOURCE, no_implicit_headers=True, extra_cflags=["-O0"])'
GOES_ON = _code("undeclared_name").replace(BUILD, CAUGHT.format(BUILD)).replace("* fused.answer()", "")


def test_extension_when_its_build_failed_is_not_built_again(compiler, tmp_path, monkeypatch):
    """A candidate may catch a failed build and try another: each of its processes would wait for the failure again."""
    other = BUILD.replace("fused", "other").replace("SOURCE", "OTHER")
    code = GOES_ON + f"\nOTHER = SOURCE.replace('undeclared_name', '1.0').replace('fused', 'other')\n{other}\n"
    result = compiler.compile(code)
    assert result.ok and len(result.libraries) == len(result.failed) == 1, result
    assert "undeclared_name" in next(iter(result.failed.values()))
    assert compiler.compile(code).failed == result.failed

    def refusing(original):
        @functools.wraps(original)
        def never(*_, **__):
            raise AssertionError("the compiler was asked again")

        return never

    cpp_extension = torch.utils.cpp_extension
    for name in ("load_inline", "load"):
        monkeypatch.setattr(cpp_extension, name, refusing(getattr(cpp_extension, name)))
    install_extension_loader(str(tmp_path), {}, dict(result.failed))
    assert "undeclared_name" in execute(GOES_ON, str(tmp_path), "candidate_that_goes_on").REFUSAL


def test_candidate_when_none_of_its_extensions_builds_is_refused_as_the_rule_has_it(compiler):
    """The compiler refuses it, whatever its text looks like, since no later stage sees that nothing was built."""
    refused = compiler.compile(GOES_ON)
    assert (refused.ok, refused.reason) == (False, "compile_error") and "undeclared_name" in refused.detail
    assert compiler.compile(GOES_ON).reason == "compile_error"  # the cached result is refused, too
    assert compiler.compile("import triton\n" + GOES_ON).ok  # it has kernels of another kind
    rules, compiler.config.rules = compiler.config.rules, RulesConfig(fallbacks="reject")
    try:
        assert compiler.compile(GOES_ON).reason == "silent_fallback"
        compiler.config.rules = RulesConfig(fallbacks="allow")
        assert compiler.compile(GOES_ON).ok
    finally:
        compiler.config.rules = rules


def test_build_when_no_gpu_is_visible_targets_the_configured_architecture(tmp_path):
    """Otherwise no evaluator would find what a compiler on another machine has built."""
    cache = str(tmp_path / "cache")
    with Compiler(EvaluationConfig(device="cuda", compile_cache=cache, cuda_arch_list="9.0a")) as evaluators_own:
        key = evaluators_own._key(EXTENSION, "")
    with Compiler(EvaluationConfig(device="cuda", compile_cache=cache)) as blind:
        blind.config.cuda_arch_list = ""  # as on a machine without a GPU
        assert blind._key(EXTENSION, "") != key
        blind.build_for("9.0a")
        assert blind._key(EXTENSION, "") == key
        blind.build_for("8.0")  # an architecture that is set stays
        assert blind._key(EXTENSION, "") == key


def test_compiler_when_code_has_no_extension_builds_nothing(compiler):
    assert compiler.compile("import torch\n").libraries == {}
    broken = compiler.compile("import (")
    assert broken.reason == "unparsable" and "(<candidate>, line 1)" in broken.detail


def test_compiler_actor_when_nothing_is_to_be_built_imports_no_torch():
    script = """
import sys
from cudal1_ray.actors.evaluation import CompilerActor
from cudal1_ray.evaluation import EvaluationConfig
actor = CompilerActor(EvaluationConfig())
actor.build_for("9.0a")
assert actor.compile("x = 1").ok and actor.compile("x =").reason == "unparsable"
assert "torch" not in sys.modules
assert actor.compile("import torch.utils.cpp_extension").ok and "torch" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_cache_entry_when_put_twice_is_complete(tmp_path):
    cache = CompileCache(str(tmp_path))
    cache.put("0" * 32, CompileResult(), {"a" * 32: b"first"})
    cache.put("0" * 32, CompileResult(), {"a" * 32: b"second"})
    (path,) = cache.get("0" * 32).libraries.values()
    assert open(path, "rb").read() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["0" * 32]


def test_header_when_enough_builds_share_their_flags_is_made_once(tmp_path, monkeypatch):
    headers, calls = PrecompiledHeaders(tmp_path), []
    monkeypatch.setattr(headers, "make", calls.append)
    for number in range(4):
        headers.note(f"from torch.utils.cpp_extension import load_inline\nload_inline('f{number}', S)")
        headers.note(_code("1.0"))
        assert len(calls) == int(number >= 2)
    assert calls == [()]


@pytest.mark.parametrize("header", ["small", pytest.param("torch", marks=pytest.mark.long)])
def test_header_when_flags_differ_is_not_used(tmp_path, monkeypatch, header):
    """Torch's own header takes a minute; which one is read depends on its name and its flags."""
    if header == "small":
        _make_small_header(tmp_path, monkeypatch)
    headers = PrecompiledHeaders(tmp_path)
    assert headers.make(()) and headers.make(())
    (tmp_path / "main.cpp").write_text("#include <torch/extension.h>\n")
    command = _command((), tmp_path / "main.o")
    command = [*command[: command.index("-x")], "-H", "-fsyntax-only", str(tmp_path / "main.cpp")]
    environment = {**os.environ, "CPATH": str(headers.path)}
    for more, mark in (([], "!"), (["-O2"], "x")):
        process = subprocess.Popen([*command, *more], env=environment, stderr=subprocess.PIPE, text=True)
        with process:  # -H marks a precompiled header when it is read; the others take half a minute, unneeded
            first = process.stderr.readline()
            process.kill()
        assert first.startswith(mark) and str(headers.path) in first


def test_header_when_a_text_includes_it_twice_is_read_once(tmp_path, monkeypatch):
    """Torch puts the first line before a candidate's sources, most of which have it as well."""
    _make_small_header(tmp_path, monkeypatch)
    headers = PrecompiledHeaders(tmp_path)
    assert headers.make(())
    (tmp_path / "main.cpp").write_text("#include <torch/extension.h>\n" * 2 + "Defined once;\n")
    compiler, *flags = _command((), tmp_path / "main.o")
    flags = ["-isystem", str(tmp_path / "include"), *flags[: flags.index("-x")], "-fsyntax-only"]
    environment = {**os.environ, "CPATH": str(headers.path)}
    subprocess.run([compiler, *flags, str(tmp_path / "main.cpp")], env=environment, check=True)


def _make_small_header(folder, monkeypatch):
    (folder / "include" / "torch").mkdir(parents=True)
    header = "#pragma once\n#include <vector>\nstruct Defined {};\n"
    (folder / "include" / "torch" / "extension.h").write_text(header)
    monkeypatch.setattr(torch, "__file__", str(folder / "__init__.py"))
