// npm's `openai` package against a server; check_npm.py starts that, and runs this.
//   check_openai.mjs URL KEY [SLOW_KEY]     with SLOW_KEY, good for one request a minute: only what keys do
import assert from "node:assert/strict";

import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const [url, key, slowKey] = process.argv.slice(2);
const clientOf = (apiKey) => new OpenAI({ baseURL: url + "/v1", apiKey, maxRetries: 0, timeout: 60_000 });
const client = clientOf(key);
const model = "small";
const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "What is the weather in Rome?" },
];
const greedy = { model, messages, temperature: 0, max_tokens: 16 };
const Weather = z.object({ city: z.enum(["Rome", "Oslo"]), rain: z.boolean() });
const call = { ...greedy, max_tokens: 200, tools: [zodFunction({ name: "weather", parameters: Weather })],
  tool_choice: "required", parallel_tool_calls: false };
const endless = { ...greedy, max_tokens: 6000, ignore_eos: true };

async function all(stream) {
  const list = [];
  for await (const item of stream) list.push(item);
  return list;
}

async function chat() {
  const answer = await client.chat.completions.create(greedy);
  const text = answer.choices[0].message.content;
  assert.ok(text && answer.usage.completion_tokens <= 16);
  assert.equal((await client.chat.completions.create(greedy)).choices[0].message.content, text);
  const chunks = await all(await client.chat.completions.create(
    { ...greedy, stream: true, stream_options: { include_usage: true }, logprobs: true }));
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, answer.usage.completion_tokens);
  assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), text);
  assert.equal(chunks.at(-1).choices[0].finish_reason, answer.choices[0].finish_reason);
  assert.equal(chunks.flatMap((chunk) => chunk.choices[0].logprobs?.content ?? []).length,
    answer.usage.completion_tokens);
  const stop = text.slice(6, 9);
  const cut = (await client.chat.completions.create({ ...greedy, stop })).choices[0];
  assert.equal(cut.message.content, text.slice(0, text.indexOf(stop)));
  assert.equal(cut.finish_reason, "stop");
  let heard = "";
  const stream = client.chat.completions.stream(greedy).on("content", (piece) => (heard += piece));
  assert.equal(await stream.finalContent(), text);
  assert.equal(heard, text);
  const together = await Promise.all(Array.from({ length: 8 }, () => client.chat.completions.create(greedy)));
  for (const one of together) assert.equal(one.choices[0].message.content, text);
}

async function tools() {
  const { choices } = await client.chat.completions.parse(call);
  const made = choices[0].message.tool_calls[0];
  assert.equal(choices[0].finish_reason, "tool_calls");
  assert.deepEqual(Weather.parse(JSON.parse(made.function.arguments)), made.function.parsed_arguments);
  const chunks = await all(await client.chat.completions.create({ ...call, stream: true }));
  const parts = chunks.flatMap((chunk) => chunk.choices[0].delta.tool_calls ?? []);
  assert.ok(parts.length > 2 && parts[0].id && parts.every((part) => part.index === 0));
  assert.equal(parts.map((part) => part.function.arguments ?? "").join(""), made.function.arguments);
  const final = await client.chat.completions.stream(call).finalFunctionToolCall();
  assert.equal(final.arguments, made.function.arguments);
  // The package calls the function and sends back what it gave.
  const given = [];
  const runner = client.chat.completions.runTools({ ...greedy, max_tokens: 60, tool_choice: "required",
    parallel_tool_calls: false, tools: [zodFunction({ name: "weather", parameters: Weather,
      function: (weather) => { given.push(weather); return "sunny"; } })] }, { maxChatCompletions: 2 });
  await runner.done();
  assert.ok(given.length >= 1 && Weather.safeParse(given[0]).success, given);
  assert.ok(runner.messages.some((message) => message.role === "tool" && message.content === "sunny"));
}

async function structured() {
  const form = { ...greedy, max_tokens: 200, response_format: zodResponseFormat(Weather, "weather") };
  const { parsed } = (await client.chat.completions.parse(form)).choices[0].message;
  assert.ok(Weather.safeParse(parsed).success, parsed);
  const streamed = await client.chat.completions.stream(form).finalChatCompletion();
  assert.deepEqual(streamed.choices[0].message.parsed, parsed);
}

async function responses() {
  const ask = { model, input: "Name a colour.", temperature: 0, max_output_tokens: 12 };
  const first = await client.responses.create(ask);
  assert.ok(first.output_text);
  assert.equal((await client.responses.retrieve(first.id)).output_text, first.output_text);
  const events = await all(await client.responses.create({ ...ask, stream: true }));
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  assert.equal(deltas.map((event) => event.delta).join(""), first.output_text);
  assert.equal(events.at(-1).type, "response." + first.status);
  const next = await client.responses.create({ ...ask, input: "Another.", previous_response_id: first.id });
  assert.ok(next.usage.input_tokens > first.usage.input_tokens);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
  const formed = await client.responses.parse(
    { ...ask, max_output_tokens: 200, text: { format: zodTextFormat(Weather, "weather") } });
  assert.ok(Weather.safeParse(formed.output_parsed).success, formed);
}

async function others() {
  assert.ok((await all(client.models.list())).some((entry) => entry.id === model));
  assert.equal((await client.models.retrieve(model)).id, model);
  const two = await client.embeddings.create({ model, input: ["a hound", "a fox"] });
  const plain = await client.embeddings.create({ model, input: "a fox", encoding_format: "float" });
  assert.equal(two.data[1].embedding.length, 576);
  assert.ok(two.data[1].embedding.every((x, i) => Math.abs(x - plain.data[0].embedding[i]) < 1e-3));
  const ask = { model, prompt: "The sea is", max_tokens: 8, temperature: 0 };
  const whole = await client.completions.create(ask);
  const pieces = await all(await client.completions.create({ ...ask, stream: true }));
  assert.equal(pieces.map((chunk) => chunk.choices[0].text).join(""), whole.choices[0].text);
}

async function refusals() {
  const create = (fields, options) => client.chat.completions.create({ ...greedy, ...fields }, options);
  await assert.rejects(create({ temperature: -5 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "temperature");
  await assert.rejects(create({ model: "none-such", stream: true }), OpenAI.NotFoundError);
  await assert.rejects(create({ messages: [{ role: "user", content: "many words ".repeat(9000) }] }), (error) =>
    error instanceof OpenAI.BadRequestError && error.code === "context_length_exceeded");
  await assert.rejects(create({ messages: [{ role: "user", content: "x".repeat(33 << 20) }] }), (error) =>
    error instanceof OpenAI.APIError && error.status === 413);
  await assert.rejects(create(endless, { timeout: 500 }), OpenAI.APIConnectionTimeoutError);
  const leave = new AbortController();
  setTimeout(() => leave.abort(), 300);
  await assert.rejects(create(endless, { signal: leave.signal }), OpenAI.APIUserAbortError);
  const stream = await client.chat.completions.create({ ...endless, stream: true });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break; // which ends it
}

async function keys() {
  await assert.rejects(clientOf("wrong").models.list(), OpenAI.AuthenticationError);
  assert.ok((await client.chat.completions.create(greedy)).choices.length);
  const slow = clientOf(slowKey);
  assert.ok((await slow.chat.completions.create(greedy)).choices.length);
  await assert.rejects(slow.chat.completions.create(greedy), (error) =>
    error instanceof OpenAI.RateLimitError && Number(error.headers.get("retry-after")) > 0);
}

for (const check of slowKey ? [keys] : [chat, tools, structured, responses, others, refusals]) {
  const began = performance.now();
  await check();
  console.log(`    ${check.name} passed in ${((performance.now() - began) / 1000).toFixed(1)} s`);
}
