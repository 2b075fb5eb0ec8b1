#include "cli/key_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cwchar>

namespace quince::cli {

namespace {

constexpr std::array<int, 2> kSignals = {SIGWINCH, SIGCONT};

// A signal handler can reach nothing but statics. Of the living KeyReader.
std::atomic<int> handler_pipe = -1;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void quince_on_terminal_signal(int signal) {
  int saved = errno;
  char byte = static_cast<char>(signal);
  [[maybe_unused]] ssize_t written = write(handler_pipe, &byte, 1);
  errno = saved;
}

// Whether bytes are a whole character now. Bytes that cannot begin one are dropped.
bool take_character(char* bytes, size_t& count, wchar_t& key) {
  mbstate_t state{};
  size_t length = std::mbrtowc(&key, bytes, count, &state);
  if (length == static_cast<size_t>(-2) && count < MB_LEN_MAX) {
    return false;
  }
  if (length == static_cast<size_t>(-1) || length == static_cast<size_t>(-2)) {
    // The last byte may begin the next character, unless it is alone.
    bytes[0] = bytes[count - 1];
    count = count > 1 ? 1 : 0;
    return count > 0 && take_character(bytes, count, key);
  }
  return true;
}

}  // namespace

KeyReader::KeyReader() {
  int ends[2];
  if (pipe(ends) != 0) {
    throw std::runtime_error("cannot make a pipe");
  }
  read_end_ = ends[0];
  write_end_ = ends[1];
  for (int end : ends) {
    fcntl(end, F_SETFD, FD_CLOEXEC);
    fcntl(end, F_SETFL, O_NONBLOCK);
  }
  handler_pipe = write_end_;
  handlers_.emplace(kSignals, quince_on_terminal_signal);
}

KeyReader::~KeyReader() {
  handlers_.reset();
  handler_pipe = -1;
  close(read_end_);
  close(write_end_);
}

void KeyReader::forget() {
  char bytes[64];
  while (::read(read_end_, bytes, sizeof(bytes)) > 0) {
  }
}

KeyReader::Event KeyReader::read(wchar_t& key) {
  char bytes[MB_LEN_MAX];
  size_t count = 0;
  while (true) {
    pollfd wait[2] = {{STDIN_FILENO, POLLIN, 0}, {read_end_, POLLIN, 0}};
    if (poll(wait, 2, -1) < 0) {
      if (errno == EINTR) {
        continue;
      }
      return Event::end;
    }
    char signal = 0;
    if (::read(read_end_, &signal, 1) == 1) {
      return signal == SIGWINCH  ? Event::resized
             : signal == SIGCONT ? Event::continued
                                 : Event::interrupt;
    }
    if (wait[0].revents == 0) {
      continue;
    }
    ssize_t got = ::read(STDIN_FILENO, bytes + count, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
      continue;
    }
    if (got <= 0) {
      return Event::end;
    }
    count++;
    if (take_character(bytes, count, key)) {
      return Event::key;
    }
  }
}

}  // namespace quince::cli
