#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file_lock.h"
#include "base/rpc/curve.h"
#include "base/rpc/frame.h"

namespace replicant::rpc {

// The I/O threads that carry the messages of this process's sockets.
//
// Every socket must be destroyed before its context (checked). The destructor
// waits until what was sent is delivered, each socket at most its linger time.
//
// Thread-safety: all methods may be called from any thread.
class ZmqContext {
 public:
  // More than one I/O thread pays only for many busy connections. Throws
  // CommError.
  explicit ZmqContext(int io_threads = 1);
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  // Makes every waiting and every later call on the sockets return kClosed.
  void Shutdown();

 private:
  friend class SocketMonitor;
  friend class ZapHandler;
  friend class ZmqSocket;

  void* handle_ = nullptr;
  std::atomic<int> num_sockets_{0};
  // bound sockets whose clients the ZAP handler admits
  std::atomic<int> num_curve_servers_{0};
  std::atomic<bool> has_zap_handler_{false};
  // numbers the addresses of the monitors
  std::atomic<int> num_monitors_{0};
};

enum class SocketType { kDealer, kRouter, kXPub, kSub, kPair, kRep };

// Every option that is not the library's default is set from here. A ROUTER
// always has MANDATORY (an unknown address is an outcome, not silence), an
// XPUB always passes repeated subscriptions up (VERBOSE).
struct SocketOptions {
  // Messages queued per connection and direction before Send() reports a full
  // queue, or the peer's does.
  int send_queue_messages = 1000;
  int receive_queue_messages = 1000;
  // A peer that sends a longer part is disconnected by the I/O thread before
  // memory is allocated. Does not hold for inproc.
  int64_t max_part_bytes = int64_t{256} << 20;
  // A message of more parts is cut to this many and reported as kTooManyParts.
  int max_parts = 1026;
  // Time for unsent messages when the socket is closed.
  int linger_ms = 200;
  // Connect: first and longest pause between attempts; it doubles from one to
  // the other.
  int reconnect_ms = 50;
  int reconnect_max_ms = 2000;
  // Connect: drop messages, rather than queue them, while not connected;
  // Send() then waits for a connection.
  bool is_immediate = false;
  // Time for a peer to finish the handshake, encryption included.
  int handshake_ms = 5000;
  // TCP keepalive: the first probe after `idle` seconds of silence, then one
  // every `interval`; the connection is lost after 3 unanswered probes. Probes
  // detect a lost host or network while no data is unacknowledged.
  // ZMTP pings stay off: libzmq 4.3.4 aborts the process if a peer leaves while
  // the queue from it is full and a ping is due, and disconnects peers whose
  // queue stays full.
  int tcp_keepalive_idle_s = 5;
  int tcp_keepalive_interval_s = 2;
  // ROUTER: a TCP connection is lost, and the data that waits for its peer
  // dropped, once the peer has read or acknowledged none of that data for so
  // many seconds (TCP_USER_TIMEOUT).
  int unread_timeout_s = 60;
  CurveRole curve = {};
};

enum class [[nodiscard]] SendResult{
    kOk,
    // The queue stayed full, or there was no connection, for the whole timeout;
    // the message is unchanged.
    kTimeout,
    // ROUTER: no peer has this address; the message is unchanged. DEALER: the
    // connection broke between two parts; the message is lost and empty.
    kUnroutable,
    // The context was shut down.
    kClosed,
};

enum class [[nodiscard]] ReceiveResult{
    kOk,
    kTimeout,
    kClosed,
    // The message had more than max_parts parts; the first ones are returned.
    kTooManyParts,
};

enum class [[nodiscard]] PollResult{kReady, kTimeout, kClosed};

// A ZeroMQ socket.
//
// Thread-safety: a socket belongs to the thread that made it (checked on every
// call). To hand it over, call DetachFromThread() on that thread and pass the
// socket on with synchronisation (a thread start, a mutex); the first thread
// that uses it then owns it. The destructor may run on any thread.
//
// A call interrupted by a signal continues until its deadline. Timeouts are in
// real time; 0 does not wait.
class ZmqSocket {
 public:
  // Throws InvalidArgument for a key of the wrong form, CommError if the
  // library refuses.
  ZmqSocket(ZmqContext& context, SocketType type,
            const SocketOptions& options = {});
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  void DetachFromThread();

  // Listens, and returns the endpoint with the port that was taken:
  // "tcp://127.0.0.1:*" chooses a free one. Also "ipc://path" and
  // "inproc://name".
  //
  // Throws InvalidArgument for a TCP address other than a loopback number
  // (127.x.x.x or [::1]) without the CURVE server role, or with it but
  // without a ZapHandler on the context; CommError if the address is in use or
  // not of this host. An ipc path is in use while a process holds the lock
  // "path.lock".
  std::string Bind(const std::string& endpoint);

  // Connects in the background and retries while the peer is away. Throws
  // CommError for an endpoint that cannot be parsed, and InvalidArgument for a
  // TCP address other than loopback without the CURVE client role: no service
  // listens there without keys.
  void Connect(const std::string& endpoint);
  // Ends the connection of Connect(), dropping what is queued for it.
  void Disconnect(const std::string& endpoint);

  // SUB: begins the subscription to messages that begin with `prefix`.
  void Subscribe(std::string_view prefix);

  // Sends all parts as one message. kOk leaves `message` empty. For a ROUTER
  // the first part is the address, and a timeout other than 0 is not allowed
  // (checked): one peer's full queue must not hold up the others.
  SendResult Send(Message& message, Clock::Duration timeout);

  // Receives all parts of one message. From a ROUTER the first one is the
  // address of the sender.
  ReceiveResult Receive(Message* message, Clock::Duration timeout);

 private:
  friend class SocketMonitor;
  friend PollResult Poll(std::span<struct PollItem> items,
                         Clock::Duration timeout);

  void CheckThread();
  void SetOption(int option, int value);
  void SetOption(int option, const std::string& value);
  void SetOptions(const SocketOptions& options);
  void SetCurve(const CurveRole& role);
  void CheckMayBind(const std::string& endpoint) const;
  // Takes the lock of an ipc endpoint, as ZeroMQ would silently take over the
  // path of another process. Throws CommError if it is in use.
  void LockPath(const std::string& endpoint);
  // Waits until the socket is ready for `events`, or `deadline`.
  PollResult WaitFor(short events, Clock::TimePoint deadline);
  SendResult SendRest(Message& message);

  ZmqContext& context_;
  // of the ipc paths that are bound
  std::vector<FileLock> path_locks_;
  const SocketType type_;
  const int max_parts_;
  bool is_curve_server_ = false;
  bool is_curve_client_ = false;
  bool is_counted_curve_server_ = false;
  std::thread::id thread_;
  void* handle_ = nullptr;
};

// One thing to wait for: a socket, or else a file descriptor (to be read).
struct PollItem {
  ZmqSocket* socket = nullptr;
  int fd = -1;
  bool wants_send = false;  // sockets: wait until there is room, too
  // Results.
  bool can_receive = false;
  bool can_send = false;
};

// Waits until one of the items is ready.
PollResult Poll(std::span<PollItem> items, Clock::Duration timeout);

// Whether a TCP endpoint names a loopback address by its number; true for
// ipc and inproc, which never leave this host.
bool IsLocalEndpoint(std::string_view endpoint);

// "tcp://HOST:PORT" with the numeric address of the host, as Bind() needs it;
// any other endpoint unchanged. Throws CommError if the name has no address.
std::string NumericEndpoint(const std::string& endpoint);

}  // namespace replicant::rpc
