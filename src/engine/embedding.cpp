#include "engine/embedding.h"

namespace quince {

void EmbeddingJob::on_ready(std::function<void()> notify) {
  {
    const std::scoped_lock lock(mutex_);
    if (!ready_) {
      notify_ = std::move(notify);
      return;
    }
  }
  if (notify) {
    notify();
  }
}

bool EmbeddingJob::ready() const {
  const std::scoped_lock lock(mutex_);
  return ready_;
}

std::vector<std::vector<float>> EmbeddingJob::take() {
  const std::scoped_lock lock(mutex_);
  if (error_) {
    std::rethrow_exception(error_);
  }
  return std::move(vectors_);
}

void EmbeddingJob::finish(std::vector<std::vector<float>> vectors, std::exception_ptr error) {
  std::function<void()> notify;
  {
    const std::scoped_lock lock(mutex_);
    vectors_ = std::move(vectors);
    error_ = std::move(error);
    ready_ = true;
    notify.swap(notify_);
  }
  if (notify) {
    notify();
  }
}

}  // namespace quince
