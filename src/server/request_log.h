// A line for every request and every answer, for people or for programs. What was asked and
// answered is in it only if that is wanted; keys never are. Any thread; never waits: of lines that
// come faster than they can be written the oldest go.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "server/generation.h"
#include "server/http.h"

namespace quince::server {

enum class LogFormat { text, json };

class RequestLog {
 public:
  // prompts: the bodies of requests too. path: a file that lines are added to; "": standard error.
  // Throws UserError: the file cannot be written.
  RequestLog(LogFormat format, bool prompts, const std::string& path = "");
  ~RequestLog();  // writes what is left
  // Lines go to a file of that name from now on, which is made if there is none any more. Throws
  // UserError: it cannot be; then they go where they went.
  void reopen();

  // One line: {"time", "level", "event", ...}, or the same as words.
  void add(std::string_view level, std::string_view event, const boost::json::object& fields);
  // A response goes out. Its id is the one of its header, or is made up and added to it.
  void responded(const HttpRequest& request, Response& response);
  // Tells how an answer went, beside what inner does.
  std::unique_ptr<GenerationObserver> observe(
      std::string id, int prompt_tokens, std::unique_ptr<GenerationObserver> inner);

 private:
  class Observer;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince::server
