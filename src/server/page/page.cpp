#include "server/page/page.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "server/embedded.h"
#include "server/errors.h"
#include "server/routes.h"

namespace quince::server {

namespace {

// Scripts and styles come from here only, and nothing is ever made of a text.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

constexpr std::string_view kScript = "text/javascript; charset=utf-8";

// FNV-1a of 64 bits: files that differ have other tags.
uint64_t hash_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// "W/" or not: the bytes are the same anyway.
bool names_tag(std::string_view list, std::string_view tag) {
  return list == "*" || list.find(tag) != std::string_view::npos;
}

Response give(const RouteCall& call, std::string_view name) {
  const auto files = page_files();
  const auto file = std::find_if(
      files.begin(), files.end(), [&](const PageFile& row) { return row.name == name; });
  if (!call.app.options().page || file == files.end()) {
    throw ApiError(
        404,
        "not_found_error",
        call.app.options().page ? fmt::format("the page has no file '{}'", name)
                                : "the page is switched off (--no-page)");
  }
  Response response;
  response.content_type = file->content_type;
  const std::string tag = fmt::format("\"{:016x}\"", hash_of(file->bytes));
  response.headers = {
      {"ETag", tag},
      {"Cache-Control", "no-cache"},  // ask whether the tag is still right
      {"Content-Security-Policy", std::string(kPolicy)},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"}};
  if (names_tag(call.request.header("If-None-Match"), tag)) {
    response.status = 304;
  } else {
    response.body = file->bytes;
  }
  return response;
}

}  // namespace

std::span<const PageFile> page_files() {
  static constexpr std::array<PageFile, 6> kFiles{{
      {"index.html", "text/html; charset=utf-8", embedded::index_html},
      {"style.css", "text/css; charset=utf-8", embedded::style_css},
      {"icon.svg", "image/svg+xml", embedded::icon_svg},
      {"chat.js", kScript, embedded::chat_js},
      {"api.js", kScript, embedded::api_js},
      {"markdown.js", kScript, embedded::markdown_js},
  }};
  return kFiles;
}

Response page(const RouteCall& call) {
  return give(call, "index.html");
}

Response page_file(const RouteCall& call) {
  return give(call, call.argument);
}

}  // namespace quince::server
