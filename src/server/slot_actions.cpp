#include "server/slot_actions.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "server/errors.h"
#include "server/fields.h"
#include "tokenizer/utf8.h"

namespace quince::server {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr size_t kLongestName = 200;  // files have 255, of which an unfinished one needs some

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// What went wrong with the slot's file, under the name that the client gave it: where the server
// keeps it is nobody's business.
std::string told(std::string message, const fs::path& path, const std::string& name) {
  const std::string place = path.string();
  for (size_t at = 0; (at = message.find(place, at)) != std::string::npos; at += name.size()) {
    message.replace(at, place.size(), name);
  }
  return message;
}

json::object save(const SlotAction& action, ServedModel& model, const Slots& slots) {
  const std::vector<Token> tokens = slots.tokens(action.slot);
  if (tokens.empty()) {
    throw bad_field(
        "id_slot", "slot {} is empty: nothing has run there that could be saved", action.slot);
  }
  const fs::path path = action.folder / action.file_name;
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    throw bad_field("filename", "'{}' is there already, and is no file", action.file_name);
  }
  const auto start = Clock::now();
  try {
    model.engine->save_prompt(tokens, path, model.id, PrefixUse::shared);
  } catch (const BusyError&) {
    throw;
  } catch (const ForgottenError& error) {
    throw bad_field(
        "id_slot",
        "slot {} cannot be saved: {}",
        action.slot,
        told(error.what(), path, action.file_name));
  } catch (const UserError& error) {  // it is nothing that the client could do better
    throw ApiError(
        500,
        "server_error",
        "unable to save the slot: " + told(error.what(), path, action.file_name));
  }
  return {
      {"id_slot", action.slot},
      {"filename", action.file_name},
      {"n_saved", tokens.size()},
      {"n_written", fs::file_size(path, ignored)},
      {"timings", {{"save_ms", milliseconds_since(start)}}}};
}

json::object restore(const SlotAction& action, ServedModel& model, Slots& slots) {
  const fs::path path = action.folder / action.file_name;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw bad_field(
        "filename", "unable to restore the slot: there is no file '{}'", action.file_name);
  }
  const auto start = Clock::now();
  std::vector<Token> tokens;
  try {
    tokens = model.engine->restore_prompt(path);
  } catch (const BusyError&) {
    throw;
  } catch (const UserError& refused) {
    throw bad_field(
        "filename", "unable to restore the slot: {}", told(refused.what(), path, action.file_name));
  }
  const size_t count = tokens.size();
  slots.set_tokens(action.slot, std::move(tokens));
  return {
      {"id_slot", action.slot},
      {"filename", action.file_name},
      {"n_restored", count},
      {"n_read", fs::file_size(path, error)},
      {"timings", {{"restore_ms", milliseconds_since(start)}}}};
}

json::object erase(const SlotAction& action, ServedModel& model, Slots& slots) {
  std::vector<Token> tokens = slots.tokens(action.slot);
  const size_t count = tokens.size();
  const int64_t from = slots.shared_tokens(action.slot);
  slots.set_tokens(action.slot, {});
  if (count > 0) {
    model.engine->forget_prompt(std::move(tokens), from);
  }
  return {{"id_slot", action.slot}, {"n_erased", count}};
}

Response done(const SlotAction& action, ServedModel& model, Slots& slots) {
  try {
    switch (action.kind) {
      case SlotAction::Kind::save:
        return {.body = compact_json(save(action, model, slots))};
      case SlotAction::Kind::restore:
        return {.body = compact_json(restore(action, model, slots))};
      case SlotAction::Kind::erase:
        return {.body = compact_json(erase(action, model, slots))};
    }
  } catch (...) {
    return error_response(report(std::current_exception()), ErrorStyle::openai);
  }
  return {};
}

}  // namespace

// As llama-server judges them: what a system may read as a path, or as another name, is none.
void check_slot_file_name(const std::string& name) {
  const auto bad = [&](std::string_view why) {
    return bad_field("filename", "filename {}: {}", shown(json::value(name)), why);
  };
  if (name.empty() || name.size() > kLongestName) {
    throw bad_field("filename", "filename has {} bytes, want 1 to {}", name.size(), kLongestName);
  }
  if (!is_valid_utf8(name)) {
    throw bad("want UTF-8");
  }
  if (name.find_first_of("/\\:*?\"<>|") != std::string::npos) {
    throw bad("want the name of a file, without any of / \\ : * ? \" < > |");
  }
  // Controls, the second of these lists as UTF-8 has them: C1, and what looks like . / and \.
  const bool control =
      std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  bool odd = control;
  for (const std::string_view text :
       {"\xEF\xBC\x8E", "\xE2\x88\x95", "\xE2\x88\x96", "\xEF\xBB\xBF", "\xEF\xBF\xBD"}) {
    odd = odd || name.find(text) != std::string::npos;
  }
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    odd = odd || (name[i] == '\xC2' && static_cast<unsigned char>(name[i + 1]) < 0xA0);
  }
  if (odd) {
    throw bad("it has a character that names of files cannot have everywhere");
  }
  if (name.front() == ' ' || name.back() == ' ' || name.back() == '.') {
    throw bad("want no space at its ends and no dot at its end");
  }
}

struct SlotActions::Job {
  SlotAction action;
  std::shared_ptr<ServedModel> model;
  std::shared_ptr<Slots> slots;
  // Of the queue's mutex.
  bool abandoned = false;
  std::optional<Response> result;
  std::function<void()> notify;
};

class SlotActions::Waiting : public PendingResponse {
 public:
  Waiting(std::shared_ptr<Queue> queue, std::shared_ptr<Job> job)
      : queue_(std::move(queue)), job_(std::move(job)) {}
  ~Waiting() override {
    const std::scoped_lock lock(queue_->mutex);
    job_->abandoned = true;
    job_->notify = nullptr;
    queue_->changed.notify_all();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void start(std::function<void()> notify) override {
    {
      const std::scoped_lock lock(queue_->mutex);
      job_->notify = notify;
    }
    notify();  // it may be done already
  }
  std::optional<Response> poll() override {
    const std::scoped_lock lock(queue_->mutex);
    return std::exchange(job_->result, std::nullopt);
  }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Job> job_;
};

std::unique_ptr<PendingResponse> SlotActions::add(
    SlotAction action, std::shared_ptr<ServedModel> model, std::shared_ptr<Slots> slots) {
  auto job = std::make_shared<Job>();
  job->action = std::move(action);
  job->model = std::move(model);
  job->slots = std::move(slots);
  job->slots->on_free([weak = std::weak_ptr<Queue>(queue_)] {
    if (const auto queue = weak.lock()) {
      const std::scoped_lock lock(queue->mutex);  // else a wait that is about to begin misses it
      queue->changed.notify_all();
    }
  });
  job->slots->wait_for(job->action.slot, true);
  {
    const std::scoped_lock lock(mutex_);
    if (!thread_.joinable()) {
      thread_ = std::thread([queue = queue_] { work(*queue); });
    }
  }
  {
    const std::scoped_lock lock(queue_->mutex);
    queue_->jobs.push_back(job);
    queue_->changed.notify_all();
  }
  return std::make_unique<Waiting>(queue_, std::move(job));
}

SlotActions::~SlotActions() {
  {
    const std::scoped_lock lock(queue_->mutex);
    queue_->over = true;
    queue_->changed.notify_all();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void SlotActions::work(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  while (true) {
    auto next = queue.jobs.end();
    queue.changed.wait(lock, [&] {
      next = std::find_if(queue.jobs.begin(), queue.jobs.end(), [](const auto& job) {
        return job->abandoned || job->slots->is_free(job->action.slot);
      });
      return queue.over || next != queue.jobs.end();
    });
    if (queue.over) {
      return;
    }
    const std::shared_ptr<Job> job = *next;
    queue.jobs.erase(next);
    const bool wanted = !job->abandoned;
    lock.unlock();
    std::optional<Response> response;
    if (wanted) {
      response = done(job->action, *job->model, *job->slots);
    }
    job->slots->wait_for(job->action.slot, false);
    lock.lock();
    job->result = std::move(response);
    if (const auto notify = job->notify) {
      lock.unlock();
      notify();
      lock.lock();
    }
  }
}

}  // namespace quince::server
