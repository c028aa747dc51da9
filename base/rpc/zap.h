#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/rpc/socket.h"
#include "base/thread.h"

namespace replicant::rpc {

// Admits a client to the CURVE servers of one context if its public key is in a
// list. Any other client is refused before its first message. A context has at
// most one handler, made before the first CURVE server is bound and destroyed
// after the last one (all checked).
//
// Protocol: ZeroMQ RFC 27 (ZAP), a thread that answers on
// inproc://zeromq.zap.01.
//
// Thread-safety: num_refused() may be called from any thread.
class ZapHandler {
 public:
  // Throws InvalidArgument for a key of the wrong form.
  ZapHandler(ZmqContext& context,
             const std::vector<std::string>& allowed_public_keys);
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  // Connections refused so far.
  uint64_t num_refused() const { return num_refused_; }

 private:
  // Binds the sockets and detaches them for the handler's thread.
  void Open();
  void Run(const Thread::StopToken& stop);
  Message Answer(const Message& request);

  ZmqContext& context_;
  std::unordered_set<std::string> allowed_keys_;  // 32 bytes each
  std::atomic<uint64_t> num_refused_{0};
  ZmqSocket requests_;
  // the thread waits without a deadline; a message ends it
  ZmqSocket stop_sender_;
  ZmqSocket stop_receiver_;
  std::optional<Thread> thread_;
};

}  // namespace replicant::rpc
