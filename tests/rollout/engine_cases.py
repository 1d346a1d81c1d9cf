"""What every engine must do: both engines' test files inherit these cases.

Each case leaves the engine with the weights it found (of `first_model`).
"""

from __future__ import annotations

import threading

import pytest
import torch

from cudal1_ray.errors import UserError
from cudal1_ray.rollout import GenerationRequest, RolloutEngine, SamplingParameters

EOS = 2
PROMPTS = (tuple(range(10, 50)), tuple(range(10, 50)), (7, 8, 9), tuple(range(100, 170)))
REQUESTS = [GenerationRequest(f"r{i}", prompt) for i, prompt in enumerate(PROMPTS)]
GREEDY = SamplingParameters(temperature=0.0, max_tokens=24)
SAMPLED = SamplingParameters(n=4, temperature=1.0, max_tokens=24, seed=5)


def weights_of(tiny) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in tiny.model.named_parameters()}


def by_key(completions) -> dict:
    return {(c.request_id, c.index): c for c in completions}


def assert_logprobs(tiny, completions, temperature: float = 1.0) -> None:
    for completion in completions:
        prompt = PROMPTS[int(completion.request_id[1:])]
        expected = tiny.logprobs(prompt, completion.token_ids, temperature)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)


class EngineCases:
    """Wants a fixture `engine`."""

    def test_engine_when_built_is_a_rollout_engine(self, engine):
        assert isinstance(engine, RolloutEngine)

    def test_greedy_completions_when_generated_equal_a_plain_forward_pass(self, engine, first_model):
        completions = list(engine.generate(REQUESTS, GREEDY))
        assert len(completions) == len(REQUESTS)
        for completion in completions:
            prompt = PROMPTS[int(completion.request_id[1:])]
            assert completion.token_ids == first_model.greedy(prompt, 24, EOS)
        assert_logprobs(first_model, completions)

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_logprobs_when_sampled_are_those_of_the_sampling_distribution(self, engine, first_model, temperature):
        sampling = SamplingParameters(n=3, temperature=temperature, max_tokens=24, seed=1)
        completions = list(engine.generate(REQUESTS, sampling))
        assert len(by_key(completions)) == 3 * len(REQUESTS)
        assert_logprobs(first_model, completions, temperature)

    def test_completions_when_seeded_are_reproduced_and_differ_by_seed(self, engine):
        first, again = by_key(engine.generate(REQUESTS, SAMPLED)), by_key(engine.generate(REQUESTS[::-1], SAMPLED))
        assert {key: c.token_ids for key, c in first.items()} == {key: c.token_ids for key, c in again.items()}
        assert len({c.token_ids for c in first.values()}) == len(first)  # same prompt, other id or index: other draw
        other = by_key(engine.generate(REQUESTS, SamplingParameters(n=4, max_tokens=24, seed=6)))
        assert all(other[key].token_ids != first[key].token_ids for key in first)

    def test_frequencies_when_sampled_follow_the_distribution(self, engine, first_model):
        requests = [GenerationRequest("r2", PROMPTS[2])]
        draws = [c.token_ids[0] for c in engine.generate(requests, SamplingParameters(n=2000, max_tokens=1, seed=0))]
        everything = [first_model.logprobs(PROMPTS[2], (token,)).exp().item() for token in range(320)]
        counts = torch.bincount(torch.tensor(draws), minlength=320) / len(draws)
        assert (counts - torch.tensor(everything)).abs().max() < 5 * (0.25 / 2000) ** 0.5

    def test_completions_when_top_p_is_set_keep_to_the_nucleus(self, engine, first_model):
        sampling = SamplingParameters(n=64, top_p=0.3, max_tokens=1, seed=0)
        drawn = {c.token_ids[0] for c in engine.generate([REQUESTS[2]], sampling)}
        p = torch.tensor([first_model.logprobs(PROMPTS[2], (token,)).exp().item() for token in range(320)])
        order = p.argsort(descending=True)
        inside = int((p[order].cumsum(0) < 0.3).sum()) + 1
        assert drawn <= set(order[:inside].tolist())

    def test_completion_when_it_draws_the_end_token_ends(self, engine):
        completions = list(engine.generate(REQUESTS[2:3], SamplingParameters(n=64, max_tokens=100, seed=3)))
        ended = [c for c in completions if c.finish_reason == "stop"]
        assert ended and all(c.token_ids[-1] == EOS and EOS not in c.token_ids[:-1] for c in ended)
        assert all(len(c.token_ids) == 100 for c in completions if c.finish_reason == "length")
        assert all("<eos>" not in c.text for c in completions)
        assert [len(c.token_ids) for c in completions] != sorted((len(c.token_ids) for c in completions), reverse=True)

    def test_completion_when_it_holds_a_stop_string_ends_and_is_cut(self, engine):
        free = by_key(engine.generate(REQUESTS, SAMPLED))
        longest = max(free.values(), key=lambda c: len(c.text))
        stop = next(character for character in longest.text[len(longest.text) // 2 :] if character.isascii())
        stopped = by_key(
            engine.generate(REQUESTS, SamplingParameters(n=4, temperature=1.0, max_tokens=24, seed=5, stop=(stop,)))
        )
        ended = [key for key, c in free.items() if stop in c.text]
        assert ended
        for key in ended:
            completion = stopped[key]
            assert completion.finish_reason == "stop"
            assert completion.text == free[key].text[: free[key].text.index(stop)]
            assert completion.token_ids == free[key].token_ids[: len(completion.token_ids)]

    def test_completion_when_the_model_is_full_ends(self, engine):
        prompt = tuple(range(3, 123))
        sampling = SamplingParameters(max_tokens=1000, seed=0)
        (completion,) = engine.generate([GenerationRequest("long", prompt)], sampling)
        assert len(prompt) + len(completion.token_ids) <= 127
        with pytest.raises(UserError, match="max_model_len=128"):
            engine.generate([GenerationRequest("long", tuple(range(3, 131)))], GREEDY)
        with pytest.raises(UserError, match="empty"):
            engine.generate([GenerationRequest("none", ())], GREEDY)

    def test_score_when_computed_agrees_with_sampling_and_a_forward_pass(self, engine, first_model):
        completions = list(engine.generate(REQUESTS, SAMPLED))
        sequences = [(PROMPTS[int(c.request_id[1:])], c.token_ids) for c in completions]
        scores = engine.score([*sequences, (PROMPTS[0], ())])
        assert scores.pop() == ()
        for (prompt, completion), score, sampled in zip(sequences, scores, completions, strict=True):
            expected = first_model.logprobs(prompt, completion)
            torch.testing.assert_close(torch.tensor(score), expected, atol=1e-4, rtol=0)
            torch.testing.assert_close(torch.tensor(score), torch.tensor(sampled.logprobs), atol=1e-4, rtol=0)

    def test_weights_when_loaded_replace_the_old_and_their_cached_prefixes(self, engine, first_model, second_model):
        list(engine.generate(REQUESTS, GREEDY))  # fills the prefix cache under the first weights
        engine.load_weights(weights_of(second_model), policy_version=7)
        completions = list(engine.generate(REQUESTS, GREEDY))
        sampled = list(engine.generate(REQUESTS, SAMPLED))
        scores = engine.score([(PROMPTS[0], (5, 6, 7))])
        engine.load_weights(weights_of(first_model), policy_version=8)
        back = list(engine.generate(REQUESTS, GREEDY))

        for completion in completions:
            prompt = PROMPTS[int(completion.request_id[1:])]
            assert completion.token_ids == second_model.greedy(prompt, 24, EOS)
        assert_logprobs(second_model, completions + sampled)
        expected = second_model.logprobs(PROMPTS[0], (5, 6, 7))
        torch.testing.assert_close(torch.tensor(scores[0]), expected, atol=1e-4, rtol=0)
        assert {c.policy_version for c in completions + sampled} == {7}
        assert {c.policy_version for c in back} == {8}
        assert_logprobs(first_model, back)

    def test_requests_when_weights_are_updated_during_generation_are_kept(self, engine, first_model, second_model):
        version = engine.policy_version
        request = GenerationRequest("r3", PROMPTS[3])
        short = GenerationRequest("r2", PROMPTS[2])
        sampling = SamplingParameters(temperature=1.0, max_tokens=40, seed=9)
        stream = engine.generate([request], sampling)
        # Another call that is finished early interleaves its steps with the first one's.
        waiting = threading.Thread(target=lambda: results.extend(stream))
        results: list = []
        engine.pause()
        waiting.start()
        engine.load_weights(weights_of(second_model), version + 1)
        waiting.join(0.2)
        assert waiting.is_alive() and not results  # an update does not undo the caller's pause
        engine.resume()
        (other,) = engine.generate([short], GREEDY)
        waiting.join(60)
        engine.load_weights(weights_of(first_model), version + 2)
        assert len(results) == 1
        assert other.token_ids == second_model.greedy(PROMPTS[2], 24, EOS) and other.policy_version == version + 1
        assert_logprobs(second_model, results)

    def test_requests_when_their_iterator_is_dropped_are_gone(self, engine, first_model):
        stream = engine.generate(REQUESTS, SamplingParameters(n=8, max_tokens=60, seed=0))
        next(stream)
        stream.close()
        completions = list(engine.generate(REQUESTS, GREEDY))
        assert len(completions) == len(REQUESTS)
        assert_logprobs(first_model, completions)

    def test_requests_when_given_up_do_not_come_and_the_rest_is_the_same(self, engine):
        everything = by_key(engine.generate(REQUESTS, SAMPLED))
        stream = engine.generate(REQUESTS, SAMPLED)
        first = next(stream)
        given_up = {request.request_id for request in REQUESTS[:2]} - {first.request_id}
        engine.abort([*given_up, "never asked"])
        rest = by_key(stream)
        assert rest and not {request_id for request_id, _ in rest} & given_up
        untouched = {key: c for key, c in everything.items() if key[0] not in given_up}
        assert {(first.request_id, first.index): first} | rest == untouched
        assert len(list(engine.generate(REQUESTS, GREEDY))) == len(REQUESTS)

    def test_stream_when_given_up_from_another_thread_ends(self, engine):
        stream = engine.generate(REQUESTS[:1], SamplingParameters(n=8, max_tokens=80, seed=1))
        results = [next(stream)]
        waiting = threading.Thread(target=lambda: results.extend(stream))
        waiting.start()
        engine.abort(["r0"])
        waiting.join(120)
        assert not waiting.is_alive() and 1 <= len(results) <= 8

    def test_segments_when_weights_change_name_the_version_of_each_token(self, engine, first_model, second_model):
        stream = engine.generate(REQUESTS[:3], SamplingParameters(n=16, max_tokens=40, seed=2))
        before, version = next(stream), engine.policy_version
        engine.load_weights(weights_of(second_model), version + 1)
        rest = list(stream)
        engine.load_weights(weights_of(first_model), version + 2)
        assert before.segments == () and before.policy_version == version
        crossed = [c for c in rest if c.segments]
        assert crossed
        for completion in crossed:
            assert [v for _, v in completion.segments] == [version, version + 1]
            assert sum(count for count, _ in completion.segments) == len(completion.token_ids)
            prompt, start = PROMPTS[int(completion.request_id[1:])], completion.segments[0][0]
            old = first_model.logprobs(prompt, completion.token_ids)[:start]
            new = second_model.logprobs(prompt, completion.token_ids)[start:]
            expected = torch.cat((old, new))
            torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)

    def test_completion_when_begun_during_an_update_names_the_new_version(self, engine, first_model, monkeypatch):
        version, put_in_place = engine.policy_version, engine._replace_weights
        loading, may_end, results = threading.Event(), threading.Event(), []

        def replace_slowly(weights):
            loading.set()
            may_end.wait(60)
            put_in_place(weights)

        monkeypatch.setattr(engine, "_replace_weights", replace_slowly)
        update = threading.Thread(target=engine.load_weights, args=(weights_of(first_model), version + 1))
        update.start()
        assert loading.wait(60)
        generation = threading.Thread(target=lambda: results.extend(engine.generate(REQUESTS[:1], GREEDY)))
        generation.start()
        generation.join(0.3)
        may_end.set()
        for thread in (update, generation):
            thread.join(60)
        assert [(c.policy_version, c.segments) for c in results] == [(version + 1, ())]

    def test_load_weights_when_there_are_none_is_a_mistake_and_no_failure(self, engine):
        with pytest.raises(ValueError, match="no weights"):
            engine.load_weights({}, 3)
        assert list(engine.generate(REQUESTS[:1], GREEDY))
