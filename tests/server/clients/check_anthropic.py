#!/usr/bin/env python3
"""The `anthropic` package against `quince serve`: messages, streams, tools, structured output, errors, cancelling.

  tests/server/clients/check_anthropic.py [--quince PATH] [--model PATH]
"""
import asyncio
import sys

import anthropic

import common
from common import LONG, MODEL, Weather

USER = [{"role": "user", "content": "What is the weather in Rome?"}]
# The package has no temperature of its own any more.
GREEDY = {"model": MODEL, "max_tokens": 16, "system": "Be brief.", "messages": USER, "extra_body": {"temperature": 0}}
TOOLS = [{"name": name, "description": f"The {name} in a city", "input_schema": common.PARAMETERS}
         for name in ("weather", "pollen")]
CALL = {**GREEDY, "tools": TOOLS, "max_tokens": 200}
ONE = {"type": "any", "disable_parallel_tool_use": True}
NAMED = {"type": "tool", "name": "pollen"}
ENDLESS = {**GREEDY, "max_tokens": LONG, "extra_body": {"temperature": 0, "ignore_eos": True}}


def client_of(server, key="none"):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=60)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def all_input(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def check_messages(server):
    client = client_of(server)
    answer = client.messages.create(**GREEDY)
    assert answer.type == "message" and answer.id.startswith("msg_") and answer.role == "assistant", answer
    assert answer.model == MODEL and [block.type for block in answer.content] == ["text"], answer  # no "thinking"
    assert 0 < answer.usage.output_tokens <= 16 and answer.stop_sequence is None, answer
    assert answer.stop_reason == ("max_tokens" if answer.usage.output_tokens == 16 else "end_turn"), answer
    again = client.messages.create(**GREEDY)
    assert text_of(again) == text_of(answer) and again.usage.cache_read_input_tokens > 0, again
    assert all_input(again.usage) == all_input(answer.usage), again
    counted = client.messages.count_tokens(model=MODEL, system=GREEDY["system"], messages=USER)
    assert counted.input_tokens == all_input(answer.usage), (counted, answer)
    blocks = client.messages.create(**{**GREEDY, "system": [{"type": "text", "text": GREEDY["system"]}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": USER[0]["content"],
                                      "cache_control": {"type": "ephemeral"}}]}]})
    assert text_of(blocks) == text_of(answer), blocks
    stop = text_of(answer)[6:9]
    cut = client.messages.create(**GREEDY, stop_sequences=[stop, "never in it"])
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == stop, cut
    assert text_of(cut) == text_of(answer)[:text_of(answer).index(stop)], (cut, answer)
    turns = [*USER, {"role": "assistant", "content": answer.content}, {"role": "user", "content": "And in Oslo?"}]
    assert all_input(client.messages.create(**{**GREEDY, "messages": turns}).usage) > all_input(answer.usage)
    off = client.messages.create(**GREEDY, thinking={"type": "disabled"})
    assert text_of(off) == text_of(answer), off


def check_stream(server):
    client = client_of(server)
    whole = client.messages.create(**GREEDY)
    events = list(client.messages.create(**GREEDY, stream=True))
    kinds = [event.type for event in events if event.type != "content_block_delta"]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta",
                     "message_stop"], kinds
    assert events[0].message.content == [] and events[0].message.usage.input_tokens > 0, events[0]
    assert events[-2].delta.stop_reason == whole.stop_reason, events[-2]
    assert events[-2].usage.output_tokens == whole.usage.output_tokens and len(events) > 10, events
    text = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    assert text == text_of(whole), (text, whole)
    with client.messages.stream(**GREEDY) as stream:
        assert "".join(stream.text_stream) == text
        final = stream.get_final_message()
    assert text_of(final) == text and final.stop_reason == whole.stop_reason, final
    assert final.usage.output_tokens == whole.usage.output_tokens, final
    assert all_input(final.usage) == all_input(whole.usage), (final.usage, whole.usage)


def check_tools(server):
    client = client_of(server)
    for choice, names in ((ONE, ("weather", "pollen")), (NAMED, ("pollen",))):
        answer = client.messages.create(**CALL, tool_choice=choice)
        (call,) = answer.content
        assert answer.stop_reason == "tool_use" and call.type == "tool_use" and call.name in names, answer
        assert call.id and common.is_weather_call(call.input), call
        with client.messages.stream(**CALL, tool_choice=choice) as stream:
            pieces = [event.partial_json for event in stream if event.type == "input_json"]
            final = stream.get_final_message()
        assert len(pieces) > 1 and final.stop_reason == "tool_use", (pieces, final)
        assert (final.content[0].name, final.content[0].input) == (call.name, call.input), final
    turns = [*USER, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}]}]
    short = {**CALL, "max_tokens": 8}
    assert text_of(client.messages.create(**{**short, "messages": turns}, tool_choice={"type": "none"}))
    failed = [*turns[:-1], {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call.id, "content": "no such city", "is_error": True},
        {"type": "text", "text": "Try again."}]}]
    assert client.messages.create(**{**short, "messages": failed}).content
    free = client.messages.create(**short, tool_choice={"type": "auto"})
    assert (free.stop_reason == "tool_use") == any(block.type == "tool_use" for block in free.content), free
    cut = client.messages.create(**short, tool_choice=NAMED)
    assert cut.stop_reason == "max_tokens", cut
    assert client.messages.count_tokens(model=MODEL, messages=turns, tools=TOOLS).input_tokens > 10


def check_structured(server):
    client = client_of(server)
    answer = client.messages.parse(**{**GREEDY, "max_tokens": 200}, output_format=Weather)
    assert isinstance(answer.parsed_output, Weather) and answer.stop_reason == "end_turn", answer
    with client.messages.stream(**{**GREEDY, "max_tokens": 200}, output_format=Weather) as stream:
        assert stream.get_final_message().parsed_output == answer.parsed_output


def check_refusals(server):
    client = client_of(server)
    for field, value in (("max_tokens", 0), ("messages", []), ("tool_choice", {"type": "no such"}),
                         ("messages", [{"role": "nobody", "content": "?"}]), ("extra_body", {"temperature": -5}),
                         ("messages", [{"role": "user", "content": "many words " * 9000}])):
        for stream in (False, True):
            error = common.fails(anthropic.BadRequestError,
                                 lambda: client.messages.create(**{**GREEDY, field: value}, stream=stream), 400)
            assert error.body["type"] == "error" and error.body["error"]["type"] == "invalid_request_error", error.body
            assert error.body["error"]["message"], error.body
    error = common.fails(anthropic.NotFoundError, lambda: client.messages.create(**{**GREEDY, "model": "none-such"}))
    assert error.body["error"]["type"] == "not_found_error", error.body
    common.fails(anthropic.NotFoundError, lambda: client.messages.count_tokens(model="none-such", messages=USER))
    big = [{"role": "user", "content": "x" * (33 << 20)}]
    error = common.fails(anthropic.RequestTooLargeError, lambda: client.messages.create(
        **{**GREEDY, "messages": big}), 413)
    assert error.body["error"]["type"] == "request_too_large", error.body


def check_async(server):
    wanted = text_of(client_of(server).messages.create(**GREEDY))

    async def ask_and_leave():
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as client:
            answers = await asyncio.gather(*(client.messages.create(**GREEDY) for _ in range(8)))
            assert {text_of(answer) for answer in answers} == {wanted}, answers
            async with client.messages.stream(**GREEDY) as stream:
                assert "".join([text async for text in stream.text_stream]) == wanted
            task = asyncio.create_task(client.messages.create(**ENDLESS))
            await asyncio.to_thread(common.busy, server)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.to_thread(common.alone, server)
            async with client.messages.stream(**ENDLESS) as stream:
                async for _ in stream.text_stream:
                    break
            await asyncio.to_thread(common.alone, server)
    asyncio.run(ask_and_leave())
    impatient = client_of(server).with_options(timeout=0.5)
    common.fails(anthropic.APITimeoutError, lambda: impatient.messages.create(**ENDLESS))
    common.alone(server)


def check_keys(server, key, slow_key):
    error = common.fails(anthropic.AuthenticationError, lambda: client_of(server, "x").messages.create(**GREEDY), 401)
    assert error.body["error"]["type"] == "authentication_error", error.body
    assert client_of(server, key).messages.create(**GREEDY).content
    bearer = anthropic.Anthropic(base_url=server.url, api_key=None, auth_token=key, max_retries=0)
    assert bearer.messages.create(**GREEDY).content
    slow = client_of(server, slow_key)
    assert slow.messages.create(**GREEDY).content
    error = common.fails(anthropic.RateLimitError, lambda: slow.messages.create(**GREEDY), 429)
    assert error.body["error"]["type"] == "rate_limit_error", error.body
    assert 0 < int(error.response.headers["retry-after"]) <= 60, error.response.headers


if __name__ == "__main__":
    sys.exit(common.main(__doc__, [check_messages, check_stream, check_tools, check_structured, check_refusals,
                                   check_async], [check_keys]))
