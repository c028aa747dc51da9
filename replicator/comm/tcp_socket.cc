#include "replicator/comm/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace replicant::comm {
namespace {

constexpr int kBacklog = 1024;

[[noreturn]] void Fail(const std::string& what, int error_number) {
  throw CommError(
      fmt::format("tcp: {}: {}", what, std::strerror(error_number)));
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList Resolve(const TcpAddress& address, bool is_to_listen) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = is_to_listen ? AI_PASSIVE : 0;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                    &hints, &list);
  if (error != 0) {
    throw CommError(
        fmt::format("tcp: {}: {}", address.ToString(), ::gai_strerror(error)));
  }
  return {list, &::freeaddrinfo};
}

int MakeSocket(const addrinfo& info) {
  const int fd =
      ::socket(info.ai_family, info.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
               info.ai_protocol);
  if (fd < 0) Fail("socket", errno);
  return fd;
}

// Waits until `events` hold; false at the deadline.
bool Await(int fd, short events, Clock::TimePoint deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - Clock::Real().Now());
    if (left.count() <= 0) return false;
    pollfd item{fd, events, 0};
    // in steps that fit poll()
    const int result = ::poll(
        &item, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (result > 0) return true;
    if (result < 0 && errno != EINTR) Fail("poll", errno);
  }
}

TcpAddress ToAddress(const sockaddr& storage, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  ::getnameinfo(&storage, size, host.data(), host.size(), port.data(),
                port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  TcpAddress address{.host = host.data()};
  std::from_chars(port.data(), port.data() + std::strlen(port.data()),
                  address.port);
  return address;
}

void SetOption(int fd, int level, int name, int value) {
  if (::setsockopt(fd, level, name, &value, sizeof(value)) != 0) {
    Fail("setsockopt", errno);
  }
}

}  // namespace

TcpAddress TcpAddress::Parse(const std::string& text) {
  constexpr std::string_view kScheme = "tcp://";
  TcpAddress address;
  const size_t colon = text.rfind(':');
  bool is_good = text.starts_with(kScheme) && colon > kScheme.size() &&
                 colon != std::string::npos;
  if (is_good) {
    address.host = text.substr(kScheme.size(), colon - kScheme.size());
    // "[::1]"
    if (address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
    const char* const end = text.data() + text.size();
    const auto parsed =
        std::from_chars(text.data() + colon + 1, end, address.port);
    is_good = parsed.ec == std::errc() && parsed.ptr == end &&
              address.port > 0 && !address.host.empty();
  }
  if (!is_good) {
    throw ConfigError(
        fmt::format("'{}' is not an address; allowed: tcp://HOST:PORT", text));
  }
  return address;
}

std::string TcpAddress::ToString() const {
  return host.find(':') == std::string::npos
             ? fmt::format("{}:{}", host, port)
             : fmt::format("[{}]:{}", host, port);
}

bool TcpAddress::IsOwnName() const { return host == "127.0.1.1"; }

bool TcpAddress::is_loopback() const {
  return host.starts_with("127.") || host == "::1";
}

TcpSocket::~TcpSocket() {
  if (fd_ >= 0) ::close(fd_);
}

TcpSocket::TcpSocket(TcpSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

TcpSocket& TcpSocket::operator=(TcpSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

TcpSocket TcpSocket::Listen(const TcpAddress& address) {
  AddressList list = Resolve(address, /*is_to_listen=*/true);
  // a name with several addresses, or with one that others do not reach
  if (list->ai_next != nullptr ||
      ToAddress(*list->ai_addr, list->ai_addrlen).IsOwnName()) {
    list =
        Resolve({list->ai_family == AF_INET6 ? "::" : "0.0.0.0", address.port},
                /*is_to_listen=*/true);
  }
  TcpSocket socket(MakeSocket(*list));
  // a port whose last connections are not quite over
  SetOption(socket.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.fd_, list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.fd_, kBacklog) != 0) {
    Fail(fmt::format("listen at {}", address.ToString()), errno);
  }
  return socket;
}

TcpSocket TcpSocket::Connect(const TcpAddress& address,
                             Clock::TimePoint deadline) {
  const AddressList list = Resolve(address, /*is_to_listen=*/false);
  int error = 0;
  // a name may have several addresses
  for (const addrinfo* i = list.get(); i != nullptr; i = i->ai_next) {
    TcpSocket socket(MakeSocket(*i));
    error = ::connect(socket.fd_, i->ai_addr, i->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      if (!Await(socket.fd_, POLLOUT, deadline)) {
        error = ETIMEDOUT;
      } else {
        socklen_t size = sizeof(error);
        ::getsockopt(socket.fd_, SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error != 0) continue;
    // where nobody listens, the system may connect a socket to itself
    if (socket.local().ToString() != socket.remote().ToString()) return socket;
    error = ECONNREFUSED;
  }
  Fail(fmt::format("connect to {}", address.ToString()), error);
}

std::optional<TcpSocket> TcpSocket::Accept(Clock::TimePoint deadline) {
  while (Await(fd_, POLLIN, deadline)) {
    const int fd =
        ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) return TcpSocket(fd);
    // a connection that is already gone is not this side's error
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      Fail("accept", errno);
    }
  }
  return std::nullopt;
}

TcpAddress TcpSocket::local() const {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  ::getsockname(fd_, reinterpret_cast<sockaddr*>(&storage), &size);
  return ToAddress(reinterpret_cast<const sockaddr&>(storage), size);
}

TcpAddress TcpSocket::remote() const {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  ::getpeername(fd_, reinterpret_cast<sockaddr*>(&storage), &size);
  return ToAddress(reinterpret_cast<const sockaddr&>(storage), size);
}

bool TcpSocket::IsClosedByPeer() const {
  char byte = 0;
  const ssize_t got = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void TcpSocket::SendFrame(std::span<const std::byte> bytes,
                          Clock::TimePoint deadline) {
  const auto size = static_cast<uint32_t>(bytes.size());
  std::vector<std::byte> frame(sizeof(size) + bytes.size());
  std::memcpy(frame.data(), &size, sizeof(size));
  std::ranges::copy(bytes, frame.begin() + sizeof(size));
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t n = ::send(fd_, frame.data() + sent, frame.size() - sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      Fail("send", errno);
    } else if (!Await(fd_, POLLOUT, deadline)) {
      Fail("send", ETIMEDOUT);
    }
  }
}

void TcpSocket::ReceiveAll(std::span<std::byte> bytes,
                           Clock::TimePoint deadline) {
  for (size_t got = 0; got < bytes.size();) {
    const ssize_t n =
        ::recv(fd_, bytes.data() + got, bytes.size() - got, MSG_DONTWAIT);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n == 0) {
      throw CommError("tcp: the other side closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      Fail("receive", errno);
    } else if (!Await(fd_, POLLIN, deadline)) {
      Fail("receive", ETIMEDOUT);
    }
  }
}

std::vector<std::byte> TcpSocket::ReceiveFrame(uint32_t max_bytes,
                                               Clock::TimePoint deadline) {
  uint32_t size = 0;
  ReceiveAll(std::as_writable_bytes(std::span(&size, 1)), deadline);
  if (size > max_bytes) {
    throw CommError(
        fmt::format("tcp: a frame of {} bytes, at most {}", size, max_bytes));
  }
  std::vector<std::byte> bytes(size);
  ReceiveAll(bytes, deadline);
  return bytes;
}

void TcpSocket::TuneForMessages(std::chrono::milliseconds silence) {
  SetOption(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
  if (silence.count() == 0) return;
  // with nothing under way, the system asks the other side whether it is there
  constexpr int kNumProbes = 3;
  const auto seconds = static_cast<int>(
      std::chrono::ceil<std::chrono::seconds>(silence / (kNumProbes + 1))
          .count());
  SetOption(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd_, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  SetOption(fd_, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  SetOption(fd_, IPPROTO_TCP, TCP_KEEPCNT, kNumProbes);
  SetOption(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(silence.count()));
}

}  // namespace replicant::comm
