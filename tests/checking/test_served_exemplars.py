"""A confirmed hack is never served as an exemplar: not when it is in the buffer, and not when it comes again."""

from __future__ import annotations

import numpy as np
import pytest

from cudal1_ray.checking import ServedExemplars
from cudal1_ray.errors import UserError
from cudal1_ray.exemplars import Exemplar, ExemplarBuffer, ExemplarsConfig, select, strategy_names


def code(number: int) -> str:
    return f"class ModelNew:\n    number = {number}\n"


def filled(folder) -> ServedExemplars:
    served = ServedExemplars(ExemplarBuffer.open(folder))
    served.insert([Exemplar.new("p", code(n), float(n + 1), step=n) for n in range(6)])
    served.insert([Exemplar.new("q", code(n), float(n + 1)) for n in range(3)])
    served.save()
    return served


def served_codes(served: ServedExemplars, problem_id: str = "p") -> set[str]:
    return {exemplar.code for exemplar in served.served.of(problem_id)}


def test_served_exemplars_when_none_is_withheld_are_all_of_the_buffer(tmp_path):
    served = filled(tmp_path)
    assert len(served) == 9 and served_codes(served) == {code(n) for n in range(6)}
    assert served.withhold([("p", "never seen")]) == 1
    assert len(served) == 9


@pytest.mark.parametrize("strategy", strategy_names())
def test_strategies_when_exemplars_are_withheld_draw_none_of_them(tmp_path, strategy):
    served = filled(tmp_path)
    assert served.withhold([("p", code(5)), ("p", code(2))]) == 2
    config = ExemplarsConfig(strategy=strategy, count=4)
    drawn = {e.code for s in range(20) for e in select(served.served, "p", config, np.random.default_rng(s)).exemplars}
    assert not drawn & {code(5), code(2)}
    assert served.served.best("p").code == code(4)
    assert served_codes(served, "q") == {code(n) for n in range(3)}  # there the same code is another candidate


def test_withheld_exemplar_when_inserted_in_other_words_is_refused(tmp_path):
    served = filled(tmp_path)
    served.withhold([("p", code(7))])
    assert served.insert([Exemplar.new("p", '"""New!"""\n' + code(7) + "# really\n", 50.0)]) == 0
    assert served.insert([Exemplar.new("p", code(8), 9.0)]) == 1
    assert served.served.best("p").code == code(8)


def test_withheld_exemplar_when_the_buffer_holds_other_spellings_takes_them_along(tmp_path):
    kernel = 'source = """\n#include <torch/extension.h>\n{}int one() {{ return 1; }}\n"""\n'
    served = ServedExemplars(ExemplarBuffer.open(tmp_path))
    served.insert([Exemplar.new("p", kernel.format(""), 2.0), Exemplar.new("p", kernel.format("// x\n"), 3.0)])
    assert len(served) == 2
    served.withhold([("p", kernel.format("/* y */"))])
    assert len(served) == 0


def test_withheld_list_when_the_process_ends_is_read_again_and_the_buffer_keeps_its_rows(tmp_path):
    served = filled(tmp_path)
    served.withhold([("p", code(5))])
    served.insert([Exemplar.new("p", code(9), 1.5)])
    served.save()
    again = ServedExemplars(ExemplarBuffer.open(tmp_path))
    assert served_codes(again) == {code(n) for n in (0, 1, 2, 3, 4, 9)}
    assert again.withhold([("p", code(5))]) == 0
    assert any(exemplar.code == code(5) for exemplar in ExemplarBuffer.open(tmp_path))


def test_inserts_when_made_after_withholding_are_served_and_saved(tmp_path):
    served = filled(tmp_path)
    served.withhold([("p", code(5))])
    assert served.insert([Exemplar.new("p", code(n), 3.0) for n in (5, 10, 11)]) == 2
    served.save()
    assert code(11) in served_codes(served) and code(5) not in served_codes(served)
    assert code(11) in {exemplar.code for exemplar in ExemplarBuffer.open(tmp_path)}


@pytest.mark.parametrize("content", ["{", "[1, 2]", '{"p": 3}'])
def test_withheld_list_when_damaged_names_its_file(tmp_path, content):
    filled(tmp_path)
    (tmp_path / "withheld.json").write_text(content)
    with pytest.raises(UserError, match=r"withheld\.json"):
        ServedExemplars(ExemplarBuffer.open(tmp_path))
