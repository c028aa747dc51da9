#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/rpc/envelope.h"
#include "base/rpc/monitor.h"
#include "base/rpc/socket.h"
#include "base/rpc/wake_queue.h"

namespace replicant::rpc {

struct ClientOptions {
  SocketOptions socket =
      {};  // max_parts and is_immediate are set by the client
  EnvelopeLimits limits = {};
  // Name of this client in the server's log: printable ASCII, at most 128
  // bytes.
  std::string name = "client";
  // Time after which an unanswered idempotent request, or a hello, is sent
  // again.
  Clock::Duration attempt_timeout = std::chrono::seconds(1);
  // Interval of the heartbeats, which do not depend on other traffic.
  Clock::Duration heartbeat_interval = std::chrono::seconds(1);
  // A server that leaves a heartbeat unanswered for longer counts as dead; the
  // client then opens a new connection.
  Clock::Duration server_timeout = std::chrono::seconds(10);
  size_t max_in_flight = 512;
  // Names this run of the client; 0 draws a random one.
  uint64_t sender_id = 0;
  // Called with both session ids when a server of another session answers: the
  // server was restarted and may have lost its state. The callback must not
  // call the client; it should set a flag.
  std::function<void(uint64_t old_session, uint64_t new_session)>
      on_session_change = {};
};

struct CallOptions {
  Clock::Duration timeout = std::chrono::seconds(5);
  // Whether the request may be executed twice, also by a restarted server. Such
  // a request is sent again until a reply comes.
  bool is_idempotent = false;
  // Adds a checksum of the payload.
  bool has_crc = false;
  // Time before it is sent again; 0: the client's. Choose it longer than the
  // service may delay its answer on purpose.
  Clock::Duration attempt_timeout{0};
};

enum class [[nodiscard]] CallResult{
    kOk,
    kTimeout,  // no reply within the timeout
    // The connection broke or the server restarted after the request was sent;
    // it may or may not have been executed. Never for idempotent requests.
    kLost,
    kError,   // the server refused it: see error and error_text
    kClosed,  // the context was shut down
};

struct [[nodiscard]] CallReply {
  CallResult result = CallResult::kOk;
  Message payload;
  ErrorCode error = ErrorCode::kNone;
  std::string error_text;
};

// Counts since the client was made.
struct ClientMetrics {
  uint64_t requests = 0;
  uint64_t replies = 0;       // replies that ended a request, with errors
  uint64_t retries = 0;       // requests sent again
  uint64_t late_replies = 0;  // dropped: their request had ended before
  uint64_t malformed = 0;     // replies that broke the format
  uint64_t hellos = 0;
  uint64_t session_changes = 0;
  uint64_t disconnects = 0;  // broken connections and silent servers
};

// The other end of a Server: a DEALER socket with deadlines, retries and
// reconnection. The rules of the conversation are in docs/rpc.md.
//
//   Client client(context, kReplayProtocol, {.name = "learner"});
//   client.Connect(endpoint);
//   CallReply reply = client.Call(kStatus, {}, {.timeout = 1s});
//
// Several requests may be in flight: Start() them, then Wait() for each or
// WaitAny() for the next one. All work is done inside the calls: a client that
// is not called sends no heartbeat, so call Process() regularly.
//
// Reconnection is automatic (not for inproc). Requests started while the server
// is away wait for it until their timeout. After a reconnection the client says
// hello; on_session_change reports a server of a new session before any request
// goes to it.
//
// Every method that processes messages throws CommError if the server speaks
// another protocol or refuses this client's key, since waiting cannot help. The
// requests remain and end at their timeouts.
//
// Thread-safety: as ZmqSocket, one thread; DetachFromThread() hands it over.
class Client {
 public:
  using RequestId = uint64_t;

  Client(ZmqContext& context, Protocol protocol, ClientOptions options = {});
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Connects in the background and returns at once. Another endpoint than the
  // present one is where the server has moved: idempotent requests under way go
  // there, the others that were sent end with kLost. Throws CommError, with no
  // change, for an endpoint that cannot be parsed.
  void Connect(const std::string& endpoint);

  // Waits until the server has answered the hello. kTimeout if it has not;
  // CommError instead if handshakes failed meanwhile.
  CallResult AwaitSession(Clock::Duration timeout);

  // Sends a request, now or once there is a session. std::nullopt if
  // max_in_flight requests are under way. Throws InvalidArgument for a payload
  // over the limits.
  [[nodiscard]] std::optional<RequestId> Start(uint16_t kind, Message payload,
                                               const CallOptions& options = {});
  // Waits for the reply, at most until the request's timeout. `id` must be one
  // of Start() that has not been waited for (checked).
  CallReply Wait(RequestId id);
  // Whether Wait() would return at once; also false once the context was shut
  // down. `id` as for Wait().
  bool IsDone(RequestId id) const { return pending_.at(id).is_done; }
  // Waits until some request is done, whose reply Wait() then returns at once.
  // std::nullopt after `timeout`, or at once if no request is under way.
  [[nodiscard]] std::optional<RequestId> WaitAny(Clock::Duration timeout);
  // Start() and Wait().
  CallReply Call(uint16_t kind, Message payload,
                 const CallOptions& options = {});

  // Sends a message that has no reply; waits for a session and for room in the
  // queue. kOk says that it was queued, not that it arrived.
  SendResult SendOneWay(uint16_t kind, Message payload,
                        Clock::Duration timeout);

  // Receives, retries and sends heartbeats. Returns after `timeout`, or sooner
  // once something was received.
  void Process(Clock::Duration timeout);

  // Waits until one of `clients`, all of the calling thread, has something to
  // do in Process(0), `wake` is woken from any thread (and clears that), or
  // `timeout` has passed.
  static void AwaitAny(std::span<Client* const> clients, WakeEvent& wake,
                       Clock::Duration timeout);

  void DetachFromThread();

  // 0 until the server has answered the hello, and while it is away.
  uint64_t session_id() const { return session_id_; }
  uint64_t sender_id() const { return options_.sender_id; }
  // Whether the server answers, as far as the client knows.
  bool IsResponsive() const { return session_id_ != 0; }
  const ClientMetrics& metrics() const { return metrics_; }

 private:
  struct Pending {
    uint16_t kind = 0;
    Message payload;
    bool is_idempotent = false;
    bool has_crc = false;
    Clock::Duration attempt_timeout{0};
    Clock::TimePoint deadline;
    Clock::TimePoint retry_at;
    bool is_sent = false;  // and may be answered
    bool is_done = false;
    CallReply reply;
  };

  void CheckPayload(const Message& payload) const;
  // One round of timers, sending, waiting until `end` at most, and receiving.
  void Step(Clock::TimePoint end);
  Clock::TimePoint NextTimer(Clock::TimePoint end) const;

  void RunTimers();
  void RunRequestTimers(Clock::TimePoint now);
  void SendHello(Clock::TimePoint now);
  void SendUnsent();
  // Shares `payload`. Anything but kOk has sent nothing.
  SendResult SendMessage(uint16_t kind, uint32_t flags, uint64_t request_id,
                         Message& payload);

  void ReceiveAll();
  void HandleMessage(Message message);
  void HandleHelloReply(const Header& header);
  void HandleError(const Header& header, ErrorBody error);
  void HandleConnectionEvents();
  void HandleDisconnect();
  // Reconnects if the server has been silent for too long.
  void CheckSilence();

  // Drops the session: the next message must be a hello.
  void LoseSession();
  // Resends idempotent requests and ends the other sent ones with kLost.
  void ResendOrGiveUp();
  void Resend(RequestId id, Pending& pending);
  void Finish(RequestId id, Pending& pending, CallReply reply);
  void Forget(RequestId id);
  void Close();
  static Clock::TimePoint Now() { return Clock::Real().Now(); }

  const Protocol protocol_;
  const ClientOptions options_;
  ZmqSocket socket_;
  SocketMonitor monitor_;
  std::string endpoint_;

  uint64_t session_id_ = 0;
  uint64_t last_session_id_ = 0;  // survives the loss of the session
  RequestId last_request_id_ = 0;
  std::map<RequestId, Pending> pending_;
  // of pending_: to be sent, the oldest first, and not yet returned by
  // WaitAny() or Wait()
  std::set<RequestId> unsent_;
  std::set<RequestId> done_;
  bool is_closed_ = false;
  // there was no connection, or no room in the queue, for the last message
  bool is_send_blocked_ = false;
  // a hello went out on this connection and was not answered yet
  bool is_hello_sent_ = false;
  uint64_t num_received_ = 0;
  // no timer of a pending request fires before this
  Clock::TimePoint next_request_timer_;
  Clock::TimePoint next_hello_;
  Clock::TimePoint next_heartbeat_;
  // the oldest heartbeat since something was received
  std::optional<Clock::TimePoint> heartbeat_sent_at_;
  std::string handshake_failure_;  // the last one since the last success
  HandshakeFailures handshake_failures_;
  ClientMetrics metrics_;
};

}  // namespace replicant::rpc
