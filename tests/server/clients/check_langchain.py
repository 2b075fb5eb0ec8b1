#!/usr/bin/env python3
"""The `langchain-openai` package against `quince serve`: invoke, stream, batch, tools, structured output, responses.

  tests/server/clients/check_langchain.py [--quince PATH] [--model PATH]
"""
import asyncio
import sys

import langchain_core.messages as messages
import langchain_core.prompts as prompts
import langchain_core.tools as tools
import langchain_openai
import openai

import common
from common import MODEL, Weather

ASK = [messages.SystemMessage("Be brief."), messages.HumanMessage("What is the weather in Rome?")]


@tools.tool
def rain(city: common.typing.Literal["Rome", "Oslo"]) -> str:
    """Whether it rains in a city."""
    return f"no rain in {city}"


def model_of(server, key="none", **options):
    return langchain_openai.ChatOpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0,
                                       **{"model": MODEL, "temperature": 0, "max_completion_tokens": 16, **options})


def check_invoke(server):
    model = model_of(server)
    answer = model.invoke(ASK)
    assert isinstance(answer, messages.AIMessage) and answer.content, answer
    usage = answer.usage_metadata
    assert 0 < usage["output_tokens"] <= 16 and usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    told = answer.response_metadata
    assert told["finish_reason"] == ("length" if usage["output_tokens"] == 16 else "stop"), told
    assert told["model_name"] == MODEL and answer.tool_calls == [], answer
    chunks = list(model_of(server, stream_usage=True).stream(ASK))
    whole = sum(chunks[1:], chunks[0])
    assert whole.content == answer.content and len(chunks) > 8, (whole, answer)
    assert whole.usage_metadata["output_tokens"] == usage["output_tokens"], whole.usage_metadata
    assert whole.response_metadata["finish_reason"] == told["finish_reason"], whole
    assert [given.content for given in model.batch([ASK, ASK])] == [answer.content] * 2
    stop = answer.content[6:9]
    assert model.invoke(ASK, stop=[stop]).content == answer.content[:answer.content.index(stop)]
    chain = prompts.ChatPromptTemplate.from_messages([("system", "Be {how}."), ("human", ASK[1].content)]) | model
    assert chain.invoke({"how": "brief"}).content == answer.content
    tokens = model_of(server, logprobs=True, top_logprobs=2).invoke(ASK).response_metadata["logprobs"]["content"]
    assert len(tokens) == usage["output_tokens"] and len(tokens[0]["top_logprobs"]) == 2, tokens
    several = model_of(server, n=2, temperature=1.5, seed=3).generate([ASK]).generations[0]
    assert len(several) == 2 and several[0].text != several[1].text, several


def check_tools(server):
    model = model_of(server, max_completion_tokens=200)
    for choice in ("any", "rain"):
        bound = model.bind_tools([rain, Weather], tool_choice=choice, parallel_tool_calls=False)
        answer = bound.invoke(ASK)
        (call,) = answer.tool_calls
        assert answer.response_metadata["finish_reason"] == "tool_calls" and not answer.invalid_tool_calls, answer
        assert call["id"] and call["name"] in ("rain", "Weather"), call
        chunks = list(bound.stream(ASK))
        whole = sum(chunks[1:], chunks[0])
        assert [(given["name"], given["args"]) for given in whole.tool_calls] == [(call["name"], call["args"])], whole
        assert sum(bool(chunk.tool_call_chunks) for chunk in chunks) > 2, chunks
    result = rain.invoke(call)
    assert isinstance(result, messages.ToolMessage) and result.tool_call_id == call["id"], result
    short = model_of(server).bind_tools([rain], tool_choice="none").invoke([*ASK, answer, result])
    assert short.content and not short.tool_calls, short
    free = model_of(server).bind_tools([rain]).invoke(ASK)
    assert bool(free.tool_calls) == (free.response_metadata["finish_reason"] == "tool_calls"), free


def check_structured(server):
    model = model_of(server, max_completion_tokens=200)
    for method in ("json_schema", "function_calling"):
        answer = model.with_structured_output(Weather, method=method).invoke(ASK)
        assert isinstance(answer, Weather), answer
    raw = model.with_structured_output(Weather, include_raw=True).invoke(ASK)
    assert raw["parsing_error"] is None and isinstance(raw["parsed"], Weather) and raw["raw"].usage_metadata, raw
    schema = {"title": "weather", "description": "of a city", **common.PARAMETERS}
    assert common.is_weather_call(model.with_structured_output(schema, method="json_schema").invoke(ASK))
    streamed = list(model.with_structured_output(Weather).stream(ASK))
    assert streamed and isinstance(streamed[-1], Weather), streamed


def check_responses(server):
    model = model_of(server, use_responses_api=True, output_version="responses/v1")
    answer = model.invoke(ASK)
    text = answer.text
    assert text and answer.response_metadata["id"].startswith("resp_"), answer
    assert 0 < answer.usage_metadata["output_tokens"] <= 16, answer
    chunks = list(model.stream(ASK))
    whole = sum(chunks[1:], chunks[0])
    assert whole.text == text and len(chunks) > 8, (whole, answer)
    assert whole.usage_metadata["output_tokens"] == answer.usage_metadata["output_tokens"], whole
    more = messages.HumanMessage("And in Oslo?")
    going_on = model.invoke([more], previous_response_id=answer.response_metadata["id"])
    assert going_on.usage_metadata["input_tokens"] > answer.usage_metadata["input_tokens"], going_on
    long = model_of(server, use_responses_api=True, max_completion_tokens=200)
    (call,) = long.bind_tools([rain], tool_choice="any", parallel_tool_calls=False).invoke(ASK).tool_calls
    assert call["name"] == "rain" and call["args"]["city"] in ("Rome", "Oslo"), call
    assert isinstance(long.with_structured_output(Weather).invoke(ASK), Weather)


def check_embeddings(server):
    # Its count of tokens is OpenAI's own models'.
    model = langchain_openai.OpenAIEmbeddings(base_url=server.url + "/v1", api_key="none", model=MODEL,
                                              check_embedding_ctx_length=False)
    two = model.embed_documents(["a hound", "a fox"])
    one = model.embed_query("a fox")
    assert len(two) == 2 and len(one) == 576 and two[0] != two[1], (two, one)
    assert max(abs(a - b) for a, b in zip(one, two[1])) < 1e-3, (one, two)


def check_completions(server):
    model = langchain_openai.OpenAI(base_url=server.url + "/v1", api_key="none", model=MODEL, temperature=0,
                                    max_tokens=12, max_retries=0)
    text = model.invoke("The sea is")
    assert text and "".join(model.stream("The sea is")) == text, text


def check_async(server):
    wanted = model_of(server).invoke(ASK).content

    async def ask_all():
        model = model_of(server)
        answers = await asyncio.gather(*(model.ainvoke(ASK) for _ in range(8)))
        assert {answer.content for answer in answers} == {wanted}, answers
        assert "".join([chunk.content async for chunk in model.astream(ASK)]) == wanted
        parsed = await model_of(server, max_completion_tokens=200).with_structured_output(Weather).ainvoke(ASK)
        assert isinstance(parsed, Weather), parsed
        endless = model_of(server, max_completion_tokens=common.LONG, extra_body={"ignore_eos": True})
        async for chunk in endless.astream(ASK):
            if chunk.content:
                break
        task = asyncio.create_task(endless.ainvoke(ASK))
        await asyncio.to_thread(common.busy, server)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(common.alone, server)
    asyncio.run(ask_all())


def check_refusals(server, key, slow_key):
    def refused(kind, **options):
        for call in (model_of(server, **options).invoke, lambda ask: list(model_of(server, **options).stream(ask))):
            try:
                call(ASK)
            except kind as error:
                assert isinstance(error, openai.APIStatusError) and error.body["message"], error
            else:
                raise AssertionError(f"{options} were taken")
    refused(openai.AuthenticationError, key="wrong")
    refused(openai.NotFoundError, key=key, model="none-such")
    refused(openai.BadRequestError, key=key, temperature=-5)
    assert model_of(server, slow_key).invoke(ASK).content
    refused(openai.RateLimitError, key=slow_key)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, [check_invoke, check_tools, check_structured, check_responses, check_embeddings,
                                   check_completions, check_async], [check_refusals]))
