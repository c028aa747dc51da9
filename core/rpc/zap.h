#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/thread.h"
#include "core/rpc/socket.h"

namespace replicant::rpc {

// Decides which clients may connect to the CURVE servers of one context: those
// whose public key is in a list. Everything else is refused before a message
// of it is seen. It is the only handler of its context (checked), must be made
// before the first CURVE server is bound and destroyed after the last one is
// (checked).
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
  // Binds the sockets; they then belong to the thread that is yet to start.
  void Open();
  void Run(const Thread::StopToken& stop);
  Message Answer(const Message& request);

  ZmqContext& context_;
  std::unordered_set<std::string> allowed_keys_;  // 32 bytes each
  std::atomic<uint64_t> num_refused_{0};
  ZmqSocket requests_;
  // told to end by a message, as it waits without a deadline
  ZmqSocket stop_sender_;
  ZmqSocket stop_receiver_;
  std::optional<Thread> thread_;
};

}  // namespace replicant::rpc
