#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "replicator/comm/process_exchange.h"

namespace replicant::comm::testing {

// Processes that are threads of this program, on hosts that are numbers.
// Messages are copies in memory, and every one is noted: tests count them, and
// MakespanOf() gives the time that they would take on real links.
//
// Thread-safety: each process's exchange from one thread at a time; traces
// when all are done.
class MemoryNetwork {
 public:
  struct Message {
    int peer = 0;
    bool is_send = false;
    size_t size_bytes = 0;
  };
  // The messages of one Exchange().
  using Round = std::vector<Message>;

  // `host_of`: by process.
  explicit MemoryNetwork(std::vector<int> host_of);

  int num_processes() const { return static_cast<int>(host_of_.size()); }
  const std::vector<int>& host_of() const { return host_of_; }
  std::shared_ptr<ProcessExchange> ExchangeOf(int process);

  // The actions of a process since the last Forget().
  const std::vector<Round>& rounds(int process) const {
    return rounds_[static_cast<size_t>(process)];
  }
  // From the process's own thread.
  void Forget(int process) { rounds_[static_cast<size_t>(process)].clear(); }

  struct Count {
    int64_t messages = 0;
    int64_t bytes = 0;
  };
  // The messages that a process sent.
  Count Sent(int process) const;
  // The bytes from a host to others.
  Count SentByHost(int host) const;

 private:
  class Exchange;

  const std::vector<int> host_of_;
  std::vector<std::vector<Round>> rounds_;  // by process
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes_;
};

// Runs body(process) on a thread for each process.
void RunProcesses(int count, const std::function<void(int)>& body);

// A link: a message of n bytes takes latency_s + n / bytes_per_s.
struct Link {
  double latency_s = 0.0;
  double bytes_per_s = 1e9;
};

// Seconds until all processes have done what their rounds hold, if messages of
// a host take `memory` and others `between_hosts`. `host_of` need not be what
// the processes took it for. A host sends one message at a time to other hosts,
// and receives one at a time; memory is every process's own. Sums take no time:
// the bandwidth of memory is to include them.
double MakespanOf(const MemoryNetwork& network, const std::vector<int>& host_of,
                  Link memory, Link between_hosts);

}  // namespace replicant::comm::testing
