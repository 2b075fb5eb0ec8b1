// The gateway in the server: reads quince.toml, and again when it changes; says who may ask; and
// forwards to upstreams what no model here answers. Has one event loop on a thread of its own. Any
// thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gateway/gate.h"
#include "server/http.h"

namespace quince::server {

class GatewayService {
 public:
  struct Options {
    std::filesystem::path config;
    std::vector<std::string> local_models =
        {};  // names of the one that is loaded here, its own first
    std::function<void(const std::string&)> log = [](const std::string&) {};  // lines; any thread
    std::chrono::milliseconds watch{1000};  // how often the file is looked at; 0: never
  };
  // Throws UserError: what is wrong with the file.
  explicit GatewayService(Options options);
  ~GatewayService();  // ends what is under way; the HTTP server ends first
  GatewayService(const GatewayService&) = delete;
  GatewayService& operator=(const GatewayService&) = delete;

  // How the model here answers. On a thread of the service's own; before requests come.
  void set_local(std::function<Response(HttpRequest)> answer);

  // Reads the file again. False: it is no good, which is logged, and all stays as it is.
  bool reload();

  bool has_keys() const;
  std::shared_ptr<const gateway::KeyConfig> identify(std::string_view secret) const;
  // The response of an upstream to come; nothing: the request is for what is here, and is counted
  // on the key (request.key_use). key null: none is needed. Throws ApiError.
  std::optional<Response> take(
      HttpRequest& request, const std::shared_ptr<const gateway::KeyConfig>& key);
  // Models that are answered elsewhere, as this key may ask for them; aliases too.
  std::vector<std::string> models(const gateway::KeyConfig* key) const;
  std::string metrics_text() const;
  gateway::Gate& gate();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quince::server
