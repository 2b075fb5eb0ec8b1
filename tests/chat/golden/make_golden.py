"""Remakes conversations.json and prompts.json: what transformers' own environment makes of a matrix of
conversations with every template in a folder.

    python make_golden.py TEMPLATES_FOLDER

Templates are not stored, prompts only as their 64-bit FNV-1a hash; "refused" where the reference raises. Tool-call arguments that a client sent as text are shown to the template as the object
they say; where that fails, or where the template prints the object as it is, as text (the rule of
ChatTemplate). --show TEMPLATE CONVERSATION prints one prompt.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils as reference

HERE = pathlib.Path(__file__).parent
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city.\nSays \"unknown\" where there is none.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, as <written> there & here"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find documents",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": ["string", "null"], "description": "What to look for"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "filter": {
                    "type": "object",
                    "properties": {"year": {"type": "number"}, "exact": {"type": "boolean"}},
                },
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "bare": {"type": "array", "description": "says nothing of its items"},
                "keys": {"type": "object", "properties": {"items": {"type": "string"}, "get": {"type": "boolean"}}},
            },
            "required": ["query", "tags"],
        },
        "return": {"type": "string"},
    },
}
NOTHING = {
    "type": "function",
    "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}},
}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(identifier, name, arguments):
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(identifier, name, text):
    return {"role": "tool", "tool_call_id": identifier, "name": name, "content": text}


TEXT_ARGUMENTS = '{"city":"Zürich","days":2}'
HARD_ARGUMENTS = {
    "query": 'quotes " and \' and \\ and </tool_call>\nline\ttab',
    "tags": ["a", "ü", ""],
    "filter": {"year": 2024.5, "exact": True, "none": None},
    "either": -3,
}


def conversations():
    ask = user("What is the weather in Zürich?")
    every = {
        "user": dict(messages=[user("Hello, who are you?")]),
        "system_user": dict(messages=[system("You are terse."), user("Why is the sky blue?")]),
        "multi_turn": dict(
            messages=[
                system("You are a pirate."),
                user("Hi"),
                assistant("Arr!"),
                user("And now?"),
                assistant("Still arr."),
                user("Bye"),
            ]
        ),
        "finished": dict(
            messages=[user("2+2?"), assistant("4"), user("3+3?"), assistant("6")], add_generation_prompt=False
        ),
        "white_space": dict(
            messages=[
                system("  keep \n\n"),
                user("\n\n  leading and trailing \t\n"),
                assistant(" \n x\n "),
                user("a\r\nb 'single' \"double\" \\ {{ not_a_tag }} {% if %} é 漢字 👩‍👩‍👧"),
            ]
        ),
        "empty": dict(messages=[system(""), user("")]),
        "parts": dict(
            messages=[
                {"role": "system", "content": [{"type": "text", "text": "Short."}]},
                {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            ]
        ),
        "image": dict(
            messages=[{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}]
        ),
        "developer": dict(messages=[{"role": "developer", "content": "Be exact."}, user("Go")]),
        "thinking_on": dict(messages=[user("Think")], extra={"enable_thinking": True, "thinking": True}),
        "thinking_off": dict(messages=[user("Do not")], extra={"enable_thinking": False, "thinking": False}),
        "effort": dict(messages=[user("Hard")], extra={"reasoning_effort": "high"}),
        "reasoning": dict(
            messages=[
                user("1?"),
                assistant("One.", reasoning_content="The user says 1.\nSo one."),
                user("2?"),
                assistant("Two.", reasoning_content="Again."),
                user("3?"),
            ]
        ),
        "reasoning_inline": dict(
            messages=[user("1?"), assistant("<think>\nhm\n</think>\n\nOne."), user("2?")],
        ),
        "reasoning_last": dict(
            messages=[user("1?"), assistant("One.", reasoning="Short thought")], add_generation_prompt=False
        ),
        "tools": dict(messages=[ask], tools=[WEATHER]),
        "tools_system": dict(messages=[system("Use tools."), ask], tools=[WEATHER, SEARCH, NOTHING]),
        "tools_turns": dict(messages=[ask, assistant("Which unit?"), user("Celsius")], tools=[WEATHER]),
        "call_object": dict(
            messages=[ask, assistant(None, tool_calls=[call("call12345", "get_weather", {"city": "Zürich", "days": 2})])],
            tools=[WEATHER],
            add_generation_prompt=False,
        ),
        "call_text": dict(
            messages=[ask, assistant(None, tool_calls=[call("call12345", "get_weather", TEXT_ARGUMENTS)])],
            tools=[WEATHER],
            add_generation_prompt=False,
        ),
        "result_object": dict(
            messages=[
                ask,
                assistant(None, tool_calls=[call("call12345", "get_weather", {"city": "Zürich"})]),
                result("call12345", "get_weather", '{"temperature": 21.5}'),
            ],
            tools=[WEATHER],
        ),
        "result_text": dict(
            messages=[
                system("Use tools."),
                ask,
                assistant("", tool_calls=[call("call12345", "get_weather", TEXT_ARGUMENTS)]),
                result("call12345", "get_weather", "21.5 °C"),
                assistant("It is 21.5 °C."),
                user("Thanks"),
            ],
            tools=[WEATHER],
        ),
        "parallel": dict(
            messages=[
                user("Both"),
                assistant(
                    "Let me look.",
                    tool_calls=[
                        call("call00001", "get_weather", {"city": "Oslo", "unit": "celsius"}),
                        call("call00002", "search", HARD_ARGUMENTS),
                    ],
                ),
                result("call00001", "get_weather", "cold"),
                result("call00002", "search", "[]"),
            ],
            tools=[WEATHER, SEARCH],
        ),
        "parallel_text": dict(
            messages=[
                user("Both"),
                assistant(
                    None,
                    tool_calls=[
                        call("call00001", "ping", "{}"),
                        call("call00002", "search", json.dumps(HARD_ARGUMENTS)),
                    ],
                ),
                result("call00001", "ping", ""),
                result("call00002", "search", "nothing"),
            ],
            tools=[NOTHING, SEARCH],
        ),
        "reasoned_call": dict(
            messages=[
                system("Think first."),
                ask,
                assistant(
                    None,
                    reasoning_content="I need the tool.",
                    tool_calls=[call("call12345", "get_weather", {"city": "Zürich"})],
                ),
                result("call12345", "get_weather", "sunny"),
                assistant("Sunny.", reasoning_content="Easy."),
                user("And tomorrow?"),
            ],
            tools=[WEATHER],
        ),
        "call_without_tools": dict(
            messages=[
                ask,
                assistant(None, tool_calls=[call("call12345", "get_weather", {"city": "Bern"})]),
                result("call12345", "get_weather", "rain"),
            ]
        ),
        "result_parts": dict(
            messages=[
                ask,
                assistant(None, tool_calls=[call("call12345", "get_weather", {"city": "Bern"})]),
                {"role": "tool", "tool_call_id": "call12345", "content": [{"type": "text", "text": "rain"}]},
            ],
            tools=[WEATHER],
        ),
        "two_users": dict(messages=[user("a"), user("b")]),
        "assistant_first": dict(messages=[assistant("I begin."), user("ok")]),
        "late_system": dict(messages=[user("a"), assistant("b"), system("c"), user("d")]),
        "unknown_role": dict(messages=[user("a"), {"role": "critic", "content": "b"}]),
        "documents": dict(
            messages=[user("Summarize")], extra={"documents": [{"title": "T", "text": "Body", "doc_id": 1}]}
        ),
    }
    for name, conversation in every.items():
        conversation.setdefault("add_generation_prompt", True)
    return every


class Arguments(dict):
    """An object that knows when it is printed as it is."""

    printed = False

    def __str__(self):
        Arguments.printed = True
        return super().__repr__()

    __repr__ = __str__

    def __format__(self, spec):
        return str(self)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 7, 4, 12, 5, 9)


reference.datetime = FixedTime


def fingerprint(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def as_objects(arguments):
    if isinstance(arguments, str):
        if not arguments.strip():
            return Arguments()
        try:
            parsed = json.loads(arguments)
        except ValueError:
            return arguments
        return Arguments(parsed) if isinstance(parsed, dict) else arguments
    return arguments


def as_texts(arguments):
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, (dict, list)) else arguments


def with_arguments(messages, change):
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for tool_call in message.get("tool_calls") or []:
            function = tool_call["function"]
            function["arguments"] = change(function["arguments"])
    return messages


def render(template, conversation, change):
    messages = with_arguments(conversation["messages"], change)
    messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    return template.render(
        messages=reference._alias_reasoning_fields(messages),
        tools=conversation.get("tools"),
        add_generation_prompt=conversation["add_generation_prompt"],
        **{"documents": None, **SPECIAL, **conversation.get("extra", {})},
    )


def prompt(template, conversation):
    """None: refused."""

    def attempt(change):
        Arguments.printed = False
        try:
            return render(template, conversation, change)
        except Exception:
            return None

    text = attempt(as_objects)
    if any(m.get("tool_calls") for m in conversation["messages"]) and (text is None or Arguments.printed):
        other = attempt(as_texts)
        text = text if other is None else other
    return text


def main():
    every = conversations()
    arguments = [a for a in sys.argv[1:] if a != "--show"]
    folder = pathlib.Path(arguments[0])
    if "--show" in sys.argv:
        template = reference._compile_jinja_template((folder / arguments[1]).read_bytes().decode())
        print(prompt(template, every[arguments[2]]), end="")
        return
    prompts = {}
    for path in sorted(folder.glob("*.jinja")):
        try:
            template = reference._compile_jinja_template(path.read_bytes().decode())
        except Exception as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            prompts[path.name] = "refused"
            continue
        row = {}
        for name, conversation in every.items():
            text = prompt(template, conversation)
            row[name] = "refused" if text is None else fingerprint(text)
        prompts[path.name] = row
    (HERE / "conversations.json").write_text(json.dumps(every, ensure_ascii=False, indent=1) + "\n")
    versions = {"transformers": transformers.__version__, "jinja2": jinja2.__version__}
    lines = [json.dumps({"versions": versions})[:-1] + ', "prompts": {']
    rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in prompts.items()]
    (HERE / "prompts.json").write_text("\n".join(lines) + "\n" + ",\n".join(rows) + "\n}}\n")


if __name__ == "__main__":
    main()
