// Names of the HTTP library that connections of both kinds use: those of clients and those to
// upstreams. Internal to http_* and upstream/.
#pragma once

#include <chrono>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace boost::beast {}

namespace quince::server {

namespace asio = boost::asio;
namespace beast = boost::beast;

using Executor = asio::io_context::executor_type;
template <typename T>
using Task = asio::awaitable<T, Executor>;
using Timer = asio::basic_waitable_timer<
    std::chrono::steady_clock,
    asio::wait_traits<std::chrono::steady_clock>,
    Executor>;

inline constexpr asio::use_awaitable_t<Executor> kAwait;

// co_await something(to(error)): does not throw.
inline auto to(boost::system::error_code& error) {
  return asio::redirect_error(kAwait, error);
}

}  // namespace quince::server
