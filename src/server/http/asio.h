// Boost.Asio 1.74 as this folder uses it: compiled once in asio.cc, coroutines, one thread.
#pragma once

#define BOOST_ASIO_SEPARATE_COMPILATION
#define BOOST_ASIO_NO_DEPRECATED
#if defined(__clang__)  // 1.74 knows the coroutines of GCC and MSVC only
#define BOOST_ASIO_HAS_CO_AWAIT 1
#define BOOST_ASIO_HAS_STD_COROUTINE 1
#endif
#if defined(__SANITIZE_THREAD__)  // which does not know fences; the queue's mutex orders all that matters here
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif

#include <utility>  // awaitable.hpp of 1.74 forgot it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

namespace fathom {

namespace asio = boost::asio;
using boost::system::error_code;

// The io_context's own executor instead of the type-erased default.
using HttpExecutor = asio::io_context::executor_type;
using HttpClock = std::chrono::steady_clock;
using HttpSocket = asio::basic_stream_socket<asio::ip::tcp, HttpExecutor>;
using HttpAcceptor = asio::basic_socket_acceptor<asio::ip::tcp, HttpExecutor>;
using HttpTimer = asio::basic_waitable_timer<HttpClock, asio::wait_traits<HttpClock>, HttpExecutor>;
template <class T>
using HttpTask = asio::awaitable<T, HttpExecutor>;
inline constexpr asio::use_awaitable_t<HttpExecutor> kHttpTask;

}  // namespace fathom
