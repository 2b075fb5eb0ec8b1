import { ApiFault, chat, json, key, metrics } from "./api.js";
import { Growing } from "./markdown.js";

const $ = (id) => document.getElementById(id);
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "max_tokens", "seed"];
const kSaved = "quince-settings";
const kGaugesEvery = 2000;  // ms
const kKv = "quince:kv_cache_usage_perc";
const kRunning = "quince:num_requests_running";
const kWaiting = "quince:num_requests_waiting";

const turns = [];  // {role, content, reasoning, node}
let running = null;  // the AbortController of the answer that is under way

function say(text) {
  $("status").textContent = text;
}

// ---- the log

const atEnd = () => {
  const log = $("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
};

function follow(was) {
  if (was) {
    $("log").scrollTop = $("log").scrollHeight;
  }
}

function button(label, action) {
  const node = document.createElement("button");
  node.type = "button";
  node.textContent = label;
  node.addEventListener("click", action);
  return node;
}

async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    const range = document.createRange();  // not in a secure context: to be copied by hand
    range.selectNodeContents(from);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    say("Selected; copy it with the keyboard");
  }
}

function article(role) {
  const node = document.createElement("article");
  node.className = `message ${role}`;
  const title = document.createElement("h2");
  title.textContent = role === "user" ? "You" : "Answer";
  const body = document.createElement("div");
  body.className = "body";
  node.append(title, body);
  $("empty").hidden = true;
  $("log").append(node);
  return { node, body };
}

function addUser(content) {
  const { node, body } = article("user");
  body.textContent = content;
  turns.push({ role: "user", content, node });
}

// An answer that grows. Screen readers hear it when it is whole.
class AnswerView {
  constructor(turn) {
    const { node, body } = article("assistant");
    this.turn = turn;
    this.node = turn.node = node;
    this.body = body;
    this.growing = new Growing(body);
    this.fresh = "";
    this.freshReasoning = "";
    this.frame = 0;
    node.setAttribute("aria-busy", "true");
  }

  add(content, reasoning) {
    this.turn.content += content;
    this.turn.reasoning += reasoning;
    this.fresh += content;
    this.freshReasoning += reasoning;
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => this.show());
    }
  }

  show() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const was = atEnd();
    if (this.freshReasoning !== "") {
      this.thoughts().append(this.freshReasoning);
      this.freshReasoning = "";
    }
    if (this.fresh !== "") {
      this.growing.add(this.fresh);
      this.fresh = "";
    }
    follow(was);
  }

  thoughts() {
    if (this.reasoning === undefined) {
      const details = document.createElement("details");
      details.className = "reasoning";
      const summary = document.createElement("summary");
      summary.textContent = "Reasoning";
      this.reasoning = document.createElement("div");
      details.append(summary, this.reasoning);
      this.body.before(details);
    }
    return this.reasoning;
  }

  end(note, fault) {
    this.show();
    const was = atEnd();
    this.node.removeAttribute("aria-busy");
    if (fault !== "") {
      const line = document.createElement("p");
      line.className = "fault";
      line.setAttribute("role", "alert");
      line.textContent = fault;
      this.node.append(line);
    }
    document.querySelectorAll(".regenerate").forEach((node) => node.remove());
    const tools = document.createElement("div");
    tools.className = "tools";
    const again = button("Regenerate", regenerate);
    again.className = "regenerate";
    const text = document.createElement("span");
    text.className = "note";
    text.textContent = note;
    tools.append(button("Copy", () => copy(this.turn.content, this.body)), again, text);
    this.node.append(tools);
    follow(was);
  }
}

// ---- asking

function request() {
  const messages = turns
    .filter((turn) => turn.role === "user" || turn.content !== "")
    .map(({ role, content }) => ({ role, content }));
  if ($("system").value.trim() !== "") {
    messages.unshift({ role: "system", content: $("system").value });
  }
  const out = { messages };
  if ($("model").value !== "") {
    out.model = $("model").value;
  }
  for (const name of kNumbers) {
    if ($(name).value !== "" && $(name).validity.valid) {
      out[name] = Number($(name).value);
    }
  }
  if ($("reasoning_effort").value !== "") {
    out.reasoning_effort = $("reasoning_effort").value;
  }
  return out;
}

class Speed {
  constructor() {
    this.asked = performance.now();
    this.first = 0;
    this.count = 0;
    this.timings = null;
  }
  token() {
    this.first ||= performance.now();
    this.count++;
    const seconds = (performance.now() - this.first) / 1000;
    if (seconds > 0.2) {
      $("speed").value = `${((this.count - 1) / seconds).toFixed(1)} tokens/s`;
    }
  }
  note() {
    if (this.timings === null) {
      return this.count > 0 ? `${this.count} pieces` : "";
    }
    const speed = this.timings.predicted_per_second;
    $("speed").value = speed > 0 ? `${speed.toFixed(1)} tokens/s` : "";
    const first = this.first > 0 ? `, the first after ${((this.first - this.asked) / 1000).toFixed(2)} s` : "";
    return `${this.timings.predicted_n} tokens` + (speed > 0 ? `, ${speed.toFixed(1)} a second` : "") + first;
  }
}

const kEnds = { length: "cut off at the token limit", content_filter: "filtered", tool_calls: "a tool was called" };

async function answer() {
  const body = request();
  const turn = { role: "assistant", content: "", reasoning: "" };
  const view = new AnswerView(turn);
  const speed = new Speed();
  const stop = running = new AbortController();
  turns.push(turn);
  busy(true);
  follow(true);
  say("Answering");
  let fault = "";
  let ended = "";
  try {
    for await (const chunk of chat(body, stop.signal)) {
      for (const choice of chunk.choices) {
        const { content, reasoning } = choice.delta;
        if (content || reasoning) {
          speed.token();
          view.add(content ?? "", reasoning ?? "");
        }
        ended = choice.finish_reason ?? ended;
      }
      speed.timings = chunk.timings ?? speed.timings;
    }
    if (ended === "") {
      fault = "The answer broke off.";
    }
  } catch (error) {
    if (error.name === "AbortError") {
      ended = "stop";
      speed.timings = null;
    } else {
      fault = error instanceof ApiFault ? error.message : "The server cannot be reached.";
    }
    if (error.status === 401) {
      askKey();
    }
  }
  const stopped = stop.signal.aborted;
  const notes = [speed.note(), stopped ? "stopped" : kEnds[ended]].filter((text) => text);
  view.end(notes.join(", "), fault);
  say(fault !== "" ? "" : stopped ? "Stopped" : `The answer is there: ${notes.join(", ")}`);
  if (running === stop) {
    running = null;
    busy(false);
  }
}

function busy(is) {
  $("send").hidden = is;
  $("stop").hidden = !is;
  const had = document.activeElement;
  if (had === document.body || had === null) {
    $("question").focus();
  }
}

function send() {
  const text = $("question").value.trim();
  if (text === "" || running !== null) {
    return;
  }
  $("question").value = "";
  grow();
  addUser(text);
  answer();
}

function regenerate() {
  if (running !== null) {
    return;
  }
  while (turns.length > 0 && turns.at(-1).role === "assistant") {
    turns.pop().node.remove();
  }
  $("question").focus();
  answer();
}

function stop() {
  running?.abort();
}

// ---- settings, key, gauges

function grow() {
  const box = $("question");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

const fields = () => [...kNumbers, "system", "reasoning_effort"];

function save() {
  localStorage.setItem(kSaved, JSON.stringify(Object.fromEntries(fields().map((name) => [name, $(name).value]))));
}

function restore() {
  try {
    const saved = JSON.parse(localStorage.getItem(kSaved) ?? "{}");
    for (const name of fields()) {
      $(name).value = typeof saved[name] === "string" ? saved[name] : "";
    }
  } catch {
    localStorage.removeItem(kSaved);
  }
}

function askKey() {
  if (!$("key-dialog").open) {
    $("key-dialog").showModal();
    $("key").focus();
  }
}

async function connect() {
  try {
    const models = await json("v1/models");
    const chosen = $("model").value;
    $("model").replaceChildren(...models.data.map(({ id }) => new Option(id, id)));
    if (models.data.some(({ id }) => id === chosen)) {
      $("model").value = chosen;
    }
    if (models.data.length === 0) {
      say("The model is being loaded");
      setTimeout(connect, 1000);
      return;
    }
    const params = (await json("props")).default_generation_settings?.params ?? {};
    for (const name of kNumbers) {
      $(name).placeholder = params[name] === undefined || params[name] === -1 ? "" : String(params[name]);
    }
  } catch (error) {
    if (error.status === 401) {
      askKey();
    } else if (error.status === undefined || error.status === 503) {
      setTimeout(connect, 2000);
    }
  }
}

let gaugesOff = false;
async function showGauges() {
  if (document.hidden || gaugesOff || $("key-dialog").open) {
    return;
  }
  try {
    const values = await metrics([kKv, kRunning, kWaiting]);
    $("kv").value = values[kKv] ?? 0;
    $("kv-text").value = `${Math.round((values[kKv] ?? 0) * 1000) / 10}%`;
    $("running").value = String(values[kRunning] ?? 0);
    $("waiting").value = String(values[kWaiting] ?? 0);
    $("gauges").hidden = false;
  } catch (error) {
    gaugesOff = error.status === 501 || error.status === 404;  // switched off there
    $("gauges").hidden = true;
  }
}

// ---- wiring

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
$("question").addEventListener("input", grow);
$("stop").addEventListener("click", () => {
  stop();
  $("question").focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running !== null && !document.querySelector("dialog[open]")) {
    stop();
  }
});
$("log").addEventListener("click", (event) => {
  const from = event.target.closest?.("[data-copies]");
  if (from) {
    const code = from.closest(".code").querySelector("code");
    copy(code.textContent, code);
  }
});
$("new-chat").addEventListener("click", () => {
  stop();
  turns.length = 0;
  document.querySelectorAll("#log > article").forEach((node) => node.remove());
  $("empty").hidden = false;
  $("speed").value = "";
  say("A new chat");
  $("question").focus();
});
$("open-settings").addEventListener("click", () => $("settings").showModal());
$("settings").addEventListener("input", save);
$("reset").addEventListener("click", () => {
  fields().forEach((name) => { $(name).value = ""; });
  save();
});
$("key-form").addEventListener("submit", () => {
  key.set($("key").value.trim());
  $("key").value = "";
  connect();
});
document.addEventListener("visibilitychange", showGauges);

restore();
connect();
showGauges();
setInterval(showGauges, kGaugesEvery);
