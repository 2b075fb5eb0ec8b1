#!/usr/bin/env python3
"""The page at / in a headless Chromium: it streams, stops, regenerates, asks for keys, and whatever a model writes stays
text. Needs `pip install playwright` and Debian's chromium; says so and ends with 77 (skipped) where they are missing.

  tests/server/page/check_page.py [--quince PATH] [--model PATH] [--screenshot docs/page.png]
"""
import argparse
import json
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import serving  # noqa: E402

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError as error:
    print(f"skipped: {error}; pip install playwright")
    sys.exit(77)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
HOSTILE = """# <script>window.owned = 1</script>

<script>window.owned = 2</script><img src=x onerror="window.owned = 3"><svg/onload=window.owned=4>
<iframe srcdoc="<script>parent.owned = 5</script>"></iframe><style>* { display: none }</style>

[click me](javascript:window.owned=6) [me](JaVaScRiPt:window.owned=7) [and me](data:text/html,<script>1</script>)
[java\tscript](java\tscript:window.owned=8) ![picture](http://127.0.0.1:9/x.png) <a href="javascript:owned=9">a</a>
[good](https://example.org/a_(b)) **bold _both_** `code <b>` ~~gone~~ https://example.org/x. 2 * 3 * 4

- one
  - two
- <img src=y onerror=window.owned=10>

| a | <b>b</b> |
|---|:-:|
| 1 | <script>window.owned = 11</script> |

> quoted

```html"><img src=z onerror=window.owned=12>
<script>window.owned = 13</script>
```
```
never closed <script>window.owned = 14</script>"""


def frames(*deltas):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


class Page:
    def __init__(self, browser, url, **context):
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.faults = []
        self.outside = []
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: None if request.url.startswith(url) else self.outside.append(request.url))
        self.page.goto(url)
        expect(self.page.locator("#model option")).not_to_have_count(0)

    def ask(self, text):
        self.page.get_by_label("Your message").fill(text)
        self.page.keyboard.press("Enter")

    def ended(self, seconds=60):
        expect(self.page.locator("[aria-busy]")).to_have_count(0, timeout=seconds * 1000)
        expect(self.page.get_by_role("button", name="Send")).to_be_visible()

    def answer(self):
        return self.page.locator("article.assistant .body").last

    def set(self, **fields):
        self.page.get_by_role("button", name="Settings").click()
        for name, value in fields.items():
            self.page.locator("#" + name).fill(value)
        self.page.get_by_role("button", name="Done").click()

    def close(self, faults=()):
        unexpected = [fault for fault in self.faults if not any(known in fault for known in faults)]
        assert not unexpected, unexpected
        assert not self.outside, self.outside
        self.context.close()


def check_chat(browser, server):
    page = Page(browser, server.url)
    expect(page.page.get_by_label("Your message")).to_be_focused()
    page.set(temperature="0", max_tokens="60", seed="1", system="You are a cook.")
    # It comes in pieces: the page must be seen with part of the answer.
    page.page.evaluate("""() => {
        window.lengths = new Set();
        new MutationObserver(() => {
            const body = document.querySelector('article.assistant .body');
            if (body) window.lengths.add(body.textContent.length);
        }).observe(document.querySelector('#log'), {subtree: true, childList: true, characterData: true});
    }""")
    page.ask("What is a quince?")
    page.ended()
    first = page.answer().inner_text()
    assert len(first) > 40, first
    assert page.page.evaluate("window.lengths.size") > 5
    expect(page.page.locator(".note").last).to_contain_text("tokens")
    expect(page.page.locator("#status")).to_contain_text("The answer is there")
    # The second turn says what was said before; the third is made again, in its place.
    sent = []
    page.page.on("request", lambda request: sent.append(request.post_data_json)
                 if request.url.endswith("/chat/completions") else None)
    page.ask("And how does one eat it?")
    page.ended()
    assert [message["role"] for message in sent[0]["messages"]] == ["system", "user", "assistant", "user"], sent[0]
    assert sent[0]["temperature"] == 0 and sent[0]["max_tokens"] == 60 and sent[0]["seed"] == 1
    page.page.get_by_role("button", name="Regenerate").click()
    page.ended()
    assert sent[1] == sent[0]
    assert page.page.locator("article").count() == 4
    page.page.get_by_role("button", name="New chat").click()
    assert page.page.locator("article").count() == 0
    # Settings are there again the next time.
    page.page.reload()
    assert page.page.locator("#system").input_value() == "You are a cook."
    page.close()


def check_stop(browser, server):
    for by_key in (True, False):
        page = Page(browser, server.url)
        page.set(max_tokens="6000", temperature="1")
        page.page.route("**/v1/chat/completions", lambda route: route.continue_(
            post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True})))
        page.ask("Count to a million.")
        expect(page.page.locator("article.assistant .body .part")).not_to_have_count(0, timeout=30000)
        server.soon("/slots", lambda slots: any(slot["is_processing"] for slot in slots))
        if by_key:
            page.page.keyboard.press("Escape")
        else:
            page.page.get_by_role("button", name="Stop").click()
        page.ended(5)
        expect(page.page.locator(".note").last).to_contain_text("stopped")
        expect(page.page.get_by_label("Your message")).to_be_focused()
        server.soon("/slots", lambda slots: not any(slot["is_processing"] for slot in slots))
        page.close()


def check_hostile(browser, server):
    page = Page(browser, server.url)
    pieces = [{"role": "assistant", "content": ""}, {"reasoning": "<img src=r onerror=window.owned=15>"}]
    pieces += [{"content": HOSTILE[at:at + 7]} for at in range(0, len(HOSTILE), 7)]
    page.page.route("**/v1/chat/completions", lambda route: route.fulfill(
        content_type="text/event-stream", body=frames(*pieces)))
    page.ask("<script>window.owned = 16</script>")
    page.ended()
    page.page.wait_for_timeout(300)
    assert page.page.evaluate("window.owned") is None
    log = page.page.locator("#log")
    assert log.locator("script, img, iframe, svg, style, object, [onerror], [onload]").count() == 0
    links = log.locator("a").evaluate_all("nodes => nodes.map((node) => [node.href, node.rel])")
    assert sorted(href for href, _ in links) == [
        "http://127.0.0.1:9/x.png", "https://example.org/a_(b)", "https://example.org/x"], links
    assert all("noopener" in rel for _, rel in links)
    answer = page.answer()
    for text in ("<script>window.owned = 2</script>", "click me", "<b>b</b>", "2 * 3 * 4"):
        expect(answer).to_contain_text(text)
    assert answer.locator("strong em").inner_text() == "both" and answer.locator("p code").inner_text() == "code <b>"
    assert answer.locator("li li").inner_text() == "two" and answer.locator("td").count() == 2
    assert answer.locator(".code pre").count() == 2 and answer.locator("blockquote").count() == 1
    assert answer.locator("h3").inner_text() == "<script>window.owned = 1</script>"
    expect(page.page.locator("article.user .body")).to_have_text("<script>window.owned = 16</script>")
    # Reasoning is folded, and text when it is unfolded.
    details = page.page.locator("details.reasoning")
    assert not details.evaluate("node => node.open")
    details.locator("summary").click()
    expect(details).to_contain_text("<img src=r")
    # Even if something had become markup: the policy lets nothing of it run.
    blocked = page.page.evaluate("""() => {
        const script = document.createElement('script');
        try { script.textContent = 'window.owned = 17'; } catch (error) { return error.name; }
        document.body.append(script);
        return String(window.owned);
    }""")
    assert blocked in ("TypeError", "undefined"), blocked
    page.close(faults=["TrustedScript", "Content Security Policy"])


# Texts that are made to be slow, each shown well within a second.
def check_slow(browser, server):
    page = Page(browser, server.url)
    texts = ["`" * 9999, "*a " * 5000, "**a" * 5000, "[" * 9999, "> " * 5000, "- " * 5000, "|" * 9999 + "\n" + "|-" * 4999,
             "#" + " " * 9999 + "x", "-" + " " * 9999 + "x\n", "```" + "x" * 9999 + "`", "_" * 9999, "~~a" * 4000,
             "[a](" * 4000, "http://" + "." * 9999, "\n" * 9999, "1. " * 4000, "a|b\n-|" + " " * 9999 + "x"]
    for text in texts:
        took = page.page.evaluate("""async (text) => {
            const { render } = await import('./page/markdown.js');
            const begin = performance.now();
            render(text);
            return performance.now() - begin;
        }""", text)
        assert took < 1500, (text[:20], took)
    page.close()


def check_key(browser, server):
    page = Page.__new__(Page)
    page.context = browser.new_context()
    page.faults, page.outside = [], []
    page.page = page.context.new_page()
    page.page.goto(server.url)
    dialog = page.page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    expect(page.page.get_by_label("Key", exact=True)).to_be_focused()
    page.page.keyboard.type("wrong")
    page.page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.page.get_by_label("Key", exact=True).fill("right-key")
    page.page.keyboard.press("Enter")
    expect(page.page.locator("#model option")).not_to_have_count(0)
    page.set(max_tokens="4")
    page.ask("Hello")
    page.ended()
    assert page.answer().inner_text() != ""
    assert "right-key" not in page.page.evaluate("JSON.stringify(localStorage) + document.documentElement.outerHTML")
    page.close()


# Faults are shown, and the next question goes on.
def check_faults(browser, server):
    page = Page(browser, server.url)
    answers = [{"status": 503, "content_type": "application/json", "body": '{"error":{"message":"too <b>busy</b>"}}'},
               {"content_type": "text/event-stream", "body": frames({"content": "half"})[:120]},
               {"content_type": "text/event-stream", "body": 'data: {"error":{"message":"it broke"}}\n\n'}]
    for answer, text in zip(answers, ("too <b>busy</b>", "broke off", "it broke")):
        page.page.route("**/v1/chat/completions", lambda route, request, answer=answer: route.fulfill(**answer))
        page.ask("Hello")
        page.ended()
        expect(page.page.get_by_role("alert").last).to_contain_text(text)
    page.close(faults=["503"])


def check_reading(browser, server):
    """Every control has a name, everything can be reached by keyboard, colours can be told apart, small screens fit."""
    for scheme, size in (("light", (1280, 800)), ("dark", (360, 640))):
        page = Page(browser, server.url, color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
        page.set(max_tokens="24", temperature="0")
        page.ask("Write `code` " + "verylongword" * 20)
        page.ended()
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the screen"
        nameless = page.page.evaluate("""() => [...document.querySelectorAll('button, input, select, textarea, meter')]
            .filter((node) => !(node.labels?.length || node.textContent.trim() || node.ariaLabel)).map((node) => node.id)""")
        assert not nameless, nameless
        expect(page.page.locator("#gauges")).to_be_visible()
        contrast = page.page.evaluate("""() => {
            const light = (text) => {
                const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map((v) => v / 255)
                    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const back = light(getComputedStyle(document.body).backgroundColor);
            return ['body', '#keys', '.tools', 'h2'].map((where) => {
                const text = light(getComputedStyle(document.querySelector(where)).color);
                return (Math.max(back, text) + 0.05) / (Math.min(back, text) + 0.05);
            });
        }""")
        assert min(contrast) >= 4.5, contrast
        reached = set()
        for _ in range(30):
            page.page.keyboard.press("Tab")
            reached.add(page.page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        assert {"model", "new-chat", "open-settings", "question", "send", "Copy", "Regenerate"} <= reached, reached
        page.close()


def screenshot(browser, server, path):
    page = Page(browser, server.url, viewport={"width": 960, "height": 680})
    page.set(temperature="0", max_tokens="120")
    page.ask("Write a Python function that adds two numbers.")
    page.ended()
    page.page.wait_for_timeout(2500)  # the gauges
    page.page.screenshot(path=path)
    page.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--screenshot", metavar="PNG", help="only take a picture")
    args = serving.arguments(parser)
    if CHROMIUM is None:
        print("skipped: there is no chromium; apt-get install chromium")
        return 77
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with serving.Serving(args.quince, args.model, "--ctx-size", "8192") as server:
            if args.screenshot:
                screenshot(browser, server, args.screenshot)
                return 0
            checks = (check_chat, check_stop, check_hostile, check_slow, check_faults, check_reading)
            for check in checks:
                begin = time.monotonic()
                check(browser, server)
                print(f"{check.__name__} {time.monotonic() - begin:.1f} s", flush=True)
        with serving.Serving(args.quince, args.model, "--api-key", "right-key") as server:
            check_key(browser, server)
        browser.close()
    print(f"{len(checks) + 1} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
