// A request's answers as a response: in pieces, or whole. How they look is the API's business
// (AnswerFormat).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/active_request.h"
#include "server/answer.h"
#include "server/errors.h"
#include "server/http.h"
#include "server/slots.h"

namespace quince::server {

struct Usage {
  int prompt_tokens = 0;  // each prompt once, however many answers it has
  int cached_tokens = 0;
  int completion_tokens = 0;
  int reasoning_tokens = 0;  // of them
};

// Turns what comes into an API's JSON. Used on one thread at a time.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // First, if at all: the slot of each answer.
  virtual void set_slots(const std::vector<int>& /*slots*/) {}

  // In pieces: appends frames to out.
  virtual void begin(std::string& out) = 0;
  // Of formats that say at their beginning how much of the prompt was computed before: begin()
  // waits for the first token then, and this comes before it.
  virtual bool begins_with_prompt_usage() const {
    return false;
  }
  virtual void prompt_usage(const Usage&) {}
  virtual void delta(std::string& out, size_t answer, const Delta& delta) = 0;
  virtual void finish(std::string& out, size_t answer, const AnswerEnd& end) = 0;
  virtual void end(std::string& out, const Usage& usage) = 0;
  virtual void error(std::string& out, const std::exception_ptr& error) = 0;
  virtual ErrorStyle error_style() const {
    return ErrorStyle::openai;
  }
  virtual std::string keep_alive() {
    return ": keep-alive\n\n";
  }

  // Of formats whose answers are a list of parts, in the order in which they were written: delta()
  // is given each piece of a whole answer too, and then finish(); whole() is given no deltas.
  virtual bool is_list() const {
    return false;
  }
  // Whole: deltas[i] is all of answer i.
  virtual Response whole(
      std::vector<Delta> deltas, const std::vector<AnswerEnd>& ends, const Usage& usage) = 0;
};

// Told what happens, on the I/O thread.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  virtual void tokens(int count) = 0;          // taken at once
  virtual void end(const AnswerEnd& end) = 0;  // of each answer
  virtual void failed() = 0;                   // instead of the end of those that are left
  virtual void gone() = 0;                     // the client; likewise
};

struct GenerationPlan {
  std::shared_ptr<ActiveRequest> request;
  std::shared_ptr<ServedModel> model;
  GenerationParams params;
  std::vector<int> prompt_of;  // of each stream
  std::vector<SlotUse> slots;  // likewise
  std::unique_ptr<AnswerFormat> format;
  ActiveRequests& active;
  std::unique_ptr<GenerationObserver> observer;
};

std::unique_ptr<ResponseStream> stream_of(GenerationPlan plan);
std::unique_ptr<PendingResponse> whole_of(GenerationPlan plan);

}  // namespace quince::server
