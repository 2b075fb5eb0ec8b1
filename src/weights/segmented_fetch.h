// Fetches files over several range requests at once. Ranges arrive in any order, but reach the disk
// in order, so an interrupted file is always a sound beginning.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weights/http.h"
#include "weights/partial_file.h"

namespace quince {

struct FetchOptions {
  int connections = 8;
  uint64_t segment_bytes = 8u << 20;  // of one range request at most; a slow line has smaller ones
  int attempts = 6;
  std::chrono::milliseconds retry_delay{500};
  std::string token;
  // An answer that will not get better by asking again. Must throw.
  std::function<void(const HttpResult&, const std::string& path)> refuse;
  // Called about ten times a second with the bytes received so far (on disk and in memory), and the
  // path of a file in progress.
  std::function<void(uint64_t received, const std::string& path)> progress;
};

struct FetchJob {
  std::unique_ptr<PartialFile> partial;
  std::string url;
};

// Returns when all files are complete and verified. Throws UserError; incomplete files stay.
void fetch_all(HttpClient& http, std::vector<FetchJob> jobs, const FetchOptions& options);

}  // namespace quince
