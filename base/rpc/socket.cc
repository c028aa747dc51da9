#include "base/rpc/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/rpc/zmq_call.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace replicant::rpc {
namespace {

// libzmq is not instrumented. Without these calls ThreadSanitizer reports a
// race on bytes that one thread sends and another one reads in place.
#if defined(__SANITIZE_THREAD__)
void MarkSent(void* context) { __tsan_release(context); }
void MarkReceived(void* context) { __tsan_acquire(context); }
#else
void MarkSent(void* /*context*/) {}
void MarkReceived(void* /*context*/) {}
#endif

int ZmqType(SocketType type) {
  switch (type) {
    case SocketType::kDealer:
      return ZMQ_DEALER;
    case SocketType::kRouter:
      return ZMQ_ROUTER;
    case SocketType::kXPub:
      return ZMQ_XPUB;
    case SocketType::kSub:
      return ZMQ_SUB;
    case SocketType::kPair:
      return ZMQ_PAIR;
    case SocketType::kRep:
      return ZMQ_REP;
  }
  REPLICANT_CHECK(false, "socket type {}", static_cast<int>(type));
}

// Now plus `timeout`, which is cut so that the sum cannot overflow.
Clock::TimePoint DeadlineAfter(Clock::Duration timeout) {
  return Clock::Real().Now() +
         std::clamp<Clock::Duration>(timeout, std::chrono::seconds(0),
                                     std::chrono::hours(24 * 365));
}

// Waits like zmq_poll, through signals, until `deadline`.
PollResult PollUntil(std::span<zmq_pollitem_t> items,
                     Clock::TimePoint deadline) {
  while (true) {
    // rounded up, so that the last wait does not end early and spin
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - Clock::Real().Now());
    // splits a long wait: the library takes milliseconds as a long
    const int64_t wait_ms = std::clamp<int64_t>(left.count(), 0, 1 << 30);
    const int count =
        zmq_poll(items.data(), static_cast<int>(items.size()), wait_ms);
    if (count > 0) return PollResult::kReady;
    if (count < 0 && zmq_errno() == ETERM) return PollResult::kClosed;
    if (count < 0 && zmq_errno() != EINTR) ZMQ_CALL(count);
    if (count == 0 && Clock::Real().Now() >= deadline) {
      return PollResult::kTimeout;
    }
  }
}

// The library takes a port modulo 65536.
void CheckPort(const std::string& endpoint) {
  if (!endpoint.starts_with("tcp://")) return;
  const std::string_view port =
      std::string_view(endpoint).substr(endpoint.rfind(':') + 1);
  if (port == "*" || port.starts_with("//")) return;
  int number = 0;
  const char* const end = port.data() + port.size();
  const auto [stop, error] = std::from_chars(port.data(), end, number);
  if (error == std::errc() && stop == end && number >= 0 && number <= 65535) {
    return;
  }
  throw CommError(fmt::format(
      "{}: port '{}' is not a whole number in [0, 65535]; hint: * takes a free "
      "port",
      endpoint, port));
}

// The host of "tcp://HOST:PORT"; empty for an endpoint of another form.
std::string HostOf(const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon < kTcp.size()) return "";
  return endpoint.substr(kTcp.size(), colon - kTcp.size());
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// The addresses of a host, those of IPv4 first; null, and why in `problem`, if
// it has none.
AddressList Resolve(const std::string& host, std::string* problem) {
  for (const int family : {AF_INET, AF_INET6}) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
    if (error == 0) return {list, &::freeaddrinfo};
    if (problem->empty()) *problem = ::gai_strerror(error);
  }
  return {nullptr, &::freeaddrinfo};
}

// Whether the library needs IPv6 for the endpoint: a number in brackets, or a
// name that has no address of IPv4.
bool IsIpv6(const std::string& endpoint) {
  const std::string host = HostOf(endpoint);
  if (host.empty() || host == "*") return false;
  if (host[0] == '[') return true;
  std::string problem;
  const AddressList list = Resolve(host, &problem);
  return list != nullptr && list->ai_family == AF_INET6;
}

void CheckKey(const std::string& key, const char* what) {
  if (IsCurveKey(key)) return;
  // the key itself may be secret
  throw InvalidArgument(fmt::format(
      "CURVE: {} key: expected 40 Z85 characters, got {} characters", what,
      key.size()));
}

// Every service beyond loopback has keys.
void CheckMayConnectWithoutKeys(const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  // the library refuses an endpoint of another form
  const bool has_port =
      endpoint.starts_with(kTcp) && endpoint.rfind(':') > kTcp.size();
  if (IsLocalEndpoint(endpoint) || !has_port ||
      endpoint.starts_with("tcp://localhost:")) {
    return;
  }
  throw InvalidArgument(
      fmt::format("connect {}: without CURVE keys only loopback addresses may "
                  "be reached, since every service on another host has keys; "
                  "hint: give this side the keys of the run or of the service",
                  endpoint));
}

}  // namespace

ZmqContext::ZmqContext(int io_threads) : handle_(zmq_ctx_new()) {
  REPLICANT_CHECK(handle_ != nullptr, "zmq_ctx_new: {}",
                  zmq_strerror(zmq_errno()));
  ZMQ_CALL(zmq_ctx_set(handle_, ZMQ_IO_THREADS, io_threads));
}

ZmqContext::~ZmqContext() {
  // the library would wait for ever for the sockets
  REPLICANT_CHECK(num_sockets_ == 0, "{} sockets outlive their context",
                  num_sockets_.load());
  while (zmq_ctx_term(handle_) != 0 && zmq_errno() == EINTR) {
  }
}

void ZmqContext::Shutdown() { ZMQ_CALL(zmq_ctx_shutdown(handle_)); }

ZmqSocket::ZmqSocket(ZmqContext& context, SocketType type,
                     const SocketOptions& options)
    : context_(context),
      type_(type),
      max_parts_(options.max_parts),
      thread_(std::this_thread::get_id()),
      handle_(zmq_socket(context.handle_, ZmqType(type))) {
  ZMQ_CALL(handle_ == nullptr ? -1 : 0);
  try {
    SetOptions(options);
  } catch (...) {
    zmq_close(handle_);
    throw;
  }
  ++context_.num_sockets_;
}

ZmqSocket::~ZmqSocket() {
  zmq_close(handle_);
  if (is_counted_curve_server_) --context_.num_curve_servers_;
  --context_.num_sockets_;
}

void ZmqSocket::DetachFromThread() {
  CheckThread();
  thread_ = std::thread::id();
}

void ZmqSocket::CheckThread() {
  const std::thread::id caller = std::this_thread::get_id();
  if (thread_ == caller) [[likely]] {
    return;
  }
  REPLICANT_CHECK(thread_ == std::thread::id(),
                  "a socket is used from a thread that does not own it; hint: "
                  "DetachFromThread()");
  thread_ = caller;
}

void ZmqSocket::SetOption(int option, int value) {
  ZMQ_CALL(zmq_setsockopt(handle_, option, &value, sizeof(value)));
}

void ZmqSocket::SetOption(int option, const std::string& value) {
  ZMQ_CALL(zmq_setsockopt(handle_, option, value.data(), value.size()));
}

void ZmqSocket::SetOptions(const SocketOptions& options) {
  SetOption(ZMQ_SNDHWM, options.send_queue_messages);
  SetOption(ZMQ_RCVHWM, options.receive_queue_messages);
  SetOption(ZMQ_LINGER, options.linger_ms);
  SetOption(ZMQ_RECONNECT_IVL, options.reconnect_ms);
  SetOption(ZMQ_RECONNECT_IVL_MAX, options.reconnect_max_ms);
  SetOption(ZMQ_IMMEDIATE, options.is_immediate ? 1 : 0);
  SetOption(ZMQ_HANDSHAKE_IVL, options.handshake_ms);
  SetOption(ZMQ_TCP_KEEPALIVE, 1);
  SetOption(ZMQ_TCP_KEEPALIVE_CNT, 3);
  SetOption(ZMQ_TCP_KEEPALIVE_IDLE, options.tcp_keepalive_idle_s);
  SetOption(ZMQ_TCP_KEEPALIVE_INTVL, options.tcp_keepalive_interval_s);
  ZMQ_CALL(zmq_setsockopt(handle_, ZMQ_MAXMSGSIZE, &options.max_part_bytes,
                          sizeof(options.max_part_bytes)));
  if (type_ == SocketType::kRouter) {
    SetOption(ZMQ_ROUTER_MANDATORY, 1);
    SetOption(ZMQ_TCP_MAXRT, options.unread_timeout_s * 1000);
  }
  if (type_ == SocketType::kXPub) SetOption(ZMQ_XPUB_VERBOSE, 1);
  SetCurve(options.curve);
}

void ZmqSocket::SetCurve(const CurveRole& role) {
  if (const auto* server = std::get_if<CurveServer>(&role)) {
    CheckKey(server->keys.secret_key, "secret");
    SetOption(ZMQ_CURVE_SERVER, 1);
    SetOption(ZMQ_CURVE_SECRETKEY, server->keys.secret_key);
    SetOption(ZMQ_ZAP_DOMAIN, std::string("replicant"));
    is_curve_server_ = true;
  } else if (const auto* client = std::get_if<CurveClient>(&role)) {
    CheckKey(client->keys.public_key, "public");
    CheckKey(client->keys.secret_key, "secret");
    CheckKey(client->server_public_key, "server's public");
    SetOption(ZMQ_CURVE_PUBLICKEY, client->keys.public_key);
    SetOption(ZMQ_CURVE_SECRETKEY, client->keys.secret_key);
    SetOption(ZMQ_CURVE_SERVERKEY, client->server_public_key);
    is_curve_client_ = true;
  }
}

void ZmqSocket::CheckMayBind(const std::string& endpoint) const {
  if (!is_curve_server_ && !IsLocalEndpoint(endpoint)) {
    throw InvalidArgument(fmt::format(
        "bind {}: without CURVE keys only loopback addresses may be bound, "
        "since anyone who reaches the port could use the service; hint: give "
        "the service keys, or bind tcp://127.0.0.1:*",
        endpoint));
  }
  if (is_curve_server_ && !context_.has_zap_handler_) {
    throw InvalidArgument(fmt::format(
        "bind {}: CURVE without a ZapHandler would let every client in; hint: "
        "make the ZapHandler first",
        endpoint));
  }
}

void ZmqSocket::LockPath(const std::string& endpoint) {
  constexpr std::string_view kIpc = "ipc://";
  if (!endpoint.starts_with(kIpc)) return;
  const std::string path = endpoint.substr(kIpc.size());
  // "@name" is not a file, and the system refuses a second owner; "*" is new
  if (path.empty() || path == "*" || path.front() == '@') return;
  try {
    path_locks_.emplace_back(path + ".lock", "bind " + endpoint);
  } catch (const IoError& e) {
    throw CommError(e.what());
  }
}

std::string ZmqSocket::Bind(const std::string& endpoint) {
  CheckThread();
  // libzmq takes a name for an interface's
  const std::string number = NumericEndpoint(endpoint);
  CheckMayBind(endpoint);
  CheckPort(endpoint);
  LockPath(endpoint);
  if (IsIpv6(number)) SetOption(ZMQ_IPV6, 1);
  if (zmq_bind(handle_, number.c_str()) != 0) {
    const int error = zmq_errno();
    throw CommError(fmt::format(
        "bind {}: {}{}", endpoint, zmq_strerror(error),
        error == EADDRINUSE ? "; hint: another process listens there; choose "
                              "another address"
                            : ""));
  }
  if (is_curve_server_ && !std::exchange(is_counted_curve_server_, true)) {
    ++context_.num_curve_servers_;
  }
  std::array<char, 1024> bound{};
  size_t size = bound.size();
  ZMQ_CALL(zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, bound.data(), &size));
  return bound.data();
}

void ZmqSocket::Connect(const std::string& endpoint) {
  CheckThread();
  CheckPort(endpoint);
  if (!is_curve_client_) CheckMayConnectWithoutKeys(endpoint);
  if (IsIpv6(endpoint)) SetOption(ZMQ_IPV6, 1);
  if (zmq_connect(handle_, endpoint.c_str()) != 0) {
    throw CommError(
        fmt::format("connect {}: {}", endpoint, zmq_strerror(zmq_errno())));
  }
}

void ZmqSocket::Disconnect(const std::string& endpoint) {
  CheckThread();
  ZMQ_CALL(zmq_disconnect(handle_, endpoint.c_str()));
}

void ZmqSocket::Subscribe(std::string_view prefix) {
  CheckThread();
  SetOption(ZMQ_SUBSCRIBE, std::string(prefix));
}

PollResult ZmqSocket::WaitFor(short events, Clock::TimePoint deadline) {
  zmq_pollitem_t item{handle_, 0, events, 0};
  return PollUntil({&item, 1}, deadline);
}

SendResult ZmqSocket::Send(Message& message, Clock::Duration timeout) {
  CheckThread();
  REPLICANT_CHECK(!message.empty(), "a message needs a part");
  REPLICANT_CHECK(type_ != SocketType::kRouter || timeout.count() == 0,
                  "a ROUTER must not wait for one peer");
  MarkSent(context_.handle_);
  const Clock::TimePoint deadline = DeadlineAfter(timeout);
  const int flags = ZMQ_DONTWAIT | (message.size() > 1 ? ZMQ_SNDMORE : 0);
  auto* first = reinterpret_cast<zmq_msg_t*>(message[0].storage_);
  // the first part decides whether the message goes
  while (zmq_msg_send(first, handle_, flags) < 0) {
    switch (zmq_errno()) {
      case EINTR:
        continue;
      case ETERM:
        return SendResult::kClosed;
      case EHOSTUNREACH:
        return SendResult::kUnroutable;
      case EAGAIN:
        break;
      default:
        ZMQ_CALL(-1);
    }
    if (timeout.count() <= 0) return SendResult::kTimeout;
    const PollResult result = WaitFor(ZMQ_POLLOUT, deadline);
    if (result == PollResult::kTimeout) return SendResult::kTimeout;
    if (result == PollResult::kClosed) return SendResult::kClosed;
  }
  return SendRest(message);
}

SendResult ZmqSocket::SendRest(Message& message) {
  SendResult result = SendResult::kOk;
  for (size_t i = 1; i < message.size();) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < message.size() ? ZMQ_SNDMORE : 0);
    auto* part = reinterpret_cast<zmq_msg_t*>(message[i].storage_);
    if (zmq_msg_send(part, handle_, flags) < 0) {
      const int error = zmq_errno();
      if (error == EINTR) continue;
      if (error == ETERM) return SendResult::kClosed;
      if (error != EAGAIN && error != EHOSTUNREACH) ZMQ_CALL(-1);
      // the connection broke. The library drops the remaining parts but must
      // still receive them, or they would start a new message
      result = SendResult::kUnroutable;
    }
    ++i;
  }
  message.clear();
  return result;
}

ReceiveResult ZmqSocket::Receive(Message* message, Clock::Duration timeout) {
  CheckThread();
  const Clock::TimePoint deadline = DeadlineAfter(timeout);
  message->clear();
  ReceiveResult result = ReceiveResult::kOk;
  bool has_more = true;
  while (has_more) {
    Frame frame;
    auto* part = reinterpret_cast<zmq_msg_t*>(frame.storage_);
    if (zmq_msg_recv(part, handle_, ZMQ_DONTWAIT) < 0) {
      const int error = zmq_errno();
      if (error == EINTR) continue;
      if (error == ETERM) return ReceiveResult::kClosed;
      if (error != EAGAIN) ZMQ_CALL(-1);
      // parts come all together, so this is before the first one
      if (timeout.count() <= 0) return ReceiveResult::kTimeout;
      const PollResult waited = WaitFor(ZMQ_POLLIN, deadline);
      if (waited == PollResult::kTimeout) return ReceiveResult::kTimeout;
      if (waited == PollResult::kClosed) return ReceiveResult::kClosed;
      continue;
    }
    has_more = zmq_msg_more(part) != 0;
    if (message->size() < static_cast<size_t>(max_parts_)) {
      message->push_back(std::move(frame));
    } else {
      result = ReceiveResult::kTooManyParts;
    }
  }
  MarkReceived(context_.handle_);
  return result;
}

PollResult Poll(std::span<PollItem> items, Clock::Duration timeout) {
  std::array<zmq_pollitem_t, 8> few{};
  std::vector<zmq_pollitem_t> many;
  if (items.size() > few.size()) many.resize(items.size());
  const std::span<zmq_pollitem_t> polled =
      many.empty() ? std::span(few).first(items.size()) : std::span(many);
  for (size_t i = 0; i < items.size(); ++i) {
    const int events = ZMQ_POLLIN | (items[i].wants_send ? ZMQ_POLLOUT : 0);
    polled[i].events = static_cast<short>(events);
    polled[i].fd = items[i].fd;
    if (items[i].socket == nullptr) continue;
    items[i].socket->CheckThread();
    polled[i].socket = items[i].socket->handle_;
  }
  const PollResult result = PollUntil(polled, DeadlineAfter(timeout));
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].can_receive = (polled[i].revents & ZMQ_POLLIN) != 0;
    items[i].can_send = (polled[i].revents & ZMQ_POLLOUT) != 0;
  }
  return result;
}

bool IsLocalEndpoint(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  if (endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://")) {
    return true;
  }
  if (!endpoint.starts_with(kTcp)) return false;
  endpoint.remove_prefix(kTcp.size());
  // "host:port"; an IPv6 host is in brackets
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string_view::npos) return false;
  const std::string host(endpoint.substr(0, colon));
  if (host == "[::1]") return true;
  // names are not trusted: the host decides what they resolve to
  in_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 &&
         (ntohl(address.s_addr) >> 24) == 127;
}

std::string NumericEndpoint(const std::string& endpoint) {
  const std::string host = HostOf(endpoint);
  // "*", and numbers in brackets
  if (host.empty() || host == "*" || host[0] == '[') return endpoint;
  std::string problem;
  const AddressList list = Resolve(host, &problem);
  if (list == nullptr) {
    throw CommError(fmt::format("{}: {}: {}", endpoint, host, problem));
  }
  std::array<char, NI_MAXHOST> number{};
  if (const int error =
          ::getnameinfo(list->ai_addr, list->ai_addrlen, number.data(),
                        number.size(), nullptr, 0, NI_NUMERICHOST);
      error != 0) {
    throw CommError(fmt::format("{}: {}", endpoint, ::gai_strerror(error)));
  }
  constexpr std::string_view kOwnName = "127.0.1.1";
  if (number.data() == kOwnName && host != kOwnName) {
    throw ConfigError(fmt::format(
        "{}: /etc/hosts gives {} the address 127.0.1.1, at which other hosts "
        "do not reach it; hint: the number of a network interface",
        endpoint, host));
  }
  const std::string address = list->ai_family == AF_INET6
                                  ? fmt::format("[{}]", number.data())
                                  : std::string(number.data());
  return fmt::format("tcp://{}{}", address,
                     endpoint.substr(endpoint.rfind(':')));
}

}  // namespace replicant::rpc
