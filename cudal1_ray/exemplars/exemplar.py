"""One exemplar: a candidate that was evaluated, with the speedup it earned, ready to be shown in a prompt."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from cudal1_ray.exemplars.features import CodeFeatures, code_features
from cudal1_ray.source.normal_form import normalise_code

# Hexadecimal digits: 80 bits, a collision among a million exemplars has a chance below 1e-12.
ID_LENGTH = 20


@dataclass(frozen=True)
class Exemplar:
    """A candidate of one problem and what became of it. Make one with `new`: the buffer trusts what `new` works out.

    `speedup` is t(reference) / t(candidate); 0.0 means that the candidate was rejected, `reasons` states why, and
    `detail` what the evaluator found, in one line. `parent_ids` are the exemplars its prompt showed; `step` is the
    training step that produced it, 0 where it was there before the run.
    `exemplar_id` and `features` are functions of the normalised code.
    """

    exemplar_id: str
    problem_id: str
    code: str
    speedup: float
    policy_version: int = 0
    step: int = 0
    parent_ids: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    features: CodeFeatures = CodeFeatures()
    detail: str = ""

    @classmethod
    def new(
        cls,
        problem_id: str,
        code: str,
        speedup: float,
        *,
        policy_version: int = 0,
        step: int = 0,
        parent_ids: tuple[str, ...] = (),
        reasons: tuple[str, ...] = (),
        detail: str = "",
    ) -> Exemplar:
        """Return an exemplar whose id and features are derived from its content, as the buffer requires.

        The code is parsed and printed, which takes about a millisecond for a long one. It happens here, where
        candidates are made, so that the one process that owns a buffer need not do it for all.
        """
        normalised = normalise_code(code)
        return cls(
            identity_of(problem_id, normalised),
            problem_id,
            code,
            speedup,
            policy_version,
            step,
            parent_ids,
            reasons,
            code_features(normalised),
            detail,
        )

    def as_seed(self) -> Exemplar:
        """Return the exemplar as another run begins with it, none of whose steps and policies produced it."""
        return replace(self, policy_version=0, step=0)


def exemplar_id(problem_id: str, code: str) -> str:
    """Return the identity of a problem's candidate: the first 80 bits of SHA-256 over problem and normalised code."""
    return identity_of(problem_id, normalise_code(code))


def identity_of(problem_id: str, normalised: str) -> str:
    """Return `exemplar_id` of a code that `normalise_code` returned."""
    # surrogatepass: a model can write a lone surrogate, which is no UTF-8 and must still have an identity.
    content = f"{problem_id}\0{normalised}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:ID_LENGTH]
