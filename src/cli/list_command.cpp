// quince list: the models of the local cache, and the short names.
#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/terminal.h"
#include "weights/hub.h"
#include "weights/model_names.h"

namespace quince::cli {

namespace {

namespace json = boost::json;

struct Alias {
  std::string name;
  std::string target;
  bool here = false;  // its model need not be pulled
};

bool is_here(const std::string& model) {
  try {
    resolve_model(model);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

std::vector<Alias> aliases() {
  std::vector<Alias> list;
  for (const auto& [name, target] : model_aliases()) {
    list.push_back({name, target, is_here(name)});
  }
  return list;
}

json::object to_json(const std::vector<CachedModel>& models, const std::vector<Alias>& aliases) {
  json::array rows;
  for (const CachedModel& model : models) {
    rows.push_back(
        {{"model", model.name},
         {"path", model.path.string()},
         {"container", model.container},
         {"bytes", model.bytes}});
  }
  json::array names;
  for (const Alias& alias : aliases) {
    names.push_back({{"name", alias.name}, {"target", alias.target}, {"here", alias.here}});
  }
  return {
      {"cache", hub_cache_folder().string()},
      {"models", rows},
      {"alias_file", alias_file().string()},
      {"aliases", names}};
}

std::string to_text(const std::vector<CachedModel>& models, const std::vector<Alias>& aliases) {
  std::string out = fmt::format("Models in {}:\n", hub_cache_folder().string());
  size_t width = 0;
  for (const CachedModel& model : models) {
    width = std::max(width, model.name.size());
  }
  for (const CachedModel& model : models) {
    out += fmt::format(
        "  {:<{}}  {:>8}  {}\n", model.name, width, human_bytes(model.bytes), model.container);
  }
  if (models.empty()) {
    out += "  none; quince pull fetches one\n";
  }
  out += fmt::format("\nAliases (yours: lines \"name = model\" in {}):\n", alias_file().string());
  width = 0;
  for (const Alias& alias : aliases) {
    width = std::max(width, alias.name.size());
  }
  for (const Alias& alias : aliases) {
    out += fmt::format(
        "  {:<{}}  {}{}\n", alias.name, width, alias.target, alias.here ? "" : "  (not pulled)");
  }
  return out;
}

}  // namespace

Action add_list(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  FlagGroup output(app, "Output");
  output.on("--json", *as_json, "One JSON object");
  app.footer(
      "HF_HUB_CACHE or HF_HOME moves the folder of models. An alias is a line \"name = model\" in "
      "~/.config/quince/aliases (or $XDG_CONFIG_HOME/quince/aliases); model is a file, a folder, a "
      "repository or another alias.");
  return [as_json] {
    const auto models = cached_models();
    const auto names = aliases();
    std::string text =
        *as_json ? compact_json(to_json(models, names)) + "\n" : to_text(models, names);
    write_stdout(!*as_json && stdout_is_terminal() ? printable(text) : text);
    return 0;
  };
}

}  // namespace quince::cli
