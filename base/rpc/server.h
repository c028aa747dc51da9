#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rpc/envelope.h"
#include "base/rpc/monitor.h"
#include "base/rpc/peers.h"
#include "base/rpc/socket.h"
#include "base/rpc/wake_queue.h"

namespace replicant::rpc {

struct ServerOptions {
  SocketOptions socket = {};  // max_parts follows from limits
  EnvelopeLimits limits = {};
  // A peer that is silent for longer is forgotten and reported.
  Clock::Duration peer_timeout = std::chrono::seconds(10);
  // Interval at which the tick callback runs and deadlines are checked.
  Clock::Duration tick_interval = std::chrono::milliseconds(100);
  // Time after which an unanswered request gets kDeadline.
  Clock::Duration reply_timeout = std::chrono::seconds(60);
  size_t max_peers = 4096;
  // Maximum number of unanswered requests, of all clients and of one; one more
  // gets kBusy. One client's answers fit into its queue.
  size_t max_unanswered = 65536;
  size_t max_unanswered_of_peer = 512;
  // Maximum answers to malformed messages per second; further ones are only
  // counted.
  int64_t max_error_replies_per_s = 100;
  // Logs clients that leave during the handshake: without the right keys, or
  // because their process ends.
  bool names_abandoned_handshakes = true;
  // Names this run of the service; 0 draws a random one.
  uint64_t session_id = 0;
  Clock* clock = &Clock::Real();
};

// A message to a handler.
struct Request {
  uint16_t kind = 0;
  // Unique among the requests of one peer. A request that is sent again after a
  // timeout keeps its id, so (peer_id, request_id) identifies a repetition. No
  // handler sees one while the first is unanswered: the answer then goes to the
  // newest. The requests of a peer that is lost or has expired are forgotten.
  uint64_t request_id = 0;
  uint64_t peer_id = 0;
  std::string_view peer_name;  // valid during the handler
  bool is_one_way = false;     // a reply would not be sent
  Message payload;
};

class Server;

// Answers one request, now or later. Copies stand for the same request; only
// the first answer is sent.
//
// Thread-safety: the loop's thread only (other threads use Server::Post()), and
// only while the server lives.
class Responder {
 public:
  // Both return false and do nothing if the request has an answer already, its
  // deadline included. If the peer is gone or its queue is full, the message is
  // dropped and counted. `has_crc` adds a checksum of the payload.
  bool Reply(Message payload, bool has_crc = false) const;
  bool ReplyError(ErrorCode code, std::string_view text) const;
  // Sets the time at which the loop itself answers with kDeadline.
  void SetDeadline(Clock::TimePoint deadline) const;

 private:
  friend class Server;
  Responder(Server* server, uint64_t token) : server_(server), token_(token) {}

  Server* server_;
  uint64_t token_;
};

// Counts since the server was made.
struct ServerMetrics {
  uint64_t messages_received = 0;
  uint64_t bytes_received = 0;
  uint64_t messages_sent = 0;
  uint64_t bytes_sent = 0;
  uint64_t repeated = 0;            // repetitions of unanswered requests
  uint64_t malformed = 0;           // messages that broke the format
  uint64_t mismatched = 0;          // of another version or message table
  uint64_t unknown_session = 0;     // answered "hello again"
  uint64_t handler_errors = 0;      // exceptions of handlers and posted work
  uint64_t errors_sent = 0;         // error replies of all kinds
  uint64_t errors_withheld = 0;     // over the limit per second, or one-way
  uint64_t dropped_full = 0;        // replies to a peer whose queue was full
  uint64_t dropped_unroutable = 0;  // replies to a peer that is gone
  uint64_t deadlines_missed = 0;    // requests answered with kDeadline
  uint64_t peers_expired = 0;
  uint64_t peers = 0;       // now
  uint64_t unanswered = 0;  // requests waiting now
};

// A service: one loop on a ROUTER socket that hands each message to the
// handler of its kind. The rules of the conversation are in docs/rpc.md.
//
//   Server server(context, kReplayProtocol, options);
//   server.Handle(kSample, [&](Request& request, Responder responder) { ... });
//   const std::string endpoint = server.Bind("tcp://127.0.0.1:*");
//   Thread loop("replay", [&](const auto&) { server.Run(); });
//   ...
//   server.Stop();
//
// No message ends the loop, and the loop never waits for a client. An exception
// of a handler becomes an error reply (MalformedMessage: kMalformed,
// InvalidArgument: kInvalidArgument, any other: kFailed). When a client leaves
// socket.send_queue_messages replies unfetched, further ones are dropped and
// counted.
//
// Thread-safety: Post(), Stop(), metrics() and session_id() may be called from
// any thread; everything else before Run(), or from the loop's own thread.
class Server {
 public:
  // May take the payload out of the request.
  using Handler = std::function<void(Request& request, Responder responder)>;
  // kAtOnce: the handler answers before it returns, so the limits of unanswered
  // requests do not refuse its requests.
  enum class Answers { kLater, kAtOnce };

  Server(ZmqContext& context, Protocol protocol, ServerOptions options = {});
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // `kind` must be in [1, kFirstReservedKind) and have no handler (checked).
  void Handle(uint16_t kind, Handler handler,
              Answers answers = Answers::kLater);
  // Called every tick_interval.
  void OnTick(std::function<void()> callback);
  // Called when a peer has been silent for peer_timeout. A peer that returns
  // says hello again.
  void OnPeerExpired(std::function<void(const Peer&)> callback);

  // Called when an answer cannot be sent because the connection to its peer is
  // gone. A peer that returns says hello again.
  void OnPeerLost(std::function<void(const Peer&)> callback);

  // Sends a heartbeat's answer unasked. A client ignores it, and sending it
  // finds a lost connection, for OnPeerLost(). Called in the loop.
  void Probe(uint64_t peer_id);

  // Called once when the loop ends. Work posted from then on does not run.
  void OnEnd(std::function<void()> callback);

  // As ZmqSocket::Bind(); may be called for several endpoints.
  std::string Bind(const std::string& endpoint);

  // Serves until Stop(), or until the context is shut down; the caller's
  // thread is the loop's. Unanswered requests then get kShuttingDown. Can be
  // called once.
  void Run();
  // Makes Run() return soon. A later Run() returns at once.
  void Stop();
  // Runs `work` in the loop, unless the loop has ended.
  void Post(std::function<void()> work);

  // Counts at the end of the loop's last turn.
  ServerMetrics metrics() const EXCLUDES(metrics_mutex_);
  uint64_t session_id() const { return options_.session_id; }

 private:
  friend class Responder;

  // The destination of an answer.
  struct ReplyTo {
    Frame address;
    uint16_t kind = 0;
    uint64_t request_id = 0;
    uint64_t sender_id = 0;
  };
  struct KindHandler {
    Handler handle;
    Answers answers = Answers::kLater;
  };
  struct Unanswered {
    ReplyTo reply_to;
    bool is_one_way = false;
    Clock::TimePoint deadline;
  };

  void RunLoop();
  // Logs the handshakes that have failed since the last call.
  void LogHandshakes();
  void ReceiveSome();
  void HandleMessage(Message message);
  void HandleEnvelope(Frame address, Envelope envelope);
  void HandleHello(ReplyTo reply_to, const Envelope& envelope);
  void HandleRequest(ReplyTo reply_to, Envelope envelope, const Peer& peer);
  // Why there is no room for one more request of a peer; empty if there is.
  std::string Busy(uint64_t peer_id) const;
  // Forgets the unanswered requests of a peer that came by the connection
  // `address`, all if that is empty, so that the peer may repeat them.
  void ForgetUnanswered(uint64_t peer_id, std::string_view address);
  // Takes a request out of the unanswered ones.
  std::optional<Unanswered> TakeUnanswered(uint64_t token);
  void PublishMetrics() EXCLUDES(metrics_mutex_);
  void RunPosted();
  void RunTick();
  // Runs `call`; an exception is logged and counted.
  void Guard(const char* what, const std::function<void()>& call);

  // Answers a message that breaks the rules, within the limit per second.
  void Complain(ReplyTo reply_to, ErrorCode code, std::string_view text);
  void SendReply(ReplyTo reply_to, uint32_t flags, Message payload);
  void SendError(ReplyTo reply_to, ErrorCode code, std::string_view text);
  bool Answer(uint64_t token, uint32_t flags, Message payload);
  bool AnswerError(uint64_t token, ErrorCode code, std::string_view text);
  Clock::TimePoint Now() const { return options_.clock->Now(); }

  const Protocol protocol_;
  const ServerOptions options_;
  ZmqSocket socket_;
  SocketMonitor monitor_;
  HandshakeFailures handshake_failures_;
  WakeQueue wake_queue_;
  std::atomic<bool> is_stop_requested_{false};
  std::unordered_map<uint16_t, KindHandler> handlers_;
  std::function<void()> on_tick_;
  std::function<void(const Peer&)> on_peer_expired_;
  std::function<void(const Peer&)> on_peer_lost_;
  std::function<void()> on_end_;
  Peers peers_;
  std::unordered_map<uint64_t, Unanswered> unanswered_;  // by token
  // tokens of requests that are not one-way, by peer and request
  std::unordered_map<uint64_t, std::unordered_map<uint64_t, uint64_t>>
      unanswered_of_peer_;
  uint64_t last_token_ = 0;
  Clock::TimePoint next_tick_;
  Clock::TimePoint last_tick_;  // by the real clock
  // complaints sent since complaints_since_
  int64_t num_complaints_ = 0;
  Clock::TimePoint complaints_since_;
  ServerMetrics counters_;
  // a copy of counters_, made at the end of every turn of the loop
  mutable Mutex metrics_mutex_;
  ServerMetrics metrics_ GUARDED_BY(metrics_mutex_);
};

}  // namespace replicant::rpc
