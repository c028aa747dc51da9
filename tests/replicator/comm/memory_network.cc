#include "tests/replicator/comm/memory_network.h"

#include <algorithm>
#include <queue>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/thread.h"

namespace replicant::comm::testing {

class MemoryNetwork::Exchange : public ProcessExchange {
 public:
  Exchange(MemoryNetwork* network, int process)
      : ProcessExchange(process, network->num_processes(),
                        {.heartbeat_timeout = std::chrono::milliseconds(0)}),
        network_(*network) {
    SetHosts(network->host_of());
  }

  std::string_view transport() const override { return "memory"; }
  std::shared_ptr<ProcessExchange> Split(bool /*is_member*/) override {
    REPLICANT_CHECK(false, "a memory network has no parts");
  }

 private:
  using ProcessExchange::Message;

  void Move(std::span<const Message> messages) override {
    Round round;
    std::unique_lock lock(network_.mutex_);
    for (const Message& m : messages) {
      round.push_back({m.peer, m.is_send, m.size_bytes});
      if (!m.is_send) continue;
      network_.boxes_[{process(), m.peer}].emplace_back(m.data,
                                                        m.data + m.size_bytes);
    }
    network_.arrived_.notify_all();
    for (const Message& m : messages) {
      if (m.is_send) continue;
      auto& box = network_.boxes_[{m.peer, process()}];
      network_.arrived_.wait(lock, [&] { return !box.empty(); });
      REPLICANT_CHECK(box.front().size() == m.size_bytes,
                      "{} bytes for {} from {}, want {}", box.front().size(),
                      process(), m.peer, m.size_bytes);
      std::ranges::copy(box.front(), m.data);
      box.pop_front();
    }
    network_.rounds_[static_cast<size_t>(process())].push_back(
        std::move(round));
  }

  MemoryNetwork& network_;
};

MemoryNetwork::MemoryNetwork(std::vector<int> host_of)
    : host_of_(std::move(host_of)), rounds_(host_of_.size()) {}

std::shared_ptr<ProcessExchange> MemoryNetwork::ExchangeOf(int process) {
  return std::make_shared<Exchange>(this, process);
}

MemoryNetwork::Count MemoryNetwork::Sent(int process) const {
  Count count;
  for (const Round& round : rounds(process)) {
    for (const Message& m : round) {
      count.messages += m.is_send ? 1 : 0;
      count.bytes += m.is_send ? static_cast<int64_t>(m.size_bytes) : 0;
    }
  }
  return count;
}

MemoryNetwork::Count MemoryNetwork::SentByHost(int host) const {
  Count count;
  for (int p = 0; p < num_processes(); ++p) {
    if (host_of_[static_cast<size_t>(p)] != host) continue;
    for (const Round& round : rounds(p)) {
      for (const Message& m : round) {
        if (!m.is_send || host_of_[static_cast<size_t>(m.peer)] == host) {
          continue;
        }
        ++count.messages;
        count.bytes += static_cast<int64_t>(m.size_bytes);
      }
    }
  }
  return count;
}

void RunProcesses(int count, const std::function<void(int)>& body) {
  std::vector<std::unique_ptr<Thread>> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int p = 0; p < count; ++p) {
    threads.push_back(std::make_unique<Thread>(
        "process", [&, p](const Thread::StopToken&) { body(p); }));
  }
  for (const auto& thread : threads) thread->Join();
}

namespace {

// Replays the rounds of all processes in the order of time.
class Replay {
 public:
  Replay(const MemoryNetwork& network, const std::vector<int>& host_of,
         Link memory, Link between_hosts)
      : network_(network),
        host_of_(host_of),
        memory_(memory),
        between_hosts_(between_hosts),
        processes_(static_cast<size_t>(network.num_processes())) {}

  double Run() {
    for (int p = 0; p < network_.num_processes(); ++p) starts_.emplace(0.0, p);
    while (!starts_.empty()) {
      const auto [time, process] = starts_.top();
      starts_.pop();
      Begin(process, time);
    }
    double end = 0.0;
    for (const Process& process : processes_) end = std::max(end, process.time);
    return end;
  }

 private:
  struct Process {
    size_t round = 0;
    double time = 0.0;
    bool is_waiting = false;
  };
  struct Host {
    double sends_from = 0.0;
    double receives_from = 0.0;
  };

  int HostOf(int process) const {
    return host_of_[static_cast<size_t>(process)];
  }

  void Begin(int p, double time) {
    Process& process = processes_[static_cast<size_t>(p)];
    process.time = time;
    const auto& rounds = network_.rounds(p);
    if (process.round == rounds.size()) return;
    double end = time;
    std::vector<int> peers;
    for (const auto& m : rounds[process.round]) {
      if (!m.is_send) continue;
      const auto bytes = static_cast<double>(m.size_bytes);
      double start = time;
      const bool is_near = HostOf(p) == HostOf(m.peer);
      const Link& link = is_near ? memory_ : between_hosts_;
      if (!is_near) {
        Host& from = hosts_[HostOf(p)];
        Host& to = hosts_[HostOf(m.peer)];
        start = std::max({time, from.sends_from, to.receives_from});
        from.sends_from = to.receives_from = start + bytes / link.bytes_per_s;
      }
      end = std::max(end, start + bytes / link.bytes_per_s);
      arrivals_[{p, m.peer}].push_back(start + link.latency_s +
                                       bytes / link.bytes_per_s);
      peers.push_back(m.peer);
    }
    process.time = end;
    process.is_waiting = true;
    Finish(p);
    for (const int peer : peers) Finish(peer);
  }

  // Ends the round if all that it receives is under way.
  void Finish(int p) {
    Process& process = processes_[static_cast<size_t>(p)];
    if (!process.is_waiting) return;
    const auto& round = network_.rounds(p)[process.round];
    std::map<int, size_t> wanted;
    for (const auto& m : round) {
      if (!m.is_send) ++wanted[m.peer];
    }
    for (const auto& [peer, count] : wanted) {
      if (arrivals_[{peer, p}].size() < count) return;
    }
    for (const auto& [peer, count] : wanted) {
      auto& queue = arrivals_[{peer, p}];
      for (size_t i = 0; i < count; ++i) {
        process.time = std::max(process.time, queue.front());
        queue.pop_front();
      }
    }
    process.is_waiting = false;
    ++process.round;
    starts_.emplace(process.time, p);
  }

  const MemoryNetwork& network_;
  const std::vector<int>& host_of_;
  const Link memory_, between_hosts_;
  std::vector<Process> processes_;
  std::map<int, Host> hosts_;
  std::map<std::pair<int, int>, std::deque<double>> arrivals_;
  using Start = std::pair<double, int>;
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
};

}  // namespace

double MakespanOf(const MemoryNetwork& network, const std::vector<int>& host_of,
                  Link memory, Link between_hosts) {
  return Replay(network, host_of, memory, between_hosts).Run();
}

}  // namespace replicant::comm::testing
