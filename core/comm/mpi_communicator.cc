#include "core/comm/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/comm/mpi_exchange.h"
#include "core/comm/thread_group.h"
#include "core/tensor/host_buffer.h"

namespace replicant::comm {
namespace {

// Bytes to one process per message and rank: small enough for caches, for MPI's
// int and for the memory of an all-reduce, large enough to hide latency.
constexpr size_t kPieceBytes = size_t{4} << 20;

// What the ranks of one process share. The first thread makes the calls between
// processes, with the arguments of all threads.
class ProcessRanks {
 public:
  // `process_of`: by rank.
  ProcessRanks(std::shared_ptr<MpiExchange> exchange,
               std::vector<int> process_of)
      : exchange_(std::move(exchange)),
        process_of_(std::move(process_of)),
        thread_of_(process_of_.size(), -1),
        ranks_(RanksOf(exchange_->process())),
        threads_(static_cast<int>(ranks_.size()), exchange_->options(),
                 {.member = "thread"}) {
    for (size_t t = 0; t < ranks_.size(); ++t) {
      thread_of_[static_cast<size_t>(ranks_[t])] = static_cast<int>(t);
    }
  }

  int num_ranks() const { return static_cast<int>(process_of_.size()); }
  int num_threads() const { return threads_.size(); }
  int rank_of(int thread) const { return ranks_[static_cast<size_t>(thread)]; }

  // One thread's part of a call of all ranks.
  void Run(int thread, const Collective& c) {
    WithThreads([&] { threads_.Enter(thread, c); });
    if (thread == 0) RunForAll(c);
    if (num_threads() == 1) return;
    WithThreads([&] {
      threads_.MeetAfterWork(thread);
      if (thread != 0 && c.kind != Collective::Kind::kReduceScatter &&
          c.kind != Collective::Kind::kBarrier) {
        CopyTensor(threads_.call_of(0).out, c.out.data());
      }
      threads_.Meet(thread);
    });
  }

  void Abort(const std::string& reason) {
    exchange_->Abort(reason);
    threads_.Abort(reason);
  }

  // Makes the groups of a Split(), `parts` by color. The first thread of each
  // process calls it.
  void MakeParts(const std::map<int, std::vector<int>>& parts);
  // The rank of one of its members; between MakeParts() and ForgetParts().
  std::unique_ptr<Communicator> RankOfPart(int color, int rank) const;
  void ForgetParts() { parts_.clear(); }

 private:
  struct Part {
    std::vector<int> ranks;  // rank within the whole, in the part's order
    std::shared_ptr<ProcessRanks> shared;
  };

  std::vector<int> RanksOf(int process) const {
    std::vector<int> ranks;
    for (int r = 0; r < num_ranks(); ++r) {
      if (process_of_[static_cast<size_t>(r)] == process) ranks.push_back(r);
    }
    return ranks;
  }

  // Meetings of the threads. A failure of one fails all processes.
  template <typename Meet>
  void WithThreads(const Meet& meet) {
    try {
      meet();
    } catch (const CommError& e) {
      Abort(e.what());
      exchange_->ThrowIfAborted();
    }
  }

  void RunForAll(const Collective& c) {
    try {
      exchange_->Run(c, [&] { Make(c); });
    } catch (const CommError& e) {
      threads_.Abort(e.what());
      throw;
    }
  }
  void Make(const Collective& c);
  void MakeAllReduce(const Collective& c);
  void MakeReduceScatter(const Collective& c);
  template <typename InOf>
  void GatherAndReduce(const Collective& c, const InOf& in_of,
                       std::span<std::byte> out);
  void MakeAllGather(const Collective& c);
  void MakeBroadcast(const Collective& c);

  // Calls visit(process) for all other processes.
  template <typename Visit>
  void ForOthers(const Visit& visit) const {
    for (int p = 0; p < exchange_->num_processes(); ++p) {
      if (p != exchange_->process()) visit(p);
    }
  }
  std::span<const std::byte> InputOf(size_t thread) const {
    return threads_.call_of(thread).in.bytes();
  }

  const std::shared_ptr<MpiExchange> exchange_;
  const std::vector<int> process_of_;
  // by rank; -1 for a rank of another process
  std::vector<int> thread_of_;
  const std::vector<int> ranks_;  // by thread
  ThreadGroup threads_;
  // by color
  std::map<int, Part> parts_;
  // kept so that calls allocate nothing
  std::vector<const std::byte*> inputs_;
  HostBuffer scratch_{0};
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<ProcessRanks> shared, int thread)
      : shared_(std::move(shared)), thread_(thread) {}

  int rank() const override { return shared_->rank_of(thread_); }
  int size() const override { return shared_->num_ranks(); }
  std::string_view transport() const override { return "mpi"; }

  std::unique_ptr<Communicator> Split(int color, int key) override {
    const std::map<int, std::vector<int>> parts = GatherParts(color, key);
    if (thread_ == 0) shared_->MakeParts(parts);
    Barrier();
    std::unique_ptr<Communicator> result;
    if (color >= 0) result = shared_->RankOfPart(color, rank());
    Barrier();
    if (thread_ == 0) shared_->ForgetParts();
    return result;
  }

  void Abort(const std::string& reason) override { shared_->Abort(reason); }

 private:
  void DoRun(const Collective& c) override { shared_->Run(thread_, c); }

  const std::shared_ptr<ProcessRanks> shared_;
  const int thread_;
};

void ProcessRanks::Make(const Collective& c) {
  switch (c.kind) {
    case Collective::Kind::kAllReduce:
      return MakeAllReduce(c);
    case Collective::Kind::kAllGather:
      return MakeAllGather(c);
    case Collective::Kind::kReduceScatter:
      return MakeReduceScatter(c);
    case Collective::Kind::kBroadcast:
      return MakeBroadcast(c);
    case Collective::Kind::kBarrier:
      ForOthers([&](int process) {
        exchange_->Receive(process, {});
        exchange_->Send(process, {});
      });
      return exchange_->Exchange();
  }
  REPLICANT_CHECK(false, "Kind {}", static_cast<int>(c.kind));
}

void ProcessRanks::MakeAllReduce(const Collective& c) {
  const size_t element = DTypeSize(c.in.dtype());
  const auto count = static_cast<size_t>(c.in.shape().num_elements());
  const auto processes = static_cast<size_t>(exchange_->num_processes());
  const size_t piece = processes * (kPieceBytes / element);
  for (size_t begin = 0; begin < count; begin += piece) {
    const size_t n = std::min(piece, count - begin);
    const auto part_of = [&](auto bytes, int process) {
      const Range part = PartOf(n, processes, static_cast<size_t>(process),
                                /*granularity=*/1);
      return bytes.subspan((begin + part.begin) * element,
                           part.size() * element);
    };
    const std::span<std::byte> own =
        part_of(c.out.bytes(), exchange_->process());
    GatherAndReduce(
        c,
        [&](size_t thread, int process) {
          return part_of(InputOf(thread), process);
        },
        own);
    ForOthers([&](int process) {
      exchange_->Receive(process, part_of(c.out.bytes(), process));
      exchange_->Send(process, own);
    });
    exchange_->Exchange();
  }
}

void ProcessRanks::MakeReduceScatter(const Collective& c) {
  std::vector<std::vector<int>> ranks_of;
  size_t most_ranks = 0;
  for (int p = 0; p < exchange_->num_processes(); ++p) {
    ranks_of.push_back(RanksOf(p));
    most_ranks = std::max(most_ranks, ranks_of.back().size());
  }
  const size_t row = c.out.size_bytes();
  // one rank of every process at a time; a process may have fewer ranks
  for (size_t i = 0; i < most_ranks; ++i) {
    for (size_t begin = 0; begin < row; begin += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, row - begin);
      std::span<std::byte> out;
      if (i < ranks_.size()) {
        out = threads_.call_of(i).out.bytes().subspan(begin, n);
      }
      GatherAndReduce(
          c,
          [&](size_t thread, int process) -> std::span<const std::byte> {
            const auto& ranks = ranks_of[static_cast<size_t>(process)];
            if (i >= ranks.size()) return {};
            return InputOf(thread).subspan(
                static_cast<size_t>(ranks[i]) * row + begin, n);
          },
          out);
    }
  }
}

// Sends in_of(t, p) of every thread t to every process p, and reduces what
// arrives, together with this process's own part, to `out`.
template <typename InOf>
void ProcessRanks::GatherAndReduce(const Collective& c, const InOf& in_of,
                                   std::span<std::byte> out) {
  if (scratch_.size_bytes() < out.size() * process_of_.size()) {
    scratch_ = HostBuffer(out.size() * process_of_.size());
  }
  inputs_.clear();
  for (size_t r = 0; r < process_of_.size(); ++r) {
    const int process = process_of_[r];
    if (process == exchange_->process()) {
      inputs_.push_back(
          in_of(static_cast<size_t>(thread_of_[r]), process).data());
    } else {
      std::byte* const arrived = scratch_.data() + r * out.size();
      exchange_->Receive(process, {arrived, out.size()});
      inputs_.push_back(arrived);
    }
  }
  // received in rank order
  ForOthers([&](int process) {
    for (size_t t = 0; t < ranks_.size(); ++t) {
      exchange_->Send(process, in_of(t, process));
    }
  });
  exchange_->Exchange();
  std::byte* const outputs[] = {out.data()};
  Reduce(c.op, c.in.dtype(), inputs_, outputs, 0,
         out.size() / DTypeSize(c.in.dtype()), c.factor);
}

void ProcessRanks::MakeAllGather(const Collective& c) {
  const size_t row = c.in.size_bytes();
  const auto row_of = [&](size_t rank) {
    return c.out.bytes().subspan(rank * row, row);
  };
  for (size_t t = 0; t < ranks_.size(); ++t) {
    CopyTensor(threads_.call_of(t).in,
               row_of(static_cast<size_t>(ranks_[t])).data());
  }
  for (size_t begin = 0; begin < row; begin += kPieceBytes) {
    const size_t n = std::min(kPieceBytes, row - begin);
    for (size_t r = 0; r < process_of_.size(); ++r) {
      if (thread_of_[r] >= 0) continue;
      exchange_->Receive(process_of_[r], row_of(r).subspan(begin, n));
    }
    ForOthers([&](int process) {
      for (const int r : ranks_) {
        exchange_->Send(process,
                        row_of(static_cast<size_t>(r)).subspan(begin, n));
      }
    });
    exchange_->Exchange();
  }
}

void ProcessRanks::MakeBroadcast(const Collective& c) {
  const auto source = static_cast<size_t>(c.source);
  const int thread = thread_of_[source];
  if (thread >= 0) {
    CopyTensor(threads_.call_of(static_cast<size_t>(thread)).in, c.out.data());
  }
  const size_t size = c.out.size_bytes();
  for (size_t begin = 0; begin < size; begin += kPieceBytes) {
    const auto piece =
        c.out.bytes().subspan(begin, std::min(kPieceBytes, size - begin));
    if (thread >= 0) {
      ForOthers([&](int process) { exchange_->Send(process, piece); });
    } else {
      exchange_->Receive(process_of_[source], piece);
    }
    exchange_->Exchange();
  }
}

void ProcessRanks::MakeParts(const std::map<int, std::vector<int>>& parts) {
  for (const auto& [color, ranks] : parts) {
    std::vector<int> process_of;
    process_of.reserve(ranks.size());
    for (const int r : ranks) {
      process_of.push_back(process_of_[static_cast<size_t>(r)]);
    }
    // its processes, in order
    const std::set<int> members(process_of.begin(), process_of.end());
    for (int& process : process_of) {
      process = static_cast<int>(
          std::distance(members.begin(), members.find(process)));
    }
    auto exchange = exchange_->Split(members.contains(exchange_->process()));
    if (exchange == nullptr) continue;
    parts_[color] = {.ranks = ranks,
                     .shared = std::make_shared<ProcessRanks>(
                         std::move(exchange), std::move(process_of))};
  }
}

std::unique_ptr<Communicator> ProcessRanks::RankOfPart(int color,
                                                       int rank) const {
  const Part& part = parts_.at(color);
  const auto place = static_cast<size_t>(std::ranges::find(part.ranks, rank) -
                                         part.ranks.begin());
  return std::make_unique<MpiCommunicator>(part.shared,
                                           part.shared->thread_of_[place]);
}

}  // namespace

bool HasMpi() { return true; }

int NumMpiProcesses() {
  const char* const text = std::getenv("OMPI_COMM_WORLD_SIZE");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

MpiRanks MakeMpiRanks(int count, const CommunicatorOptions& options) {
  REPLICANT_CHECK(count >= 1, "{} ranks", count);
  const std::shared_ptr<MpiExchange> exchange =
      MpiExchange::OfAllProcesses(options);
  std::vector<int> process_of;
  std::vector<int> processes;
  for (const int32_t number : exchange->GatherNumbers(count)) {
    const auto process = static_cast<int>(processes.size());
    processes.push_back(process);
    process_of.insert(process_of.end(), static_cast<size_t>(number), process);
  }
  MpiRanks result;
  result.processes = std::make_unique<MpiCommunicator>(
      std::make_shared<ProcessRanks>(exchange, std::move(processes)),
      /*thread=*/0);
  const auto shared =
      std::make_shared<ProcessRanks>(exchange, std::move(process_of));
  for (int t = 0; t < count; ++t) {
    result.ranks.push_back(std::make_unique<MpiCommunicator>(shared, t));
  }
  return result;
}

std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options) {
  return std::move(MakeMpiRanks(/*count=*/1, options).ranks[0]);
}

}  // namespace replicant::comm
