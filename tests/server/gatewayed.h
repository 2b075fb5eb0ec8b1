// A gateway behind a real socket, in this process, with a configuration that a test writes.
#pragma once

#include <dirent.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gateway/secret.h"
#include "server/app.h"
#include "server/client.h"
#include "server/http.h"
#include "server/upstream/gateway_service.h"

namespace quince::test {

// Open files of this process, sockets among them.
inline int open_files() {
  int count = 0;
  if (DIR* folder = ::opendir("/dev/fd")) {
    while (::readdir(folder) != nullptr) {
      ++count;
    }
    ::closedir(folder);
  }
  return count;
}

class Gatewayed {
 public:
  explicit Gatewayed(
      const std::string& config,
      server::AppOptions options = {},
      const std::shared_ptr<server::ServedModel>& local = nullptr)
      : app(std::move(options)) {
    static std::atomic<int> number = 0;
    path =
        std::filesystem::path(testing::TempDir()) /
        ("quince_gateway_" + std::to_string(::getpid()) + "_" + std::to_string(++number) + ".toml");
    write(config);
    server::GatewayService::Options gateway;
    gateway.config = path;
    gateway.watch = std::chrono::milliseconds(20);
    gateway.log = [this](const std::string& line) {
      const std::scoped_lock lock(mutex_);
      lines_.push_back(line);
    };
    if (local) {
      gateway.local_models = {local->id};
      gateway.local_models.insert(
          gateway.local_models.end(), local->aliases.begin(), local->aliases.end());
      app.set_model(local);
    }
    service.emplace(gateway);
    app.set_gateway(*service, local == nullptr);
    server::HttpOptions http;
    http.port = 0;
    server.emplace(http, app);
    app.count_connections([this] { return server->connections(); });
    server->start();
  }
  ~Gatewayed() {
    server.reset();
    service.reset();
    std::filesystem::remove(path);
  }
  Gatewayed(const Gatewayed&) = delete;
  Gatewayed& operator=(const Gatewayed&) = delete;

  // At once, so that nobody reads half of it.
  void write(const std::string& config) const {
    const std::filesystem::path other = path.string() + ".new";
    std::ofstream(other) << config;
    std::filesystem::rename(other, path);
  }
  Client client() {
    return Client(server->port());
  }
  Answer post(const std::string& path, const std::string& body, const std::string& headers = "") {
    Client c = client();
    c.post(path, body, headers);
    return c.read_answer();
  }
  Answer get(const std::string& path, const std::string& headers = "") {
    Client c = client();
    c.get(path, headers);
    return c.read_answer();
  }
  double metric(const std::string& name, const std::string& headers = "") {
    const std::string text = get("/metrics", headers).body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size() + 2));
  }
  std::vector<std::string> lines() {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

  std::filesystem::path path;
  server::App app;
  std::optional<server::GatewayService> service;
  std::optional<server::HttpServer> server;

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

inline std::string chat(const std::string& model, bool stream = false) {
  return R"({"messages":[{"role":"user","content":"hello"}], "model" : ")" + model + "\"" +
         (stream ? R"(,"stream":true})" : "}");
}

}  // namespace quince::test
