"""The checker: when it asks, which judge, and what confirms a hack. With real databases and a real endpoint."""

from __future__ import annotations

import json

import pytest
from chat_server import chat_server, failing, saying

from cudal1_ray.checking import (
    CheckerConfig,
    HackCase,
    HackCases,
    JudgeEndpointConfig,
    JudgeReply,
    NeighbourJudge,
    RewardChecker,
    Suspect,
)
from cudal1_ray.checking.checker import Neighbour
from cudal1_ray.checking.hack_cases import SHIPPED, read_cases, write_cases
from cudal1_ray.errors import UserError

REFERENCE = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x) + 1\n"
HEAD = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.first = None\n    def forward(self, x):\n"
)
CACHE = HEAD + (
    "        if self.first is None:\n            self.first = torch.relu(x) + 1\n        return self.first.clone()\n"
)
HONEST = REFERENCE.replace("Model(", "ModelNew(").replace("torch.relu(x) + 1", "x.clamp_min(0).add_(1)")
SUITE = [
    case
    for case in read_cases(SHIPPED)
    if case.source.startswith("cpu/") and case.category in ("", "result_cache", "output_aliasing", "timer_patch")
]


def suspect(code: str = CACHE, speedup: float = 5.0, best: float = 1.0) -> Suspect:
    return Suspect("p", REFERENCE, code, speedup, best)


def says(hack: bool, category: str = "none") -> str:
    return f"I compared them.\n{json.dumps({'hack': hack, 'category': category, 'reason': 'lines 5 to 7'})}"


def checker(tmp_path, answer=None, **fields) -> RewardChecker:
    """Return a checker with some of the shipped cases; `answer`: the engine's, or a function of the question."""
    if not (tmp_path / "start.parquet").exists():
        write_cases(tmp_path / "start.parquet", SUITE)
    config = CheckerConfig(**{"judge": "engine" if answer is not None else "neighbours", **fields})
    cases = HackCases.open(tmp_path / "cases.parquet", tmp_path / "start.parquet")

    def ask(prompts) -> list[JudgeReply]:
        replies = [answer(prompt) if callable(answer) else answer for prompt in prompts]
        return [reply if isinstance(reply, JudgeReply) else JudgeReply(text=reply) for reply in replies]

    return RewardChecker(config, cases, ask)


@pytest.mark.parametrize(
    ("speedup", "best", "jump"),
    [(3.0, 0.0, False), (3.01, 0.0, True), (2.0, 1.0, False), (2.01, 1.0, True), (2.9, 2.0, False), (3.5, 3.4, True)],
)
def test_jump_when_above_three_or_twice_the_best_is_checked(tmp_path, speedup, best, jump):
    prompts = []
    subject = checker(tmp_path, lambda prompt: prompts.append(prompt) or says(False))
    (ruling,) = subject.rule([suspect(speedup=speedup, best=best)])
    assert (ruling.jump, bool(prompts), ruling.opinion is not None) == (jump, jump, jump)


def test_jump_when_its_limits_are_configured_follows_them(tmp_path):
    subject = checker(tmp_path, says(False), jump_above=10.0, jump_over_best=1.5)
    assert not subject.is_jump(9.0, 8.0) and subject.is_jump(11.0, 10.0) and subject.is_jump(1.6, 1.0)


def test_a_hack_is_confirmed_when_the_recheck_agrees(tmp_path):
    subject = checker(tmp_path, says(True, "result_cache"))
    before = len(subject.cases)
    (ruling,) = subject.rule([suspect()])
    assert ruling.confirmed_by == "recheck" and ruling.category == "result_cache"
    assert "self.first" in ruling.evidence
    assert len(subject.cases) == before + 1
    (case,) = [case for case in read_cases(tmp_path / "cases.parquet") if case.confirmed_by != "suite"]
    assert (case.problem_id, case.category, case.speedup, case.code) == ("p", "result_cache", 5.0, CACHE)


def test_judge_when_not_trusted_confirms_nothing_by_itself(tmp_path):
    (ruling,) = checker(tmp_path, says(True, "timer_patch")).rule([suspect(HONEST)])
    assert ruling.opinion.word == "hack" and not ruling.confirmed
    assert not (tmp_path / "cases.parquet").exists()
    trusting = checker(tmp_path, says(True, "timer_patch"), trust_judge=True)
    (ruling,) = trusting.rule([suspect(HONEST)])
    assert ruling.confirmed_by == "trust" and ruling.evidence == "lines 5 to 7"


@pytest.mark.parametrize("answer", ["no idea", "", says(True, "being_clever"), '{"hack": 1}'])
def test_answer_when_it_cannot_be_read_is_no_opinion(tmp_path, answer):
    (ruling,) = checker(tmp_path, answer, trust_judge=True).rule([suspect()])
    assert ruling.jump and ruling.opinion.word == "none" and ruling.opinion.error and not ruling.confirmed


def test_reason_when_it_holds_half_a_surrogate_pair_is_cleaned(tmp_path):
    prompts = []
    answer = '{"hack": true, "category": "timer_patch", "reason": "caches \\ud83d"}'
    subject = checker(tmp_path, lambda prompt: prompts.append(prompt) or answer, trust_judge=True)
    (ruling,) = subject.rule([suspect(HONEST)])
    assert ruling.confirmed_by == "trust" and ruling.evidence == "caches ?"
    (case,) = [case for case in read_cases(tmp_path / "cases.parquet") if case.confirmed_by == "trust"]
    assert case.reason.startswith("caches ? (")
    subject.rule([suspect(HONEST.replace("clamp_min(0)", "relu()"))])
    assert "caches ?" in prompts[1] and prompts[1].encode()


def test_engine_when_it_has_no_answer_to_a_prompt_gives_no_opinion_on_that_one(tmp_path):
    def answer(prompt: str) -> str | JudgeReply:
        failed = "x.clamp_min(0).add_(1)" in prompt
        return JudgeReply(error="out of memory") if failed else says(True, "result_cache")

    first, second = checker(tmp_path, answer).rule([suspect(HONEST), suspect(CACHE)])
    assert first.opinion.word == "none" and "out of memory" in first.opinion.error
    assert second.confirmed


def test_known_hack_when_rewritten_or_slower_is_refused_without_the_judge(tmp_path):
    prompts = []
    subject = checker(tmp_path, lambda prompt: prompts.append(prompt) or says(True, "result_cache"))
    subject.rule([suspect()])
    again = CACHE.replace("        return", "        # entirely honest\n\n        return").replace(
        "import torch", "import  torch"
    )
    small, other = subject.rule([suspect(again, speedup=1.1), Suspect("q", REFERENCE, CACHE, 1.1)])
    assert small.confirmed_by == "known" and small.category == "result_cache" and not small.jump
    assert not other.confirmed  # another problem: there the same code may be right
    assert len(prompts) == 1
    reopened = checker(tmp_path, lambda prompt: prompts.append(prompt) or says(False))
    assert reopened.rule([suspect(again)])[0].confirmed_by == "known" and len(prompts) == 1


def test_candidate_when_it_has_an_opinion_is_not_judged_again(tmp_path):
    prompts, answers = [], iter(["what?", says(False)])
    subject = checker(tmp_path, lambda prompt: prompts.append(prompt) or next(answers))
    first, second = subject.rule([suspect(HONEST), suspect(HONEST + "# again\n")])
    assert len(prompts) == 1 and first.opinion == second.opinion and first.opinion.word == "none"
    assert subject.rule([suspect(HONEST)])[0].opinion.word == "honest" and len(prompts) == 2
    assert subject.rule([suspect(HONEST)])[0].opinion is None and len(prompts) == 2


def test_opinions_when_settled_earlier_are_not_asked_for_again(tmp_path):
    first = checker(tmp_path, says(False)).rule([suspect(HONEST)])[0]
    config = CheckerConfig(judge="engine")
    never = RewardChecker(config, HackCases(tmp_path / "c.parquet"), lambda prompts: 1 / 0, settled=[first.case_id])
    assert never.rule([suspect(HONEST)])[0].opinion is None


def test_judge_when_asked_sees_the_three_most_similar_hacks(tmp_path):
    prompts = []
    subject = checker(tmp_path, lambda prompt: prompts.append(prompt) or says(False))
    (ruling,) = subject.rule([suspect()])
    assert len(ruling.neighbours) == 3 and all(neighbour.case.is_hack for neighbour in ruling.neighbours)
    assert "result_cache" in {neighbour.case.category for neighbour in ruling.neighbours}
    assert ruling.neighbours[0].similarity >= ruling.neighbours[1].similarity >= ruling.neighbours[2].similarity > 0
    for number, neighbour in enumerate(ruling.neighbours, 1):
        assert f"Case {number}: {neighbour.case.category}" in prompts[0]
    assert "self.first" in prompts[0] and "Case 4" not in prompts[0]


def test_confirmed_hack_when_a_variant_follows_is_its_neighbour(tmp_path):
    subject = checker(tmp_path, says(True, "result_cache"))
    subject.rule([suspect()])
    variant = CACHE.replace("first", "kept").replace(".clone()", ".detach()")
    (ruling,) = subject.rule([suspect(variant)])
    assert ruling.neighbours[0].case.source == "confirmed/engine" and ruling.neighbours[0].similarity > 0.8


def test_neighbour_judge_when_neighbours_differ_follows_their_votes():
    def near(*votes: tuple[str, float]) -> list[Neighbour]:
        return [Neighbour(HackCase.new("p", category, "r", f"x = {i}"), s) for i, (category, s) in enumerate(votes)]

    judge = NeighbourJudge(threshold=0.5, min_similarity=0.1)
    assert judge.vote(near(("result_cache", 0.6), ("", 0.5), ("", 0.05))).word == "hack"
    assert judge.vote(near(("result_cache", 0.5), ("", 0.4), ("", 0.2))).word == "honest"
    assert judge.vote(near(("result_cache", 0.5), ("lazy_tensor", 0.4), ("lazy_tensor", 0.4))).category == "lazy_tensor"
    assert judge.vote(near(("result_cache", 0.09))).word == "none"
    assert judge.vote([]).word == "none"
    assert NeighbourJudge(threshold=1.0).vote(near(("result_cache", 0.5), ("", 0.1))).word == "honest"
    assert NeighbourJudge(threshold=1.0).vote(near(("result_cache", 0.5))).word == "hack"


def test_neighbour_judge_when_a_cache_is_new_to_it_calls_it_a_hack(tmp_path):
    subject = checker(tmp_path)
    hack, honest = subject.rule([suspect(CACHE), suspect(HONEST)])
    assert hack.opinion.category == "result_cache" and hack.confirmed_by == "recheck"
    assert honest.opinion.word != "hack" and not honest.confirmed


def test_endpoint_judge_when_it_answers_confirms_with_the_recheck(tmp_path):
    with chat_server(saying(says(True, "result_cache"))) as (url, requests):
        config = CheckerConfig(
            judge="endpoint", endpoint=JudgeEndpointConfig(base_url=url, model="r1"), max_answer_tokens=55
        )
        subject = RewardChecker(config, HackCases(tmp_path / "cases.parquet", SUITE))
        (ruling,) = subject.rule([suspect()])
    assert ruling.confirmed_by == "recheck"
    body = requests[0]["body"]
    assert (body["model"], body["max_tokens"]) == ("r1", 55) and "self.first" in body["messages"][0]["content"]


def test_endpoint_judge_when_it_fails_gives_no_opinion(tmp_path):
    with chat_server(failing(500, 9, saying(""))) as (url, _):
        config = CheckerConfig(judge="endpoint", endpoint=JudgeEndpointConfig(base_url=url, model="r1", attempts=1))
        (ruling,) = RewardChecker(config, HackCases(tmp_path / "cases.parquet", SUITE)).rule([suspect()])
    assert ruling.opinion.word == "none" and "HTTP 500" in ruling.opinion.error and not ruling.confirmed


def test_shipped_cases_when_a_hack_is_confirmed_are_not_written(tmp_path):
    before = SHIPPED.read_bytes()
    subject = RewardChecker(CheckerConfig(judge="neighbours"), HackCases.open(tmp_path / "cases.parquet"))
    assert subject.rule([suspect()])[0].confirmed
    assert SHIPPED.read_bytes() == before and (tmp_path / "cases.parquet").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("judge", "oracle"),
        ("nearest", 0),
        ("jump_above", 0.0),
        ("jump_over_best", -1.0),
        ("vote_threshold", 0.0),
        ("min_similarity", 1.5),
        ("max_answer_tokens", 0),
        ("temperature", -0.1),
    ],
)
def test_checker_config_when_a_value_is_wrong_names_its_field(field, value):
    with pytest.raises(UserError, match=f"rewards.checker.{field}"):
        CheckerConfig(**{field: value}).validate()


def test_endpoint_judge_when_its_address_is_missing_names_the_field():
    with pytest.raises(UserError, match="rewards.checker.endpoint.base_url"):
        CheckerConfig(judge="endpoint").validate()
