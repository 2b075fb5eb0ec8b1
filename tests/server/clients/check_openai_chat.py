#!/usr/bin/env python3
"""The `openai` package against `quince serve`: chat completions, whole and in streams, tools, structured output.

  tests/server/clients/check_openai_chat.py [--quince PATH] [--model PATH]
"""
import asyncio
import json
import sys

import openai

import common
from common import ASK, MODEL, Weather

TOOLS = [{"type": "function", "function": {"name": name, "description": f"The {name} in a city",
                                           "parameters": common.PARAMETERS}} for name in ("weather", "pollen")]
NAMED = {"type": "function", "function": {"name": "pollen"}}
GREEDY = {"model": MODEL, "messages": ASK, "temperature": 0, "max_tokens": 24}
CALL = {**GREEDY, "tools": TOOLS, "max_tokens": 200, "parallel_tool_calls": False}


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60)


def check_chat(server):
    client = client_of(server)
    answer = client.chat.completions.create(**GREEDY)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-") and answer.model == MODEL, answer
    assert [choice.index for choice in answer.choices] == [0] and answer.choices[0].message.role == "assistant"
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 24 and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert answer.choices[0].finish_reason == ("length" if usage.completion_tokens == 24 else "stop"), answer
    again = client.chat.completions.create(**GREEDY)
    text = answer.choices[0].message.content
    assert text and again.choices[0].message.content == text, (text, again)
    assert again.usage.prompt_tokens_details.cached_tokens > 0, again.usage
    # The same conversation in the other ways that it may be written.
    for messages in ([{**ASK[0], "role": "developer"}, ASK[1]],
                     [ASK[0], {"role": "user", "content": [{"type": "text", "text": ASK[1]["content"]}]}]):
        other = client.chat.completions.create(**{**GREEDY, "messages": messages})
        assert other.choices[0].message.content == text and other.usage.prompt_tokens == usage.prompt_tokens, other
    limit = client.chat.completions.create(model=MODEL, messages=ASK, temperature=0, max_completion_tokens=3)
    assert limit.usage.completion_tokens == 3 and limit.choices[0].finish_reason == "length", limit


def check_stop(server):
    client = client_of(server)
    text = client.chat.completions.create(**GREEDY).choices[0].message.content
    stop = text[len(text) // 2:len(text) // 2 + 3]
    for given in (stop, [stop, "never in it"]):
        cut = client.chat.completions.create(**GREEDY, stop=given).choices[0]
        assert cut.finish_reason == "stop" and cut.message.content == text[:text.index(stop)], (text, stop, cut)
    pieces = client.chat.completions.create(**GREEDY, stop=stop, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == text[:text.index(stop)]


def check_stream(server):
    client = client_of(server)
    whole = client.chat.completions.create(**GREEDY, logprobs=True, top_logprobs=2)
    for options in (openai.omit, {"include_usage": True}):
        chunks = list(client.chat.completions.create(**GREEDY, stream=True, stream_options=options, logprobs=True,
                                                     top_logprobs=2))
        if options is not openai.omit:
            last = chunks.pop()
            assert last.choices == [] and last.object == "chat.completion.chunk", last
            assert last.usage.completion_tokens == whole.usage.completion_tokens, last
        assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks), chunks
        assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
        choices = [chunk.choices[0] for chunk in chunks]
        assert [c.delta.role for c in choices] == ["assistant"] + [None] * (len(choices) - 1), choices
        assert [c.finish_reason for c in choices] == [None] * (len(choices) - 1) + [whole.choices[0].finish_reason]
        assert not choices[-1].delta.content and len(choices) > 8, choices
        assert "".join(c.delta.content or "" for c in choices) == whole.choices[0].message.content
        tokens = [token for c in choices if c.logprobs for token in c.logprobs.content]
        assert tokens == whole.choices[0].logprobs.content, (tokens, whole)
    # The package's own reader of streams takes answers only that end by themselves.
    with client.chat.completions.stream(**GREEDY, stop=whole.choices[0].message.content[-3:]) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion().choices[0]
    assert deltas and deltas == final.message.content and final.finish_reason == "stop", (deltas, final)


def check_sampling(server):
    client = client_of(server)
    answer = client.chat.completions.create(**GREEDY, logprobs=True, top_logprobs=3).choices[0]
    tokens = answer.logprobs.content
    assert "".join(token.token for token in tokens).startswith(answer.message.content), answer
    for token in tokens:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3 and bytes(token.bytes).decode() == token.token, token
        assert token.top_logprobs[0].token == token.token and token.top_logprobs[0].logprob == token.logprob, token
    sampled = {"model": MODEL, "messages": ASK, "max_tokens": 16, "temperature": 1.5}
    texts = [[choice.message.content for choice in client.chat.completions.create(**sampled, seed=seed, n=3).choices]
             for seed in (7, 7, 8)]
    assert texts[0] == texts[1] and texts[0] != texts[2] and len(set(texts[0])) == 3, texts
    streamed = ["", "", ""]
    for chunk in client.chat.completions.create(**sampled, seed=7, n=3, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts[0], (streamed, texts)


def check_tools(server):
    client = client_of(server)
    for wanted, names in (("required", ("weather", "pollen")), (NAMED, ("pollen",))):
        choice = client.chat.completions.create(**CALL, tool_choice=wanted).choices[0]
        (call,) = choice.message.tool_calls
        assert choice.finish_reason == "tool_calls" and choice.message.content is None, choice
        assert call.type == "function" and call.id and call.function.name in names, call
        assert common.is_weather_call(json.loads(call.function.arguments)), call
        chunks = list(client.chat.completions.create(**CALL, tool_choice=wanted, stream=True))
        parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []]
        assert chunks[-1].choices[0].finish_reason == "tool_calls" and {part.index for part in parts} == {0}, parts
        assert parts[0].id and parts[0].type == "function" and parts[0].function.name == call.function.name, parts
        assert all(part.id is None and part.function.name is None for part in parts[1:]) and len(parts) > 2, parts
        assert "".join(part.function.arguments or "" for part in parts) == call.function.arguments, (parts, call)
    none = client.chat.completions.create(**{**CALL, "max_tokens": 16}, tool_choice="none").choices[0]
    assert none.message.tool_calls is None and none.message.content, none
    free = client.chat.completions.create(**{**CALL, "max_tokens": 16}, tool_choice="auto").choices[0]
    assert (free.finish_reason == "tool_calls") == bool(free.message.tool_calls), free
    turn = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    after = client.chat.completions.create(**{**CALL, "messages": turn, "max_tokens": 16}, tool_choice="none")
    assert after.choices[0].message.content and after.usage.prompt_tokens > 0, after
    cut = client.chat.completions.create(**{**CALL, "max_tokens": 8}, tool_choice=NAMED).choices[0]
    assert cut.finish_reason == "length", cut


def check_structured(server):
    client = client_of(server)
    ask = {**GREEDY, "max_tokens": 200}
    choice = client.chat.completions.parse(**ask, response_format=Weather).choices[0]
    assert isinstance(choice.message.parsed, Weather) and choice.finish_reason == "stop", choice
    with client.chat.completions.stream(**ask, response_format=Weather) as stream:
        parsed = [event.parsed for event in stream if event.type == "content.done"]
    assert parsed == [choice.message.parsed], parsed
    tool = openai.pydantic_function_tool(Weather)
    call = client.chat.completions.parse(**ask, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    assert isinstance(call.choices[0].message.tool_calls[0].function.parsed_arguments, Weather), call
    with client.chat.completions.stream(**ask, tools=[tool], tool_choice="required",
                                        parallel_tool_calls=False) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert [type(event.parsed_arguments) for event in done] == [Weather], done
    some_object = client.chat.completions.create(**GREEDY, response_format={"type": "json_object"}).choices[0]
    assert some_object.finish_reason == "length" or isinstance(json.loads(some_object.message.content), dict)
    plain = client.chat.completions.create(**GREEDY, response_format={"type": "text"}).choices[0]
    assert plain.message.content == client.chat.completions.create(**GREEDY).choices[0].message.content
    try:
        client.chat.completions.parse(**{**GREEDY, "max_tokens": 3}, response_format=Weather)
        raise AssertionError("a cut answer was parsed")
    except openai.LengthFinishReasonError as error:
        assert error.completion.usage.completion_tokens == 3, error.completion


def check_async(server):
    wanted = client_of(server).chat.completions.create(**GREEDY).choices[0].message.content

    async def ask(client, stream):
        if not stream:
            return (await client.chat.completions.create(**GREEDY)).choices[0].message.content
        return "".join([chunk.choices[0].delta.content or ""
                        async for chunk in await client.chat.completions.create(**GREEDY, stream=True)])

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            texts = await asyncio.gather(*(ask(client, i % 2 == 0) for i in range(16)))
            assert set(texts) == {wanted}, texts
            parsed = await client.chat.completions.parse(**{**GREEDY, "max_tokens": 200}, response_format=Weather)
            assert isinstance(parsed.choices[0].message.parsed, Weather), parsed
            async with client.chat.completions.stream(**CALL, tool_choice=NAMED) as stream:
                call = (await stream.get_final_completion()).choices[0].message.tool_calls[0]
            assert common.is_weather_call(json.loads(call.function.arguments)), call
    asyncio.run(ask_all())


if __name__ == "__main__":
    sys.exit(common.main(__doc__, [check_chat, check_stop, check_stream, check_sampling, check_tools, check_structured,
                                   check_async]))
