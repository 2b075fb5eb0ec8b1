#!/usr/bin/env python3
"""The `openai` package against `quince serve`: errors become its exceptions; clients that give up disturb nobody.

  tests/server/clients/check_openai_errors.py [--quince PATH] [--model PATH]
"""
import asyncio
import sys

import openai

import common
from common import ASK, LONG, MODEL
from check_openai_chat import GREEDY, client_of

ENDLESS = {**GREEDY, "max_tokens": LONG, "extra_body": {"ignore_eos": True}}


def check_refusals(server):
    client = client_of(server)
    chat, responses = client.chat.completions.create, client.responses.create
    for field, value in (("temperature", -5), ("top_p", 7), ("n", 0), ("max_tokens", -9), ("messages", []),
                         ("tool_choice", "whatever"), ("response_format", {"type": "no such"}),
                         ("messages", [{"role": "nobody", "content": "?"}])):
        error = common.fails(openai.BadRequestError, lambda: chat(**{**GREEDY, field: value}), 400)
        assert error.body["message"] and error.type == "invalid_request_error", error.body
        assert error.param.startswith(field), error.body
    error = common.fails(openai.BadRequestError, lambda: responses(model=MODEL, input=[{"type": "no such"}]), 400)
    assert error.param == "input[0].type", error.body
    text = "many words " * 9000
    for call in (lambda: chat(model=MODEL, messages=[{"role": "user", "content": text}]),
                 lambda: chat(model=MODEL, messages=[{"role": "user", "content": text}], stream=True),
                 lambda: responses(model=MODEL, input=text),
                 lambda: client.completions.create(model=MODEL, prompt=text)):
        error = common.fails(openai.BadRequestError, call, 400)
        assert error.code == "context_length_exceeded" and "8192" in error.body["message"], error.body
    for call in (lambda: chat(**{**GREEDY, "model": "none-such"}), lambda: responses(model="none-such", input="?"),
                 lambda: client.completions.create(model="none-such", prompt="?"),
                 lambda: client.embeddings.create(model="none-such", input="?")):
        error = common.fails(openai.NotFoundError, call, 404)
        assert error.code == "model_not_found" and "none-such" in error.body["message"], error.body
    common.fails(openai.NotFoundError, client.files.list, 404)  # a route that is not there
    big = [{"role": "user", "content": "x" * (33 << 20)}]
    error = common.fails(openai.APIStatusError, lambda: chat(model=MODEL, messages=big), 413)
    assert "too large" in error.body["message"], error.body
    assert chat(**GREEDY).choices  # the same connections go on


def check_timeouts(server):
    client = client_of(server)
    impatient = client.with_options(timeout=0.5)
    common.fails(openai.APITimeoutError, lambda: impatient.chat.completions.create(**ENDLESS))
    assert client.chat.completions.create(**GREEDY).choices[0].message.content
    common.alone(server)
    common.fails(openai.APITimeoutError, lambda: impatient.responses.create(
        model=MODEL, input="?", max_output_tokens=LONG, extra_body={"ignore_eos": True}))
    common.alone(server)


def check_left_streams(server):
    client = client_of(server)
    wanted = client.chat.completions.create(**GREEDY).choices[0].message.content
    left = client.chat.completions.create(**ENDLESS, stream=True)
    stays = client.chat.completions.create(**GREEDY, stream=True)
    next(iter(left))
    left.close()
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stays)
    assert text == wanted, (text, wanted)
    common.alone(server)
    with client.chat.completions.create(**ENDLESS, stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    common.alone(server)


def check_cancelled_tasks(server):
    async def ask_and_leave():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            tasks = [asyncio.create_task(client.chat.completions.create(**ENDLESS)) for _ in range(4)]
            stays = asyncio.create_task(client.chat.completions.create(**GREEDY))
            await asyncio.to_thread(common.busy, server)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(end) for end in ended] == [asyncio.CancelledError] * 4, ended
            assert (await stays).choices[0].message.content
            stream = await client.chat.completions.create(**ENDLESS, stream=True)
            async for _ in stream:
                break
            await stream.close()
            await asyncio.to_thread(common.alone, server)
    asyncio.run(ask_and_leave())


def check_cancel_by_id(server):
    client = client_of(server)
    stream = client.responses.create(model=MODEL, input="?", max_output_tokens=LONG, stream=True,
                                     extra_body={"ignore_eos": True})
    events = iter(stream)
    first = next(events)
    assert client.responses.cancel(first.response.id).status == "cancelled"
    last = list(events)[-1]
    assert last.type == "response.incomplete" and last.response.status == "cancelled", last
    assert client.responses.retrieve(first.response.id).status == "cancelled"
    assert client.responses.cancel(first.response.id).output == last.response.output  # had ended
    common.fails(openai.NotFoundError, lambda: client.responses.cancel("resp_none"))
    common.alone(server)


def check_keys(server, key, slow_key):
    def client(key):
        return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
    for wrong in ("wrong", key[:-1], slow_key + "x"):
        error = common.fails(openai.AuthenticationError, lambda: client(wrong).models.list(), 401)
        assert error.body["message"] and error.type == "authentication_error", error.body
        common.fails(openai.AuthenticationError, lambda: client(wrong).chat.completions.create(**GREEDY), 401)
    for _ in range(3):
        assert client(key).chat.completions.create(**GREEDY).choices
    slow = client(slow_key)
    assert slow.chat.completions.create(model=MODEL, messages=ASK, max_tokens=2).choices
    for stream in (False, True):
        error = common.fails(openai.RateLimitError, lambda: slow.chat.completions.create(**GREEDY, stream=stream), 429)
        assert 0 < int(error.response.headers["retry-after"]) <= 60 and error.body["message"], error.response.headers


if __name__ == "__main__":
    sys.exit(common.main(__doc__, [check_refusals, check_timeouts, check_left_streams, check_cancelled_tasks,
                                   check_cancel_by_id], [check_keys]))
