"""The reward checker: candidates whose reward jumps are judged once more, by a language model that reads code.

Source: CUDA-L1 (arXiv 2507.14111), reward checking: a checker model sees the candidate with the three most similar
cases of a hack database; hacks go into the database, get no reward and are never shown in a prompt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cudal1_ray.checking.config import CheckerConfig
from cudal1_ray.checking.endpoint import JudgeClient
from cudal1_ray.checking.hack_cases import HackCase, HackCases, case_id
from cudal1_ray.checking.opinions import JudgeReply, Opinion, Suspect, judge_prompt, read_reply
from cudal1_ray.checking.rechecks import recheck
from cudal1_ray.checking.similarity import SimilarityIndex, features
from cudal1_ray.evaluation.scrutiny.confirmation import needs_confirmation

Ask = Callable[[Sequence[str]], Sequence[JudgeReply]]


@dataclass(frozen=True)
class Neighbour:
    """A known case and its similarity to a candidate, 0 to 1."""

    case: HackCase
    similarity: float


@dataclass(frozen=True)
class Ruling:
    """What became of one suspect.

    `confirmed_by` is "known" (it is a case already), "recheck" or "trust", and empty where no hack is confirmed;
    `category` and `evidence` belong to a confirmed hack. `opinion` is None where no judge was asked.
    """

    suspect: Suspect
    case_id: str
    jump: bool
    opinion: Opinion | None = None
    neighbours: tuple[Neighbour, ...] = ()
    confirmed_by: str = ""
    category: str = ""
    evidence: str = ""

    @property
    def confirmed(self) -> bool:
        return bool(self.confirmed_by)


class Judge(Protocol):
    """Gives an opinion on each suspect; `neighbours` are its nearest cases as this judge wants them."""

    name: str
    hacks_only: bool  # whether it wants to see known hacks only, or honest cases too

    def judge(self, suspects: Sequence[Suspect], neighbours: Sequence[Sequence[Neighbour]]) -> list[Opinion]: ...


class NeighbourJudge:
    """The model-free judge: the nearest cases vote, each with its similarity for a weight."""

    name, hacks_only = "neighbours", False

    def __init__(self, threshold: float = 0.5, min_similarity: float = 0.1) -> None:
        self.threshold, self.min_similarity = threshold, min_similarity

    def judge(self, suspects: Sequence[Suspect], neighbours: Sequence[Sequence[Neighbour]]) -> list[Opinion]:
        return [self.vote(nearest) for nearest in neighbours]

    def vote(self, neighbours: Sequence[Neighbour]) -> Opinion:
        """Return the opinion of the nearest cases: a hack when hacks have at least `threshold` of the votes.

        It is no opinion when even the nearest case is less similar than `min_similarity`. The category is the one with
        most votes, the other hacks' are possible too.
        """
        if not neighbours or neighbours[0].similarity < self.min_similarity:
            return Opinion.none("no known case is similar")
        votes: dict[str, float] = {}
        for neighbour in neighbours:
            votes[neighbour.case.category] = votes.get(neighbour.case.category, 0.0) + neighbour.similarity
        share = 1.0 - votes.pop("", 0.0) / sum(neighbour.similarity for neighbour in neighbours)
        names = ", ".join(f"{n.case.source or n.case.case_id} ({n.similarity:.2f})" for n in neighbours)
        reason = f"hacks have {share:.0%} of the votes of {names}"
        if share < self.threshold or not votes:
            return Opinion(False, reason=reason)
        category, *also = sorted(votes, key=lambda category: -votes[category])
        return Opinion(True, category, reason, tuple(also))


class ModelJudge:
    """A language model as judge. `ask` answers prompts, a reply each and in order."""

    hacks_only = True

    def __init__(self, ask: Ask, name: str, max_code_characters: int = 12_000) -> None:
        self._ask, self.name, self._max_code_characters = ask, name, max_code_characters

    def judge(self, suspects: Sequence[Suspect], neighbours: Sequence[Sequence[Neighbour]]) -> list[Opinion]:
        prompts = [
            judge_prompt(suspect, [neighbour.case for neighbour in nearest], self._max_code_characters)
            for suspect, nearest in zip(suspects, neighbours, strict=True)
        ]
        replies = self._ask(prompts) if prompts else []
        return [read_reply(reply) for reply in replies]


class RewardChecker:
    """Rules on accepted candidates, and keeps the database of cases.

    Args:
        config: when to ask, which judge, and what confirms a hack.
        cases: grows with every confirmed hack, and is saved before a ruling is handed out.
        engine: completes prompts with the run's own rollout engine; needed for `judge: engine` alone.
        settled: ids of candidates that have had an opinion before, and are not judged again.

    Raises UserError for a configuration that cannot work.
    """

    def __init__(
        self, config: CheckerConfig, cases: HackCases, engine: Ask | None = None, settled: Iterable[str] = ()
    ) -> None:
        config.validate()
        self.config, self.cases = config, cases
        self.judge = _build_judge(config, engine)
        self._settled = set(settled)
        self._known: list[HackCase] = []  # in the order of the index
        self._index = SimilarityIndex()

    def is_jump(self, speedup: float, best_speedup: float) -> bool:
        """Return whether a speedup is so high, alone or beside the problem's best so far, that it is looked at."""
        limits = {"above": self.config.jump_above, "over_best": self.config.jump_over_best}
        return needs_confirmation(speedup, best_speedup, **limits)

    def nearest(self, suspect: Suspect, hacks_only: bool) -> tuple[Neighbour, ...]:
        """Return the `config.nearest` known cases most similar in what they change of their reference."""
        if not self._known:  # reading every case takes a second: only once there is a candidate to compare
            for case in self.cases:
                self._take(case)
        matches = self._index.nearest(
            features(suspect.code, suspect.reference),
            self.config.nearest,
            lambda number: self._known[number].is_hack or not hacks_only,
        )
        return tuple(Neighbour(self._known[number], similarity) for number, similarity in matches)

    def rule(self, suspects: Sequence[Suspect]) -> list[Ruling]:
        """Return a ruling on each accepted candidate, in order.

        Known hacks are refused whatever their speedup; of the rest, those whose reward jumps are judged, each distinct
        one until there is an opinion on it.
        """
        rulings: dict[str, Ruling] = {}
        ids = [case_id(suspect.problem_id, suspect.code) for suspect in suspects]
        suspects_by_id: dict[str, Suspect] = {}
        for identity, suspect in zip(ids, suspects, strict=True):
            case = self.cases.find(suspect.problem_id, suspect.code)
            jump = self.is_jump(suspect.speedup, suspect.best_speedup)
            if case is not None and case.is_hack:
                rulings[identity] = Ruling(
                    suspect, identity, jump, None, (), "known", case.category, f"a known hack: {case.reason}"
                )
            elif jump and identity not in self._settled:
                suspects_by_id[identity] = suspect
            else:
                rulings.setdefault(identity, Ruling(suspect, identity, jump))
        for ruling in self._judged(suspects_by_id):
            rulings[ruling.case_id] = ruling
        return [rulings[identity] for identity in ids]

    def _judged(self, suspects_by_id: dict[str, Suspect]) -> list[Ruling]:
        suspects = list(suspects_by_id.values())
        neighbours = [self.nearest(suspect, self.judge.hacks_only) for suspect in suspects]
        opinions = self.judge.judge(suspects, neighbours)
        rulings = []
        for (identity, suspect), near, opinion in zip(suspects_by_id.items(), neighbours, opinions, strict=True):
            ruling = self._confirm(Ruling(suspect, identity, True, opinion, near), opinion)
            rulings.append(ruling)
            if opinion.hack is not None:
                self._settled.add(identity)
            if ruling.confirmed:
                self._remember(ruling)
        if any(ruling.confirmed for ruling in rulings):
            self.cases.save()
        return rulings

    def _confirm(self, ruling: Ruling, opinion: Opinion) -> Ruling:
        if not opinion.hack:
            return ruling
        suspect = ruling.suspect
        for category in (opinion.category, *opinion.also):
            if evidence := recheck(category, suspect.code, suspect.reference):
                return dataclasses.replace(ruling, confirmed_by="recheck", category=category, evidence=evidence)
        if not self.config.trust_judge:
            return ruling
        return dataclasses.replace(ruling, confirmed_by="trust", category=opinion.category, evidence=opinion.reason)

    def _remember(self, ruling: Ruling) -> None:
        suspect = ruling.suspect
        case = HackCase.new(
            suspect.problem_id,
            ruling.category,
            f"{ruling.evidence} ({self.judge.name})",
            suspect.code,
            reference=suspect.reference,
            source=f"confirmed/{self.judge.name}",
            speedup=suspect.speedup,
            confirmed_by=ruling.confirmed_by,
        )
        if self.cases.add(case) and self._known:
            self._take(case)

    def _take(self, case: HackCase) -> None:
        self._known.append(case)
        self._index.add(features(case.code, case.reference))


def _build_judge(config: CheckerConfig, engine: Ask | None) -> Judge:
    if config.judge == "neighbours":
        return NeighbourJudge(config.vote_threshold, config.min_similarity)
    if config.judge == "endpoint":
        endpoint = JudgeClient(config.endpoint, config.temperature, config.max_answer_tokens)
        return ModelJudge(endpoint.ask, f"endpoint {config.endpoint.model}", config.max_code_characters)
    if config.judge == "engine" and engine is not None:
        return ModelJudge(engine, "engine", config.max_code_characters)
    raise ValueError(f"judge {config.judge!r} cannot be built here: it is off, or there is no engine")
