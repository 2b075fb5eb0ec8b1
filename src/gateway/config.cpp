#include "gateway/config.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include <fmt/ranges.h>
#include <boost/url/parse.hpp>

#include "base/closest.h"
#include "gateway/secret.h"
#include "gateway/toml_reader.h"

namespace quince::gateway {

namespace {

constexpr double kMostSeconds = 86400;
constexpr double kLeastSeconds = 0.001;

void check_name(const TomlReader& reader, const std::string& name) {
  const auto odd = [](unsigned char c) { return c < 33 || c == 127; };
  if (name.empty() || name.size() > 200 || std::any_of(name.begin(), name.end(), odd)) {
    throw reader.error("", "a name is 1 to 200 bytes long, without spaces");
  }
}

KeyConfig read_key(const std::string& name, TomlReader reader) {
  check_name(reader, name);
  KeyConfig key;
  key.name = name;
  reader.text("hash", key.hash);
  reader.integer("concurrency", 0, 1 << 20, key.concurrency);
  reader.integer("rpm", int64_t{0}, int64_t{1} << 40, key.rpm);
  reader.integer("tpm", int64_t{0}, int64_t{1} << 40, key.tpm);
  reader.integer("priority", -100, 100, key.priority);
  reader.texts("models", key.models);
  reader.finish();
  if (key.hash.empty()) {
    throw reader.error("", "has no hash: make a key and its hash with `quince key new {}`", name);
  }
  if (!is_secret_hash(key.hash)) {
    throw reader.error(
        "hash",
        "is no key's hash (sha256:SALT:DIGEST); `quince key hash` makes one of a key that is "
        "there");
  }
  return key;
}

// "https://host:8443/v1" taken apart.
void read_url(const TomlReader& reader, UpstreamConfig& upstream) {
  const auto url = boost::urls::parse_uri(upstream.url);
  const bool web = url && (url->scheme() == "http" || url->scheme() == "https");
  if (!web || url->host().empty() || url->has_query() || url->has_fragment()) {
    throw reader.error(
        "url",
        "is '{}', want the address of an API, such as \"http://10.0.0.2:8000/v1\"",
        upstream.url);
  }
  if (url->has_userinfo()) {
    throw reader.error(
        "url", "has a user or password in it; a key goes into key, key_env or key_file");
  }
  upstream.tls = url->scheme() == "https";
  upstream.host = url->host_address();  // without brackets
  upstream.port = url->has_port() ? url->port_number() : upstream.tls ? 443 : 80;
  upstream.path = std::string(url->encoded_path());
  while (upstream.path.ends_with('/')) {
    upstream.path.pop_back();
  }
  if (upstream.port == 0) {
    throw reader.error("url", "is '{}': its port is not one from 1 to 65535", upstream.url);
  }
}

std::string first_line(const TomlReader& reader, const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line) || line.empty()) {
    throw reader.error("key_file", "is '{}', which cannot be read or is empty", path);
  }
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  return line;
}

void read_upstream_key(TomlReader& reader, UpstreamConfig& upstream) {
  std::string variable;
  std::string file;
  reader.text("key", upstream.key);
  reader.text("key_env", variable);
  reader.text("key_file", file);
  if (!upstream.key.empty() + !variable.empty() + !file.empty() > 1) {
    throw reader.error("", "has more than one of key, key_env and key_file; keep one");
  }
  if (!variable.empty()) {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') {
      throw reader.error("key_env", "is '{}', which is not set in the environment", variable);
    }
    upstream.key = value;
  } else if (!file.empty()) {
    upstream.key = first_line(reader, file);
  }
  const auto odd = [](unsigned char c) { return c < 32 || c > 126; };
  if (std::any_of(upstream.key.begin(), upstream.key.end(), odd)) {
    throw reader.error("", "has a key with characters that a header cannot carry");
  }
}

UpstreamConfig read_upstream(const std::string& name, TomlReader reader) {
  check_name(reader, name);
  UpstreamConfig upstream;
  upstream.name = name;
  reader.text("url", upstream.url);
  read_upstream_key(reader, upstream);
  reader.text("ca_file", upstream.ca_file);
  reader.real("connect_timeout", kLeastSeconds, kMostSeconds, upstream.connect_timeout);
  reader.real("first_byte_timeout", kLeastSeconds, kMostSeconds, upstream.first_byte_timeout);
  reader.real("idle_timeout", kLeastSeconds, kMostSeconds, upstream.idle_timeout);
  reader.real("total_timeout", kLeastSeconds, kMostSeconds, upstream.total_timeout);
  reader.text("health", upstream.health);
  reader.real("health_interval", 0.01, kMostSeconds, upstream.health_interval);
  if (auto breaker = reader.table("breaker")) {
    breaker->integer("failures", 1, 1 << 20, upstream.breaker.failures);
    breaker->real("open", kLeastSeconds, kMostSeconds, upstream.breaker.open);
    upstream.breaker.most_open = std::max(upstream.breaker.most_open, upstream.breaker.open);
    breaker->real("most_open", upstream.breaker.open, kMostSeconds, upstream.breaker.most_open);
    breaker->finish();
  }
  reader.finish();
  if (upstream.url.empty()) {
    throw reader.error("", "has no url: want url = \"http://HOST:PORT/v1\"");
  }
  read_url(reader, upstream);
  const auto odd = [](unsigned char c) { return c < 33 || c > 126; };
  if (!upstream.health.empty() &&
      (upstream.health.front() != '/' ||
       std::any_of(upstream.health.begin(), upstream.health.end(), odd))) {
    throw reader.error("health", "is '{}', want a path such as \"/health\"", upstream.health);
  }
  if (!upstream.ca_file.empty() && !std::ifstream(upstream.ca_file)) {
    throw reader.error("ca_file", "is '{}', which cannot be read", upstream.ca_file);
  }
  return upstream;
}

Target read_target(const TomlReader& model, const toml::node& node) {
  Target target;
  if (const auto name = node.is_string() ? node.value<std::string>() : std::nullopt) {
    target.upstream = *name;
  } else if (const toml::table* table = node.as_table()) {
    TomlReader reader(*table, model.source(), model.called("upstreams."));
    reader.text("name", target.upstream);
    reader.text("model", target.model);
    reader.integer("weight", 1, 1000, target.weight);
    reader.finish();
    if (target.upstream.empty()) {
      throw reader.error("", "one has no name: want {{ name = \"an upstream\" }}");
    }
  } else {
    throw model.error(
        "upstreams", "holds {}, want names of upstreams or tables with a name", shown(node));
  }
  return target;
}

void read_fallback_reasons(TomlReader& reader, ModelConfig& model) {
  if (!reader.has("fallback_on")) {
    reader.find("fallback_on");
    return;
  }
  std::vector<std::string> reasons;
  reader.texts("fallback_on", reasons);
  model.on_error = model.on_context = model.on_latency = false;
  for (const std::string& reason : reasons) {
    bool* to = reason == "error"     ? &model.on_error
               : reason == "context" ? &model.on_context
               : reason == "latency" ? &model.on_latency
                                     : nullptr;
    if (to == nullptr) {
      throw reader.error("fallback_on", "holds '{}', want error, context or latency", reason);
    }
    *to = true;
  }
}

// Of the model that is loaded here: who is asked where it cannot answer.
ModelConfig read_model_here(ModelConfig model, TomlReader& reader) {
  reader.texts("fallbacks", model.fallbacks);
  if (model.fallbacks.empty()) {
    throw reader.error(
        "fallbacks", "want names of models that are asked where this one, loaded here, cannot");
  }
  read_fallback_reasons(reader, model);
  if (reader.has("fallback_on") && model.on_latency) {
    throw reader.error(
        "fallback_on", "holds 'latency', which is for upstreams: want error, context");
  }
  reader.finish();
  return model;
}

ModelConfig read_model(
    const std::string& name, TomlReader reader, const std::vector<std::string>& local) {
  check_name(reader, name);
  ModelConfig model;
  model.name = name;
  if (!local.empty() && name == local.front() && !reader.has("upstreams")) {
    return read_model_here(std::move(model), reader);
  }
  reader.texts("aliases", model.aliases);
  const toml::node* targets = reader.find("upstreams");
  if (targets == nullptr || !targets->is_array() || targets->as_array()->empty()) {
    throw reader.error("upstreams", "want a list of names of upstreams, at least one");
  }
  for (const toml::node& node : *targets->as_array()) {
    model.upstreams.push_back(read_target(reader, node));
  }
  std::string balance = "weighted";
  reader.text("balance", balance);
  if (balance != "weighted" && balance != "least-busy") {
    throw reader.error("balance", "is '{}', want weighted or least-busy", balance);
  }
  model.balance = balance == "weighted" ? Balance::weighted : Balance::least_busy;
  reader.integer("concurrency", 1, 1 << 20, model.concurrency);
  reader.integer("queue", 0, 1 << 20, model.queue);
  reader.real("queue_timeout", kLeastSeconds, kMostSeconds, model.queue_timeout);
  reader.texts("fallbacks", model.fallbacks);
  read_fallback_reasons(reader, model);
  reader.real("latency_limit", 0, kMostSeconds, model.latency_limit);
  reader.finish();
  return model;
}

// Names that stand for one another must be there, and be of one thing only.
class Names {
 public:
  Names(
      Config& config,
      std::optional<TomlReader> models,
      std::optional<TomlReader> keys,
      const std::vector<std::string>& local)
      : config_(config),
        models_(std::move(models)),
        keys_(std::move(keys)),
        local_(local),
        names_(local.begin(), local.end()) {}

  void check() {
    for (const auto& [name, model] : config_.models) {
      if (!model.upstreams.empty()) {
        add(name, *models_->table(name), "");
      }
    }
    for (const auto& [name, model] : config_.models) {
      for (const std::string& alias : model.aliases) {
        add(alias, *models_->table(name), "aliases");
      }
    }
    for (const auto& [name, model] : config_.models) {
      check_targets(model, *models_->table(name));
    }
    for (auto& [name, key] : config_.keys) {
      resolve_models(key, *keys_->table(name));
    }
  }

 private:
  void add(const std::string& name, const TomlReader& reader, std::string_view key) {
    if (!names_.insert(name).second) {
      throw reader.error(key, "'{}' is the name of another model already", name);
    }
  }

  // A key that may use a model may use it by any of its names.
  void resolve_models(KeyConfig& key, const TomlReader& reader) const {
    for (std::string& name : key.models) {
      if (!names_.contains(name)) {
        const auto near = closest(name, {names_.begin(), names_.end()});
        throw reader.error(
            "models",
            "'{}' is no model here{}",
            name,
            near ? fmt::format("; did you mean {}?", *near) : "");
      }
      const ModelConfig* model = config_.model(name);
      name = model != nullptr ? model->name : local_.front();
    }
  }

  void check_targets(const ModelConfig& model, const TomlReader& reader) const {
    for (const Target& target : model.upstreams) {
      if (!config_.upstreams.contains(target.upstream)) {
        throw reader.error(
            "upstreams",
            "'{}' is no upstream: want a table [upstreams.{}] with its url",
            target.upstream,
            target.upstream);
      }
    }
    for (const std::string& fallback : model.fallbacks) {
      if (!names_.contains(fallback) || fallback == model.name) {
        const auto near = closest(fallback, {names_.begin(), names_.end()});
        throw reader.error(
            "fallbacks",
            "'{}' is no other model here{}",
            fallback,
            near && *near != fallback ? fmt::format("; did you mean {}?", *near) : "");
      }
    }
  }

  Config& config_;
  std::optional<TomlReader> models_;  // absent where the text has none
  std::optional<TomlReader> keys_;
  const std::vector<std::string>& local_;
  std::set<std::string> names_;
};

toml::table parsed(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, std::string_view(source));
  } catch (const toml::parse_error& error) {
    throw UserError("{}:{}: not TOML: {}", source, error.source().begin.line, error.description());
  }
}

}  // namespace

bool KeyConfig::may_use(std::string_view model) const {
  return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
}

bool UpstreamConfig::operator==(const UpstreamConfig& other) const {
  return url == other.url && key == other.key && ca_file == other.ca_file;
}

const ModelConfig* Config::model(std::string_view name) const {
  if (const auto found = models.find(name); found != models.end()) {
    return &found->second;
  }
  for (const auto& [id, model] : models) {
    if (std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end()) {
      return &model;
    }
  }
  return nullptr;
}

const ModelConfig* Config::here() const {
  const auto found = std::find_if(models.begin(), models.end(), [](const auto& entry) {
    return entry.second.upstreams.empty();
  });
  return found != models.end() ? &found->second : nullptr;
}

Config parse_config(
    std::string_view text,
    const std::string& source,
    const std::vector<std::string>& local_models) {
  const toml::table table = parsed(text, source);
  TomlReader reader(table, source, "");
  Config config;
  if (auto gateway = reader.table("gateway")) {
    gateway->real("deadline", kLeastSeconds, kMostSeconds, config.deadline);
    gateway->integer("retries", 0, 100, config.retries);
    gateway->real("retry_share", 0, 1, config.retry_share);
    gateway->finish();
  }
  const auto model = [&](const std::string& name, TomlReader one) {
    return read_model(name, std::move(one), local_models);
  };
  const auto each = [&](std::string_view key, const auto& read, auto& to) {
    if (auto tables = reader.table(key)) {
      for (auto& [name, one] : tables->tables()) {
        to.emplace(name, read(name, one));
      }
    }
  };
  each("keys", read_key, config.keys);
  each("upstreams", read_upstream, config.upstreams);
  each("models", model, config.models);
  auto models = reader.table("models");
  auto keys = reader.table("keys");
  reader.finish();
  Names(config, std::move(models), std::move(keys), local_models).check();
  return config;
}

Config read_config(
    const std::filesystem::path& path, const std::vector<std::string>& local_models) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (std::filesystem::is_directory(path, ignored) || !file || !(text << file.rdbuf())) {
    throw UserError("{}: cannot be read, or is empty", path.string());
  }
  return parse_config(text.str(), path.string(), local_models);
}

}  // namespace quince::gateway
