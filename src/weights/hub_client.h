// The network side of a Hugging-Face-compatible hub: what a repository holds, and what its refusals
// mean.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "weights/http.h"
#include "weights/partial_file.h"

namespace quince {

struct HubAccess {
  std::string endpoint;  // "https://huggingface.co", no slash at the end
  std::string token;     // or ""
  int attempts = 3;      // when the hub does not answer or is busy
  std::chrono::milliseconds retry_delay{500};
  // Called several times a second while the hub is waited for; what it throws ends the waiting.
  std::function<void()> check;

  // HF_ENDPOINT and HF_TOKEN. Throws UserError for an endpoint that is no http(s) URL and when
  // HF_HUB_OFFLINE is set.
  static HubAccess from_environment();
};

struct RepoListing {
  std::string commit;
  std::vector<HubFile> files;  // size and hashes may be missing: see complete()
};

// GET /api/models/{repo}/revision/{revision}?blobs=true. Names and ids are checked: nothing the
// server says can lead out of the cache folder.
RepoListing list_repo(
    HttpClient& http, const HubAccess& hub, const std::string& repo, const std::string& revision);

// Asks for what the listing did not tell (size, hash), with HEAD on the file itself.
void complete(
    HttpClient& http,
    const HubAccess& hub,
    const std::string& repo,
    const std::string& commit,
    HubFile& file);

std::string resolve_url(
    const HubAccess& hub,
    const std::string& repo,
    const std::string& commit,
    const std::string& path);

// What an answer that is no success means for the user; what: "the list of its files" or a path.
[[noreturn]] void throw_hub_error(
    const HttpResult& result, const HubAccess& hub, const std::string& repo, std::string_view what);

// Parser of the listing, apart for tests.
RepoListing parse_listing(std::string_view text, std::string_view source);

}  // namespace quince
