// Markdown as DOM nodes. Text becomes text nodes and nothing else: no markup of the text's own is
// ever parsed, links go to http, https and mailto only, images are shown as links.

const make = (name, ...children) => {
  const node = document.createElement(name);
  node.append(...children);
  return node;
};

export function safeAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(label, address) {
  const href = safeAddress(address);
  if (href === null) {
    return null;
  }
  const node = make("a", label);
  node.href = href;
  node.rel = "noopener noreferrer nofollow";
  node.target = "_blank";
  return node;
}

// Each alternative is tried at a place; what none of them takes is text. None takes more than linear
// time in what it may look at: texts may be made to be slow.
const kInline = new RegExp([
  "(?<!`)(?<ticks>`{1,8})(?!`)(?<code>[^]{1,4000}?)(?<!`)\\k<ticks>(?!`)",
  "!?\\[(?<label>[^\\[\\]\\n]*)\\]\\(\\s*<?(?<address>[^\\s()<>]*(?:\\([^\\s()<>]*\\)[^\\s()<>]*)*)>?(?:\\s+\"[^\"\\n]*\")?\\s*\\)",
  "<?(?<plain>https?://[^\\s<>\"'`]*[^\\s<>\"'`.,;:!?)\\]*_])>?",
  "\\*\\*(?<strong>[^\\s*](?:[^]{0,2000}?[^\\s*])?)\\*\\*",
  "(?<![\\w])__(?<strong2>[^\\s_](?:[^]{0,2000}?[^\\s_])?)__(?![\\w])",
  "~~(?<gone>[^\\s~](?:[^]{0,2000}?[^\\s~])?)~~",
  "\\*(?<em>[^\\s*](?:[^*]*[^\\s*])?)\\*",
  "(?<![\\w])_(?<em2>[^\\s_](?:[^_]*[^\\s_])?)_(?![\\w])",
  "\\\\(?<escaped>[!-\\/:-@\\[-`{-~])",
  "(?<newline> {2,}\\n|\\\\\\n)",
].join("|"), "gu");
const kMostNesting = 8;
const kLongest = 20000;  // characters of one paragraph in which marks are looked for

function inline(text, depth = 0) {
  const nodes = [];
  if (depth > kMostNesting || text.length > kLongest) {
    return [text];
  }
  const scan = new RegExp(kInline);
  let at = 0;
  let plain = "";
  const flush = () => {
    if (plain !== "") {
      nodes.push(plain);
      plain = "";
    }
  };
  const give = (node) => {
    flush();
    nodes.push(node);
  };
  for (let match; (match = scan.exec(text)) !== null;) {
    const g = match.groups;
    plain += text.slice(at, match.index);
    at = scan.lastIndex;
    if (g.code !== undefined) {
      give(make("code", g.code.replace(/^ ([^]*[^ ][^]*) $/u, "$1")));
    } else if (g.address !== undefined) {
      const node = link(g.label || g.address, g.address);
      if (node === null) {
        plain += match[0];
      } else {
        give(node);
      }
    } else if (g.plain !== undefined) {
      const node = link(g.plain, g.plain);
      if (node === null) {
        plain += match[0];
      } else {
        give(node);
      }
    } else if (g.strong !== undefined || g.strong2 !== undefined) {
      give(make("strong", ...inline(g.strong ?? g.strong2, depth + 1)));
    } else if (g.gone !== undefined) {
      give(make("del", ...inline(g.gone, depth + 1)));
    } else if (g.em !== undefined || g.em2 !== undefined) {
      give(make("em", ...inline(g.em ?? g.em2, depth + 1)));
    } else if (g.escaped !== undefined) {
      plain += g.escaped;
    } else {
      give(make("br"));
    }
  }
  plain += text.slice(at);
  flush();
  return nodes;
}

function codeBlock(language, text) {
  const copy = make("button", "Copy");
  copy.type = "button";
  copy.setAttribute("aria-label", "Copy this code");
  copy.dataset.copies = "code";
  const pre = make("pre", make("code", text));
  pre.tabIndex = 0;  // it scrolls
  const block = make("div", make("div", make("span", language || "text"), copy), pre);
  block.className = "code";
  return block;
}

const kFence = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})\s*(\S*)/u;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/u;
const kHeading = /^ {0,3}(#{1,6})\s+(.*)$/u;
const kRule = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/u;
const kDivider = /^\|? *:?-+:? *(?:\| *:?-+:? *)*\|?$/u;

const closes = (line, fence) =>
  line.trim().startsWith(fence) && line.trim().replaceAll(fence[0], "") === "";

const cells = (line) =>
  line.trim().replace(/^\|/u, "").replace(/\|$/u, "").split(/(?<!\\)\|/u).map((cell) => cell.trim().replaceAll("\\|", "|"));

function table(head, rows) {
  const body = make("tbody", ...rows.map((row) =>
    make("tr", ...head.map((_, i) => make("td", ...inline(row[i] ?? ""))))));
  const titles = head.map((cell) => {
    const node = make("th", ...inline(cell));
    node.scope = "col";
    return node;
  });
  return make("table", make("thead", make("tr", ...titles)), body);
}

class Lines {
  constructor(lines) {
    this.lines = lines;
    this.at = 0;
  }
  get line() {
    return this.lines[this.at];
  }
  get more() {
    return this.at < this.lines.length;
  }
  // Lines from here on for which it holds.
  take(holds) {
    const taken = [];
    while (this.more && holds(this.line)) {
      taken.push(this.lines[this.at++]);
    }
    return taken;
  }
}

function fence(lines) {
  const [, mark, language] = kFence.exec(lines.line);
  lines.at++;
  const text = lines.take((line) => !closes(line, mark));
  lines.at++;
  return codeBlock(language, text.join("\n"));
}

function list(lines, depth) {
  const first = kItem.exec(lines.line);
  const ordered = /\d/u.test(first[2]);
  const indent = first[1].length;
  const node = make(ordered ? "ol" : "ul");
  if (ordered) {
    node.start = parseInt(first[2], 10);
  }
  while (lines.more) {
    const item = kItem.exec(lines.line);
    if (item === null || item[1].length < indent || item[1].length > indent + 1 || /\d/u.test(item[2]) !== ordered) {
      break;
    }
    lines.at++;
    const width = item[0].length - item[3].length;
    const inner = [item[3]];
    while (lines.more) {
      const blank = lines.line.trim() === "";
      const next = blank ? lines.lines[lines.at + 1] : lines.line;
      const deeper = next !== undefined && next.search(/\S/u) > indent + 1;
      const lazy = !blank && kItem.exec(next) === null && inner.at(-1).trim() !== "" && !kFence.test(next) && !kHeading.test(next);
      if (!deeper && !lazy) {
        break;
      }
      inner.push(lines.line.slice(Math.min(width, Math.max(0, lines.line.search(/\S/u)))));
      lines.at++;
    }
    node.append(make("li", ...blocks(new Lines(inner), depth + 1, true)));
    lines.take((line) => line.trim() === "" && kItem.test(lines.lines[lines.at + 1] ?? ""));
  }
  return node;
}

const begins = (lines) => {
  const line = lines.line;
  return kFence.test(line) || kItem.test(line) || kHeading.test(line) || kRule.test(line) || line.startsWith(">");
};

function blocks(lines, depth = 0, tight = false) {
  const nodes = [];
  while (lines.more) {
    const line = lines.line;
    if (line.trim() === "") {
      lines.at++;
    } else if (depth > kMostNesting) {
      nodes.push(make("p", lines.take(() => true).join("\n")));
    } else if (kFence.test(line)) {
      nodes.push(fence(lines));
    } else if (kHeading.test(line)) {
      const [, marks, text] = kHeading.exec(line);
      nodes.push(make(`h${Math.min(6, marks.length + 2)}`, ...inline(text)));
      lines.at++;
    } else if (kRule.test(line)) {
      nodes.push(make("hr"));
      lines.at++;
    } else if (line.startsWith(">")) {
      const inner = lines.take((l) => l.startsWith(">")).map((l) => l.replace(/^> ?/u, ""));
      nodes.push(make("blockquote", ...blocks(new Lines(inner), depth + 1)));
    } else if (kItem.test(line)) {
      nodes.push(list(lines, depth));
    } else if (line.includes("|") && kDivider.test((lines.lines[lines.at + 1] ?? "").trim())) {
      const head = cells(line);
      lines.at += 2;
      nodes.push(table(head, lines.take((l) => l.trim() !== "" && l.includes("|")).map(cells)));
    } else {
      const text = [line];
      lines.at++;
      while (lines.more && lines.line.trim() !== "" && !begins(lines)) {
        text.push(lines.lines[lines.at++]);
      }
      const inner = inline(text.join("\n").trim());
      if (tight) {
        nodes.push(...inner);
      } else {
        nodes.push(make("p", ...inner));
      }
    }
  }
  return nodes;
}

export const render = (text) => blocks(new Lines(text.replaceAll("\r\n", "\n").split("\n")));

// A text that grows: only what is behind its last finished block is made anew.
export class Growing {
  constructor(target) {
    this.target = target;
    this.tail = "";
    this.part = null;
  }

  // text: what is new.
  add(text) {
    this.tail += text;
    for (let cut; (cut = this.boundary()) > 0;) {
      this.show(this.tail.slice(0, cut));
      this.part = null;
      this.tail = this.tail.slice(cut);
    }
    this.show(this.tail);
  }

  show(text) {
    if (this.part === null) {
      this.part = make("div");
      this.part.className = "part";
      this.target.append(this.part);
    }
    this.part.replaceChildren(...render(text));
  }

  // Behind an empty line that no block goes over, or 0.
  boundary() {
    let open = null;
    let at = 0;
    let blank = false;
    for (const line of this.tail.split("\n")) {
      if (open !== null) {
        open = closes(line, open) ? null : open;
        blank = false;
      } else if (blank && at > 0 && /^[^\s>*+\-\d]/u.test(line)) {
        return at;
      } else {
        open = kFence.exec(line)?.[1] ?? null;
        blank = line.trim() === "";
      }
      at += line.length + 1;
    }
    return 0;
  }
}
