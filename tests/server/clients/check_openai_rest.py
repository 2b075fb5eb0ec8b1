#!/usr/bin/env python3
"""The `openai` package against `quince serve`: responses, embeddings, models, and completions of plain text.

  tests/server/clients/check_openai_rest.py [--quince PATH] [--model PATH]
"""
import asyncio
import json
import sys

import openai

import common
from common import MODEL, Weather
from check_openai_chat import client_of

GREEDY = {"model": MODEL, "temperature": 0, "max_output_tokens": 12}
TOOLS = [{"type": "function", "name": name, "parameters": common.PARAMETERS} for name in ("weather", "pollen")]
CALL = {**GREEDY, "input": "The weather in Rome?", "tools": TOOLS, "max_output_tokens": 200,
        "parallel_tool_calls": False}
ENDS = {"completed": None, "incomplete": "max_output_tokens"}


def check_responses(server):
    client = client_of(server)
    first = client.responses.create(**GREEDY, input="Name a colour.", instructions="Be brief.",
                                    metadata={"origin": "here"})
    assert first.object == "response" and first.id.startswith("resp_") and first.output_text, first
    assert [item.type for item in first.output] == ["message"] and first.error is None, first
    assert (first.incomplete_details and first.incomplete_details.reason) == ENDS[first.status], first
    assert first.output[0].status == first.status and first.output[0].role == "assistant", first
    usage = first.usage
    assert 0 < usage.output_tokens <= 12 and usage.total_tokens == usage.input_tokens + usage.output_tokens, usage
    assert first.instructions == "Be brief." and first.metadata == {"origin": "here"} and first.temperature == 0, first
    assert client.responses.retrieve(first.id) == first
    # It goes on from there: what was said is part of the prompt, the instructions are not.
    following = client.responses.create(**GREEDY, input="Another.", previous_response_id=first.id)
    said = [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "Another."}]
    spelled = client.responses.create(**GREEDY, input=said)
    assert following.previous_response_id == first.id and following.output_text == spelled.output_text, following
    assert following.usage.input_tokens == spelled.usage.input_tokens, (following, spelled)
    client.responses.delete(first.id)
    common.fails(openai.NotFoundError, lambda: client.responses.retrieve(first.id))
    common.fails(openai.NotFoundError, lambda: client.responses.delete(first.id))
    unkept = client.responses.create(**GREEDY, input="Hello", store=False)
    common.fails(openai.NotFoundError, lambda: client.responses.retrieve(unkept.id))
    common.fails(openai.NotFoundError,
                 lambda: client.responses.create(**GREEDY, input="Hello", previous_response_id=unkept.id))


def check_response_stream(server):
    client = client_of(server)
    whole = client.responses.create(**GREEDY, input="Name a colour.")
    events = list(client.responses.create(**GREEDY, input="Name a colour.", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events if event.type != "response.output_text.delta"]
    assert kinds == ["response.created", "response.in_progress", "response.output_item.added",
                     "response.content_part.added", "response.output_text.done", "response.content_part.done",
                     "response.output_item.done", "response." + whole.status], kinds
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    text = next(event for event in events if event.type == "response.output_text.done").text
    assert "".join(event.delta for event in deltas) == text == whole.output_text and len(deltas) > 4, (deltas, whole)
    last = events[-1].response
    assert last.output_text == text and last.usage.output_tokens == whole.usage.output_tokens, last
    assert last.output[0].status == last.status and len({event.item_id for event in deltas}) == 1, last
    assert client.responses.retrieve(last.id).output == last.output
    with client.responses.stream(**GREEDY, input="Name a colour.") as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert said == text, said


def check_response_tools(server):
    client = client_of(server)
    for wanted, names in (("required", ("weather", "pollen")), ({"type": "function", "name": "pollen"}, ("pollen",))):
        answer = client.responses.create(**CALL, tool_choice=wanted)
        (call,) = answer.output
        assert call.type == "function_call" and call.call_id and call.name in names, answer
        assert answer.status == call.status == "completed" and common.is_weather_call(json.loads(call.arguments)), call
        events = list(client.responses.create(**CALL, tool_choice=wanted, stream=True))
        deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        done = next(event for event in events if event.type == "response.function_call_arguments.done")
        assert "".join(deltas) == done.arguments == call.arguments and len(deltas) > 1, (deltas, done, call)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    told = client.responses.create(**GREEDY, input=[result], previous_response_id=answer.id)
    spelled = client.responses.create(**GREEDY, input=[{"role": "user", "content": CALL["input"]},
                                                       call.model_dump(exclude_none=True), result])
    assert told.output_text == spelled.output_text and told.usage.input_tokens == spelled.usage.input_tokens, told
    cut = client.responses.create(**{**CALL, "max_output_tokens": 8}, tool_choice="required")
    assert cut.status == "incomplete" and all(item.status == "incomplete" for item in cut.output), cut


def check_response_form(server):
    client = client_of(server)
    ask = {**GREEDY, "input": "The weather in Rome?", "max_output_tokens": 200}
    answer = client.responses.parse(**ask, text_format=Weather)
    assert isinstance(answer.output_parsed, Weather) and answer.status == "completed", answer
    assert answer.text.format.type == "json_schema" and answer.text.format.name == "Weather", answer.text
    with client.responses.stream(**ask, text_format=Weather) as stream:
        assert stream.get_final_response().output_parsed == answer.output_parsed


def check_embeddings(server):
    client = client_of(server)
    one = client.embeddings.create(model=MODEL, input="a fox")  # the package asks for base64
    several = client.embeddings.create(model=MODEL, input=["a hound", "a fox"], encoding_format="float")
    assert [row.index for row in several.data] == [0, 1] and one.usage.prompt_tokens > 0, several
    first, again = one.data[0].embedding, several.data[1].embedding
    assert len(first) == 576 and abs(sum(x * x for x in first) - 1) < 1e-3, len(first)
    assert max(abs(a - b) for a, b in zip(first, again)) < 1e-3 and several.data[0].embedding != again
    short = client.embeddings.create(model=MODEL, input="a fox", dimensions=16).data[0].embedding
    scale = sum(x * x for x in again[:16]) ** 0.5
    assert len(short) == 16 and max(abs(a - b / scale) for a, b in zip(short, again)) < 1e-3, short
    tokens = client.embeddings.create(model=MODEL, input=[[30, 40, 50], [60]])
    assert len(tokens.data) == 2 and tokens.usage.prompt_tokens == 4, tokens.usage
    common.fails(openai.BadRequestError, lambda: client.embeddings.create(model=MODEL, input="a fox", dimensions=9999))


def check_models(server):
    client = client_of(server)
    (model,) = [entry for entry in client.models.list() if entry.id == MODEL]
    assert model.object == "model" and isinstance(model.created, int) and model.owned_by, model
    assert client.models.retrieve(MODEL) == model
    common.fails(openai.NotFoundError, lambda: client.models.retrieve("none-such"))


def check_completions(server):
    client = client_of(server)
    ask = {"model": MODEL, "prompt": "The sea is", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**ask, logprobs=2)
    assert whole.object == "text_completion" and whole.choices[0].finish_reason in ("length", "stop"), whole
    text, logprobs = whole.choices[0].text, whole.choices[0].logprobs
    assert text and "".join(logprobs.tokens) == text and len(logprobs.token_logprobs) == len(logprobs.tokens), whole
    assert logprobs.text_offset[0] == 0 and len(logprobs.top_logprobs[0]) == 2, logprobs
    chunks = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    usage = chunks.pop()
    assert usage.choices == [] and usage.usage == client.completions.create(**ask).usage.model_copy(
        update={"prompt_tokens_details": usage.usage.prompt_tokens_details}), usage
    assert "".join(chunk.choices[0].text for chunk in chunks) == text, chunks
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]
    echoed = client.completions.create(**ask, echo=True).choices[0].text
    assert echoed == ask["prompt"] + text, echoed
    two = client.completions.create(**{**ask, "prompt": ["The sea is", "A dog"]}, n=2, seed=1)
    assert [choice.index for choice in two.choices] == [0, 1, 2, 3] and two.choices[0].text == text, two
    assert two.choices[0].text == two.choices[1].text != two.choices[2].text, two


def check_async(server):
    wanted = client_of(server).responses.create(**GREEDY, input="Name a colour.").output_text

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            answers = await asyncio.gather(*(client.responses.create(**GREEDY, input="Name a colour.")
                                             for _ in range(8)))
            assert {answer.output_text for answer in answers} == {wanted}, answers
            stream = await client.responses.create(**GREEDY, input="Name a colour.", stream=True)
            text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
            assert text == wanted, text
            assert MODEL in [model.id async for model in client.models.list()]
            assert len((await client.embeddings.create(model=MODEL, input=["a", "b"])).data) == 2
            pieces = await client.completions.create(model=MODEL, prompt="The", max_tokens=4, stream=True)
            assert [chunk async for chunk in pieces][-1].choices[0].finish_reason in ("length", "stop")
    asyncio.run(ask_all())


if __name__ == "__main__":
    sys.exit(common.main(__doc__, [check_responses, check_response_stream, check_response_tools, check_response_form,
                                   check_embeddings, check_models, check_completions, check_async]))
