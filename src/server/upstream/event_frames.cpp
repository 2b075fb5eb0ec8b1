#include "server/upstream/event_frames.h"

#include <algorithm>
#include <charconv>

namespace quince::server {

namespace json = boost::json;

namespace {

// An event longer than this goes on in pieces.
constexpr size_t kMostHeld = size_t{1} << 20;

// What stands behind "data:", lines joined.
std::string data_of(std::string_view event) {
  std::string data;
  while (!event.empty()) {
    const size_t end = std::min(event.find_first_of("\r\n"), event.size());
    std::string_view line = event.substr(0, end);
    event.remove_prefix(std::min(end + 1, event.size()));
    if (line.starts_with("data:")) {
      line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
      data += data.empty() ? "" : "\n";
      data += line;
    }
  }
  return data;
}

int64_t whole_number(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  const int64_t* number = value == nullptr ? nullptr : value->if_int64();
  return number == nullptr ? 0 : std::max<int64_t>(*number, 0);
}

// OpenAI's names, or those of Responses and Messages.
void add_usage(const json::object& usage, gateway::TokenCount& count) {
  const int64_t prompt = whole_number(usage, "prompt_tokens") +
                         whole_number(usage, "input_tokens") +
                         whole_number(usage, "cache_read_input_tokens") +
                         whole_number(usage, "cache_creation_input_tokens");
  const int64_t generated =
      whole_number(usage, "completion_tokens") + whole_number(usage, "output_tokens");
  // Later events tell the whole again.
  count.prompt = std::max(count.prompt, prompt);
  count.generated = std::max(count.generated, generated);
}

}  // namespace

void read_usage(const json::object& message, gateway::TokenCount& count, bool& found) {
  for (const std::string_view inside : {"", "message", "response"}) {
    const json::value* value = inside.empty() ? nullptr : message.if_contains(inside);
    const json::object* object = inside.empty()     ? &message
                                 : value == nullptr ? nullptr
                                                    : value->if_object();
    const json::value* usage = object == nullptr ? nullptr : object->if_contains("usage");
    if (usage != nullptr && usage->is_object()) {
      add_usage(usage->get_object(), count);
      found = true;
    }
  }
}

bool read_usage(std::string_view body, gateway::TokenCount& count) {
  boost::system::error_code error;
  const json::value value = json::parse(body, error);
  bool found = false;
  if (!error && value.is_object()) {
    read_usage(value.get_object(), count, found);
  }
  return found;
}

void EventFrames::add(std::string_view bytes, std::string& out) {
  held_ += bytes;
  size_t begin = 0;
  while (true) {
    // An empty line: a break after a break, of whatever kind.
    size_t end = std::string::npos;
    for (size_t at = held_.find('\n', std::max(begin, searched_)); at != std::string::npos;
         at = held_.find('\n', at + 1)) {
      const bool after_break =
          at > begin && (held_[at - 1] == '\n' ||
                         (at > begin + 1 && held_[at - 1] == '\r' && held_[at - 2] == '\n'));
      if (after_break) {
        end = at + 1;
        break;
      }
    }
    if (end == std::string::npos) {
      break;
    }
    look_at(std::string_view(held_).substr(begin, end - begin));
    begin = searched_ = end;
  }
  out.append(held_, 0, begin);
  held_.erase(0, begin);
  searched_ = held_.size();
  if (held_.size() > kMostHeld) {
    finish(out);
  }
}

void EventFrames::finish(std::string& out) {
  out += held_;
  held_.clear();
  searched_ = 0;
}

void EventFrames::look_at(std::string_view event) {
  if (event.find("data:") == std::string_view::npos) {
    return;
  }
  for (const std::string_view last :
       {"data: [DONE]", "data:[DONE]", "event: message_stop", "event: response.completed"}) {
    done_ = done_ || event.starts_with(last);
  }
  ++events_;
  constexpr std::string_view kSequence = "\"sequence_number\":";
  if (const size_t at = event.find(kSequence); at != std::string_view::npos) {
    size_t digits = at + kSequence.size();
    digits += event[digits] == ' ' ? 1 : 0;
    std::from_chars(event.data() + digits, event.data() + event.size(), sequence_number_);
  }
  if (event.find("\"usage\"") != std::string_view::npos) {
    boost::system::error_code error;
    const json::value value = json::parse(data_of(event), error);
    if (!error && value.is_object()) {
      read_usage(value.get_object(), usage_, has_usage_);
    }
  }
}

}  // namespace quince::server
