#include "weights/segmented_fetch.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "base/error.h"

namespace quince {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestWait{60};
constexpr uint64_t kSmallSegment = 256 << 10;

struct Segment {
  uint64_t begin = 0;
  uint64_t end = 0;        // one past the last byte
  uint64_t received = 0;   // of this segment, so far
  uint64_t furthest = 0;   // that `received` has been; less than this is no progress
  std::string buffer;      // those not yet on disk
  uint64_t request = 0;    // 0: not running
  std::string direct_url;  // that it goes to; "": to the hub
  bool checked = false;    // the running answer's status and range were looked at
  int failures = 0;        // in a row, without progress between
  Clock::time_point not_before{};

  bool complete() const {
    return received == end - begin;
  }
};

struct Download {
  FetchJob job;
  std::string direct_url;   // behind the hub's redirect
  uint64_t next_begin = 0;  // where the next segment starts
  std::map<uint64_t, Segment>
      segments;  // by begin; the first one is at the end of the file on disk
  bool ranges_refused = false;
  bool began_anew = false;  // because the server has no such range
  bool done = false;

  PartialFile& partial() {
    return *job.partial;
  }
  uint64_t size() const {
    return job.partial->file().size;
  }
};

// "bytes 0-99/1234"
bool range_matches(const std::string* header, uint64_t begin, uint64_t size) {
  if (!header || !header->starts_with("bytes ")) {
    return false;
  }
  const char* at = header->data() + 6;
  const char* end = header->data() + header->size();
  uint64_t first = 0;
  const auto [dash, error] = std::from_chars(at, end, first);
  const size_t slash = header->rfind('/');
  if (error != std::errc() || slash == std::string::npos || first != begin) {
    return false;
  }
  uint64_t total = 0;
  const auto [rest, total_error] = std::from_chars(header->data() + slash + 1, end, total);
  return header->compare(slash + 1, std::string::npos, "*") == 0 ||
         (total_error == std::errc() && rest == end && total == size);
}

class Fetcher {
 public:
  Fetcher(HttpClient& http, std::vector<FetchJob> jobs, const FetchOptions& options)
      : http_(http), options_(options) {
    for (FetchJob& job : jobs) {
      auto download = std::make_unique<Download>();
      download->job = std::move(job);
      download->next_begin = download->partial().written();
      downloads_.push_back(std::move(download));
    }
  }
  ~Fetcher() {
    for (const auto& download : downloads_) {
      stop_requests(*download);
    }
  }

  void run() {
    for (const auto& download : downloads_) {
      finish_if_complete(*download);
    }
    while (!std::all_of(downloads_.begin(), downloads_.end(), [](auto& d) { return d->done; })) {
      schedule();
      http_.poll(std::chrono::milliseconds(100));
      report();
    }
    last_report_ = {};
    report();
  }

 private:
  void schedule() {
    int running = 0;
    for (const auto& download : downloads_) {
      for (const auto& [begin, segment] : download->segments) {
        running += segment.request != 0;
      }
    }
    const auto now = Clock::now();
    for (const auto& download : downloads_) {
      if (download->done) {
        continue;
      }
      open_segments(*download);
      for (auto& [begin, segment] : download->segments) {
        if (running >= options_.connections) {
          return;
        }
        if (segment.request == 0 && !segment.complete() && segment.not_before <= now) {
          request(*download, segment);
          ++running;
        }
      }
    }
  }

  // What one connection brings in a second. Only what lies in one piece outlives an interruption:
  // with large segments a slow line would lose minutes of it.
  uint64_t segment_bytes() const {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const double rate = seconds > 0 ? static_cast<double>(received_) / seconds : 0;
    return std::min(
        options_.segment_bytes,
        std::max(kSmallSegment, static_cast<uint64_t>(rate / options_.connections)));
  }

  // Keeps up to 2 * connections segments of a file open: that bounds the memory.
  void open_segments(Download& d) {
    const size_t limit = d.ranges_refused ? 1 : static_cast<size_t>(options_.connections) * 2;
    while (d.next_begin < d.size() && d.segments.size() < limit) {
      Segment segment;
      segment.begin = d.next_begin;
      segment.end =
          d.ranges_refused ? d.size() : std::min(d.size(), d.next_begin + segment_bytes());
      d.next_begin = segment.end;
      d.segments.emplace(segment.begin, std::move(segment));
    }
  }

  void request(Download& d, Segment& segment) {
    const bool direct = !d.direct_url.empty();
    segment.direct_url = d.direct_url;
    HttpRequest request;
    request.url = direct ? d.direct_url : d.job.url;
    request.token = direct ? "" : options_.token;
    const bool whole = segment.begin == 0 && segment.end == d.size() && segment.received == 0;
    if (!whole && !d.ranges_refused) {
      request.range_begin = segment.begin + segment.received;
      request.range_end = segment.end - 1;
    } else if (segment.received > 0) {
      // Only whole files are to be had here: from the start again.
      restart(d, segment);
    }
    segment.checked = false;
    const uint64_t begin = segment.begin;
    request.on_body = [this, &d, begin](std::span<const std::byte> bytes, const HttpHead& head) {
      return receive(d, begin, bytes, head);
    };
    segment.request = http_.start(std::move(request), [this, &d, begin](HttpResult result) {
      ended(d, begin, std::move(result));
    });
  }

  void restart(Download& d, Segment& segment) {
    d.partial().restart();
    segment.received = 0;
    segment.buffer.clear();
  }

  void stop_requests(Download& d) {
    for (auto& [begin, segment] : d.segments) {
      if (segment.request != 0) {
        http_.cancel(segment.request);
        segment.request = 0;
      }
    }
  }

  // Looks at the head of an answer: is its body what was asked for?
  void check_head(Download& d, Segment& segment, const HttpHead& head) {
    segment.checked = true;
    if (head.status == 206) {
      if (!range_matches(
              head.header("content-range"), segment.begin + segment.received, d.size())) {
        throw UserError(
            "{}: the server sends another range than asked for, or the file has changed (want {} "
            "bytes): pull again",
            d.partial().file().path,
            d.size());
      }
      return;
    }
    const bool asked_for_whole = segment.begin == 0 && segment.end == d.size();
    if (asked_for_whole && segment.received == 0) {
      return;
    }
    // 200: the server ignores ranges and sends the file from its beginning. This answer becomes the
    // only one.
    const uint64_t request = segment.request;
    segment.request = 0;
    stop_requests(d);
    Segment all;
    all.end = d.size();
    all.request = request;
    all.checked = true;
    d.segments.clear();
    d.ranges_refused = true;
    d.next_begin = d.size();
    d.partial().restart();
    d.segments.emplace(0, std::move(all));
  }

  // The segment that a running request fills. After ranges were refused it is the one at 0.
  Segment* segment_of(Download& d, uint64_t begin) {
    auto at = d.segments.find(begin);
    if (d.ranges_refused) {
      at = d.segments.find(0);
    }
    return at == d.segments.end() ? nullptr : &at->second;
  }

  bool receive(
      Download& d, uint64_t begin, std::span<const std::byte> bytes, const HttpHead& head) {
    Segment* segment = segment_of(d, begin);
    if (!segment) {
      return false;
    }
    if (!segment->checked) {
      check_head(d, *segment, head);
      segment = segment_of(d, begin);
      // Behind the hub lies a store with signed addresses: later ranges go there at once.
      if (url_origin(head.url) != url_origin(d.job.url)) {
        d.direct_url = head.url;
      }
    }
    if (bytes.size() > segment->end - segment->begin - segment->received) {
      throw UserError(
          "{}: the server sends more bytes than the {} of the file: pull again",
          d.partial().file().path,
          d.size());
    }
    segment->received += bytes.size();
    received_ += bytes.size();
    if (segment->received > segment->furthest) {
      segment->furthest = segment->received;
      segment->failures = 0;
    }
    if (segment == &d.segments.begin()->second) {
      flush(d, *segment);
      d.partial().append(bytes);
    } else {
      segment->buffer.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return true;
  }

  void flush(Download& d, Segment& segment) {
    if (!segment.buffer.empty()) {
      d.partial().append(std::as_bytes(std::span(segment.buffer)));
      segment.buffer = {};
    }
  }

  void ended(Download& d, uint64_t begin, HttpResult result) {
    Segment* segment = segment_of(d, begin);
    if (!segment) {
      return;
    }
    segment->request = 0;
    if (segment->complete()) {
      advance(d);
      finish_if_complete(d);
      return;
    }
    const bool success = result.failure.empty() && result.head.status / 100 == 2;
    if (success) {
      result.failure = fmt::format(
          "the connection ended after {} of {} bytes",
          segment->received,
          segment->end - segment->begin);
    }
    const int status = result.head.status;
    if (status == 416 && d.partial().written() > 0 && !d.began_anew) {
      // What lies here is no beginning of that file. A second time it is the server's fault.
      d.began_anew = true;
      stop_requests(d);
      d.segments.clear();
      d.partial().restart();
      d.next_begin = 0;
      return;
    }
    if ((status == 401 || status == 403 || status == 404) &&
        url_origin(result.head.url) != url_origin(d.job.url)) {
      // The store's signed address has run out: ask the hub for a new one. Requests that were under
      // way with it fail like this one, maybe after another has brought the new one.
      if (d.direct_url == segment->direct_url) {
        d.direct_url.clear();
      }
    } else if (!result.is_transient()) {
      options_.refuse(result, d.partial().file().path);
      throw std::logic_error("[fetch] refuse() must throw");
    }
    if (++segment->failures >= options_.attempts) {
      options_.refuse(result, d.partial().file().path);
    }
    segment->not_before = Clock::now() + pause(*segment, result);
  }

  std::chrono::milliseconds pause(const Segment& segment, const HttpResult& result) const {
    auto wait = options_.retry_delay * (1 << std::min(segment.failures - 1, 6));
    wait = std::max<std::chrono::milliseconds>(wait, result.retry_after());
    return std::min<std::chrono::milliseconds>(wait, kLongestWait);
  }

  // Complete segments at the front are done with; the next one goes to disk as far as it has come.
  void advance(Download& d) {
    while (!d.segments.empty()) {
      Segment& first = d.segments.begin()->second;
      flush(d, first);
      if (!first.complete() || first.request != 0) {
        return;
      }
      d.segments.erase(d.segments.begin());
    }
  }

  void finish_if_complete(Download& d) {
    if (!d.done && d.segments.empty() && d.partial().written() == d.size()) {
      finished_bytes_ += d.size();
      d.partial().finish();
      d.done = true;
      d.job.partial.reset();
    }
  }

  void report() {
    const auto now = Clock::now();
    if (!options_.progress || now - last_report_ < std::chrono::milliseconds(100)) {
      return;
    }
    last_report_ = now;
    uint64_t received = finished_bytes_;
    std::string path;
    for (const auto& download : downloads_) {
      if (download->done) {
        continue;
      }
      received += download->partial().written();
      for (const auto& [begin, segment] : download->segments) {
        received += segment.buffer.size();
      }
      if (path.empty()) {
        path = download->partial().file().path;
      }
    }
    options_.progress(received, path);
  }

  HttpClient& http_;
  const FetchOptions& options_;
  std::vector<std::unique_ptr<Download>> downloads_;
  uint64_t finished_bytes_ = 0;
  uint64_t received_ = 0;  // by this object
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_report_{};
};

}  // namespace

void fetch_all(HttpClient& http, std::vector<FetchJob> jobs, const FetchOptions& options) {
  Fetcher(http, std::move(jobs), options).run();
}

}  // namespace quince
