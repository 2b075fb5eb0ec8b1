// One request on its way to upstreams and its answer on the way back.
//
// It waits for its turn, asks one upstream after another as gateway::Gate and next_step() say, and
// passes the answer on: whole, or as a stream of which only a bounded part is held here, so that a
// client that reads slowly holds the upstream back. When the client goes away the request to the
// upstream is ended. The work is done on the hub's event loop; the client's side (start, poll,
// pull, cancel) may be called on any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "gateway/gate.h"
#include "server/errors.h"
#include "server/http.h"
#include "server/upstream/event_frames.h"
#include "server/upstream/link.h"
#include "server/upstream/request_body.h"
#include "server/upstream/response_reader.h"

namespace quince::server {

// What forwarded requests need of whoever runs them. Loop's thread but where it says otherwise.
class ForwardHub {
 public:
  virtual ~ForwardHub() = default;
  virtual asio::io_context& context() = 0;
  virtual gateway::Gate& gate() = 0;                                    // any thread
  virtual LinkPool* pool(const gateway::UpstreamConfig& upstream) = 0;  // null: it is gone
  // Has a model that is loaded here answer: done is called on another thread.
  virtual void answer_here(HttpRequest request, std::function<void(Response)> done) = 0;
};

struct ForwardJob {
  HttpRequest request;
  RequestBody body;
  std::shared_ptr<const gateway::Config> config;
  std::vector<std::string> models;  // the one that was asked for, and its fallbacks
  const gateway::ModelConfig* asked = nullptr;
  std::shared_ptr<gateway::KeyUse> use;
};

class Forward : public std::enable_shared_from_this<Forward> {
 public:
  Forward(ForwardHub& hub, ForwardJob job);

  static Response response(const std::shared_ptr<Forward>& forward);

  void start(std::function<void()> notify);
  std::optional<Response> poll();
  void follow(std::function<void()> notify);  // start() of the stream
  ResponseStream::Piece pull(size_t max_bytes);
  void cancel();

 private:
  struct Attempt {
    gateway::Outcome outcome = gateway::Outcome::abandoned;
    std::optional<gateway::Clock::duration> first_byte;
  };
  struct Exchange;  // with one upstream

  Task<void> run();
  Task<void> answer();
  Task<gateway::Step> ask(const gateway::ModelConfig& model, bool fallback_left);
  Task<bool> take_place(const gateway::ModelConfig& model);
  Task<gateway::Step> ask_here(const std::string& model, bool fallback_left);
  gateway::Outcome judge_here(const Response& response) const;

  Task<Attempt> attempt(const gateway::Choice& choice, const gateway::ModelConfig& model);
  Task<bool> send(Exchange& exchange);  // and reads until there is the response's head
  Task<std::shared_ptr<Link>> connect(Exchange& exchange);
  Task<bool> send_once(Exchange& exchange, Link& link);
  Task<gateway::Outcome> pass_whole(Exchange& exchange);
  Task<gateway::Outcome> pass_stream(Exchange& exchange);
  gateway::Outcome judge(const Exchange& exchange, std::string body);
  gateway::Outcome broken(const Exchange& exchange, const std::string& what);

  gateway::Outcome break_off(const std::string& last, const std::string& wrong);
  Task<bool> room();
  Task<void> sleep(gateway::Time until);
  void wake();
  void end_stream(const std::string& last);
  std::string stream_error(const std::string& message) const;
  void settle(Response response);  // tells the client's side
  void finish(Response response);  // the same, as the last thing
  void let_go();                   // of what the request took up
  void fail(int status, std::string message, std::string code = "", double retry_after = 0);
  void count_whole(const std::string& body);
  void count_stream();
  bool late() const;

  ForwardHub& hub_;
  const ForwardJob job_;
  const gateway::Time until_;
  const ErrorStyle style_;
  Timer timer_;
  bool woken_ = false;
  bool cancelled_ = false;
  bool elsewhere_ = false;      // a model here answers instead
  bool streams_ = false;        // the client has the head of a stream
  std::shared_ptr<Link> link_;  // of the exchange under way
  EventFrames frames_;
  ErrorReport error_;                // what the client is told when nobody answers
  std::optional<Response> refusal_;  // instead: what an upstream said of the request itself
  std::optional<gateway::TokenCount> counted_;
  std::unique_ptr<gateway::Place> place_;

  std::mutex mutex_;  // of what follows
  std::function<void()> notify_;
  std::optional<Response> settled_;
  std::string pipe_;    // of the stream, not yet pulled
  bool ended_ = false;  // after pipe_
  bool full_ = false;   // the loop waits for room
};

}  // namespace quince::server
