// Saving, bringing back and erasing what slots remember. These wait: for the slot, while somebody
// runs there, as llama-server does, for the model, and for the disk; so they have a thread of their
// own, which does one after the other. Any thread.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/http.h"
#include "server/served_model.h"
#include "server/slots.h"

namespace quince::server {

struct SlotAction {
  enum class Kind { save, restore, erase };
  Kind kind = Kind::save;
  int slot = 0;
  std::string file_name;  // of save and restore; see check_slot_file_name()
  std::filesystem::path folder;
};

// Throws ApiError 400 unless it is the name of a file in a folder, and nothing else, on any system.
void check_slot_file_name(const std::string& name);

class SlotActions {
 public:
  SlotActions() = default;
  ~SlotActions();  // what has not begun is left
  SlotActions(const SlotActions&) = delete;
  SlotActions& operator=(const SlotActions&) = delete;

  // The response comes when it is done; it is not done when nobody waits for that any more before
  // it begins.
  std::unique_ptr<PendingResponse> add(
      SlotAction action, std::shared_ptr<ServedModel> model, std::shared_ptr<Slots> slots);

 private:
  struct Job;
  class Waiting;
  // Shared with slots and responses, which may outlive this.
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<std::shared_ptr<Job>> jobs;
    bool over = false;
  };

  static void work(Queue& queue);

  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::mutex mutex_;  // of the thread, which the first action starts
  std::thread thread_;
};

}  // namespace quince::server
