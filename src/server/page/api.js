// What the page asks of the server. Addresses are relative: a proxy may put the page anywhere.

const kKey = "quince-key";

export class ApiFault extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(kKey) ?? "",
  set: (value) => sessionStorage.setItem(kKey, value),
};

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get() !== "") {
    headers.Authorization = `Bearer ${key.get()}`;
  }
  const response = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error" });
  if (!response.ok) {
    const body = await response.text();
    let message = `the server answered ${response.status}`;
    try {
      message = JSON.parse(body).error.message ?? message;
    } catch {
      // not one of its own errors
    }
    throw new ApiFault(response.status, message);
  }
  return response;
}

export const json = async (path) => (await ask(path)).json();

// The values of the metrics of these names.
export async function metrics(names) {
  const text = await (await ask("metrics")).text();
  const values = {};
  for (const line of text.split("\n")) {
    const match = /^([^\s{]+)(?:\{[^}]*\})? (\S+)$/u.exec(line);
    if (match !== null && names.includes(match[1])) {
      values[match[1]] = (values[match[1]] ?? 0) + Number(match[2]);
    }
  }
  return values;
}

// Each event of the stream of a chat completion.
export async function* chat(request, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    const events = (held + value).split("\n\n");
    held = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ") || event === "data: [DONE]") {
        continue;
      }
      const chunk = JSON.parse(event.slice(6));
      if (chunk.error) {
        throw new ApiFault(500, chunk.error.message);
      }
      yield chunk;
    }
  }
}
