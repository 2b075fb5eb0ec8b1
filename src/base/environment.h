// Folders of the user, as the environment names them.
#pragma once

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace quince {

// Nothing when the variable is not set, or empty.
inline std::optional<std::filesystem::path> environment_path(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::filesystem::path(value);
}

// As Python's expanduser finds it for the hub's own programs.
inline std::filesystem::path home_folder() {
  if (const auto home = environment_path("HOME")) {
    return *home;
  }
  const passwd* user = getpwuid(getuid());
  return user != nullptr && user->pw_dir != nullptr && *user->pw_dir != '\0' ? user->pw_dir : ".";
}

}  // namespace quince
