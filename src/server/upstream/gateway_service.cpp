#include "server/upstream/gateway_service.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/error.h"
#include "server/errors.h"
#include "server/upstream/forward.h"
#include "server/upstream/passed_headers.h"

namespace quince::server {

namespace {

constexpr std::chrono::seconds kSweep{5};

// What shows that a file is another one now. Its number too: what is renamed to its name within a
// tick of the file system's clock has the same time.
struct FileState {
  std::filesystem::file_time_type time;
  uintmax_t size = 0;
  uintmax_t number = 0;
  bool operator==(const FileState&) const = default;
};

FileState state_of(const std::filesystem::path& path) {
  std::error_code ignored;
  struct stat status{};
  const bool there = ::stat(path.c_str(), &status) == 0;
  return {
      std::filesystem::last_write_time(path, ignored),
      there ? static_cast<uintmax_t>(status.st_size) : 0,
      there ? static_cast<uintmax_t>(status.st_ino) : 0};
}

ApiError refusal(const gateway::Refused& refused) {
  ErrorReport like = report(refused.status, "");
  ApiError error(refused.status, like.type, refused.what(), "", refused.code);
  error.retry_after =
      std::max(1, static_cast<int>(std::ceil(gateway::in_seconds(refused.retry_after))));
  return error;
}

}  // namespace

struct GatewayService::Impl : ForwardHub {
  const Options options;
  gateway::Gate gate_;
  std::function<Response(HttpRequest)> local;
  asio::io_context context_{1};
  asio::executor_work_guard<Executor> work{context_.get_executor()};
  asio::thread_pool here{1};  // the local model's answers to what upstreams could not
  Timer tick_timer{context_};
  bool stopping = false;  // loop's thread, like what follows
  uint64_t generation = 0;
  std::map<std::string, std::unique_ptr<LinkPool>> pools;
  std::vector<std::shared_ptr<Timer>> health_timers;
  std::vector<std::weak_ptr<Forward>> forwards;
  size_t alive = 0;  // of them, when the others were last taken out
  gateway::Time swept;
  std::mutex reloading;
  FileState file;  // guarded by it
  FileState last;  // at the last tick; loop's thread
  std::thread thread;

  explicit Impl(Options given)
      : options(std::move(given)),
        gate_(
            gateway::read_config(options.config, options.local_models),
            {.now = [] { return gateway::Clock::now(); }, .log = options.log}),
        file(state_of(options.config)) {
    apply();
    tick();
    thread = std::thread([this] { context_.run(); });
  }

  ~Impl() override {
    here.stop();
    here.join();
    asio::post(context_, [this] {
      stopping = true;
      tick_timer.cancel();
      stop_health_checks();
      for (const auto& weak : forwards) {
        if (const auto forward = weak.lock()) {
          forward->cancel();
        }
      }
      for (const auto& [name, pool] : pools) {
        pool->close();
      }
      work.reset();
    });
    thread.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  asio::io_context& context() override {
    return context_;
  }
  gateway::Gate& gate() override {
    return gate_;
  }

  LinkPool* pool(const gateway::UpstreamConfig& upstream) override {
    const auto found = pools.find(upstream.name);
    const bool same = found != pools.end() && found->second->upstream() == upstream;
    return same ? found->second.get() : nullptr;
  }

  void answer_here(HttpRequest request, std::function<void(Response)> done) override {
    asio::post(here, [this, request = std::move(request), done = std::move(done)]() mutable {
      done(local(std::move(request)));
    });
  }

  // Pools and health checks as the configuration wants them. Before the loop runs, or on it.
  void apply() {
    const auto config = gate_.config();
    for (auto& [name, pool] : pools) {
      const auto found = config->upstreams.find(name);
      if (found == config->upstreams.end() || !(found->second == pool->upstream())) {
        pool->close();
        pool = nullptr;
      }
    }
    std::erase_if(pools, [](const auto& entry) { return entry.second == nullptr; });
    stop_health_checks();
    for (const auto& [name, upstream] : config->upstreams) {
      const std::shared_ptr<const gateway::UpstreamConfig> shared(config, &upstream);
      auto& pool = pools[name];
      if (pool) {
        pool->set(shared);
      } else {
        pool = std::make_unique<LinkPool>(context_, shared);
      }
      if (!upstream.health.empty()) {
        health_timers.push_back(std::make_shared<Timer>(context_));
        asio::co_spawn(
            context_.get_executor(),
            watch_health(shared, health_timers.back(), generation),
            [](std::exception_ptr) {});
      } else {
        gate_.checked(name, true);
      }
    }
  }

  void stop_health_checks() {
    ++generation;
    for (const auto& timer : health_timers) {
      timer->cancel();
    }
    health_timers.clear();
  }

  Task<void> watch_health(
      std::shared_ptr<const gateway::UpstreamConfig> upstream,
      std::shared_ptr<Timer> timer,
      uint64_t mine) {
    while (mine == generation && !stopping) {
      const bool well = co_await is_well(*upstream);
      if (mine != generation) {
        break;
      }
      gate_.checked(upstream->name, well);
      boost::system::error_code ignored;
      timer->expires_after(gateway::seconds(upstream->health_interval));
      co_await timer->async_wait(to(ignored));
    }
  }

  Task<bool> is_well(const gateway::UpstreamConfig& upstream) {
    LinkPool* pool = this->pool(upstream);
    if (pool == nullptr) {
      co_return false;
    }
    const std::shared_ptr<Link> link =
        pool->make();  // a fresh one: it is to be seen whether it can
    link->set_deadline(gateway::Clock::now() + gateway::seconds(upstream.connect_timeout));
    boost::system::error_code error = co_await link->open(upstream);
    ResponseReader reader;
    if (!error) {
      const std::string head = health_head(upstream);
      const std::array<std::string_view, 1> parts{head};
      error = co_await link->write(parts);
    }
    while (!error && !reader.has_header()) {
      std::string bytes;
      error = co_await link->read(bytes);
      if (!error) {
        reader.add(bytes, error);
      }
    }
    link->close();
    co_return !error && reader.status() >= 200 && reader.status() < 300;
  }

  // Every now and then: has the file changed, are there connections that nobody wants?
  void tick() {
    if (options.watch.count() == 0) {
      return;
    }
    tick_timer.expires_after(options.watch);
    tick_timer.async_wait([this](const boost::system::error_code& error) {
      if (error || stopping) {
        return;
      }
      const auto now = gateway::Clock::now();
      if (now - swept > kSweep) {
        swept = now;
        for (const auto& [name, pool] : pools) {
          pool->close_old(now);
        }
      }
      if (has_changed()) {
        reload();
      }
      tick();
    });
  }

  // And rests: a file that is being written may look like one that has no keys.
  bool has_changed() {
    const FileState now = state_of(options.config);
    const bool rests = std::exchange(last, now) == now;
    const std::scoped_lock lock(reloading);
    return rests && !(now == file);
  }

  bool reload() {
    const std::scoped_lock lock(reloading);
    file = state_of(options.config);
    try {
      auto config = gateway::read_config(options.config, options.local_models);
      for (const auto& [name, upstream] : config.upstreams) {  // complains about certificates
        LinkPool(context_, std::make_shared<const gateway::UpstreamConfig>(upstream));
      }
      if (config.keys.empty() && !gate_.config()->keys.empty()) {
        throw UserError(
            "{}: has no keys any more, which would let everybody in; start anew for that",
            options.config.string());
      }
      gate_.reload(std::move(config));
    } catch (const std::exception& error) {
      options.log(fmt::format("not reloaded, all stays as it was: {}", error.what()));
      return false;
    }
    asio::post(context_, [this] {
      if (!stopping) {
        apply();
      }
    });
    options.log(fmt::format("{}: reloaded", options.config.string()));
    return true;
  }

  Response forward(ForwardJob job) {
    const auto forward = std::make_shared<Forward>(*this, std::move(job));
    asio::post(context_, [this, weak = std::weak_ptr(forward)] {
      if (forwards.size() >= 2 * alive + 64) {
        std::erase_if(forwards, [](const auto& one) { return one.expired(); });
        alive = forwards.size();
      }
      forwards.push_back(weak);
    });
    return Forward::response(forward);
  }
};

GatewayService::GatewayService(Options options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

GatewayService::~GatewayService() = default;

void GatewayService::set_local(std::function<Response(HttpRequest)> answer) {
  impl_->local = std::move(answer);
}

bool GatewayService::reload() {
  return impl_->reload();
}

bool GatewayService::has_keys() const {
  return !impl_->gate_.config()->keys.empty();
}

std::shared_ptr<const gateway::KeyConfig> GatewayService::identify(std::string_view secret) const {
  return impl_->gate_.identify(secret);
}

std::string GatewayService::metrics_text() const {
  return impl_->gate_.metrics_text();
}

gateway::Gate& GatewayService::gate() {
  return impl_->gate_;
}

std::vector<std::string> GatewayService::models(const gateway::KeyConfig* key) const {
  std::vector<std::string> names;
  for (const auto& [name, model] : impl_->gate_.config()->models) {
    if (!model.upstreams.empty() && (key == nullptr || key->may_use(name))) {
      names.push_back(name);
      names.insert(names.end(), model.aliases.begin(), model.aliases.end());
    }
  }
  return names;
}

std::optional<Response> GatewayService::take(
    HttpRequest& request, const std::shared_ptr<const gateway::KeyConfig>& key) {
  const auto& local = impl_->options.local_models;
  if (request.method != "POST") {
    return std::nullopt;
  }
  const auto config = impl_->gate_.config();
  RequestBody body;
  if (request.path == "/chat/completions") {
    request.path = "/v1/chat/completions";
  }
  const bool may_go = request.path.starts_with("/v1/") && !request.body.empty();
  if (may_go) {
    body = read_request_body(request.body);
  }
  const gateway::ModelConfig* model = body.has_model ? config->model(body.model) : nullptr;
  if (model == nullptr && local.empty() && may_go) {
    if (!body.has_model) {
      throw bad_field("model", "model is missing: want the name of one of the models here");
    }
    throw ApiError(
        404,
        "not_found_error",
        fmt::format(
            "there is no model '{}' here; there are {}",
            body.model,
            fmt::join(models(key.get()), ", ")),
        "model",
        "model_not_found");
  }
  try {
    const std::string name = model != nullptr ? model->name : local.empty() ? "" : local.front();
    std::shared_ptr<gateway::KeyUse> use = impl_->gate_.use_key(key.get(), name);
    const bool is_here =
        body.names_none || std::find(local.begin(), local.end(), body.model) != local.end();
    if (model == nullptr && may_go && is_here) {
      model = config->here();
    }
    if (model == nullptr) {
      request.key_use = std::move(use);
      return std::nullopt;
    }
    if (!is_plain_path(request.path)) {
      throw ApiError(404, "not_found_error", fmt::format("there is no route {}", request.path));
    }
    std::vector<std::string> models{model->name};
    models.insert(models.end(), model->fallbacks.begin(), model->fallbacks.end());
    return impl_->forward(
        {std::move(request), std::move(body), config, std::move(models), model, std::move(use)});
  } catch (const gateway::Refused& refused) {
    throw refusal(refused);
  }
}

}  // namespace quince::server
