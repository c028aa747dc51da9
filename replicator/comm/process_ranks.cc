#include "replicator/comm/process_ranks.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "replicator/comm/process_collectives.h"
#include "replicator/comm/thread_group.h"

namespace replicant::comm {
namespace {

// What the ranks of one process share. The first thread makes the calls between
// processes, with the arguments of all threads.
class ProcessRanks {
 public:
  // `process_of`: by rank.
  ProcessRanks(std::shared_ptr<ProcessExchange> exchange,
               std::vector<int> process_of)
      : exchange_(std::move(exchange)),
        collectives_(exchange_.get(), std::move(process_of)),
        threads_(static_cast<int>(collectives_.ranks().size()),
                 exchange_->options(), {.member = "thread"}) {}

  std::string_view transport() const { return exchange_->transport(); }
  int num_ranks() const { return collectives_.num_ranks(); }
  int num_threads() const { return threads_.size(); }
  int rank_of(int thread) const {
    return collectives_.ranks()[static_cast<size_t>(thread)];
  }

  // One thread's part of a call of all ranks.
  void Run(int thread, const Collective& c) {
    WithThreads([&] { threads_.Enter(thread, c); });
    if (thread == 0) RunForAll(c);
    if (num_threads() == 1) return;
    WithThreads([&] {
      threads_.BarrierAfterWork(thread);
      if (thread != 0 && c.kind != Collective::Kind::kReduceScatter &&
          c.kind != Collective::Kind::kBarrier) {
        CopyTensor(threads_.call_of(0).out, c.out.data());
      }
      threads_.Barrier(thread);
    });
  }

  std::string Failure() const { return exchange_->Failure(); }
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

  // Barriers of the threads. A failure of one fails all processes.
  template <typename Barrier>
  void WithThreads(const Barrier& barrier) {
    try {
      barrier();
    } catch (const CommError& e) {
      Abort(e.what());
      exchange_->ThrowIfAborted();
    }
  }

  void RunForAll(const Collective& c) {
    try {
      exchange_->Run(c, [&] { collectives_.Make(c, threads_); });
    } catch (const CommError& e) {
      threads_.Abort(e.what());
      throw;
    }
  }

  const std::shared_ptr<ProcessExchange> exchange_;
  ProcessCollectives collectives_;
  ThreadGroup threads_;
  // by color
  std::map<int, Part> parts_;
};

class ProcessCommunicator : public Communicator {
 public:
  ProcessCommunicator(std::shared_ptr<ProcessRanks> shared, int thread)
      : shared_(std::move(shared)), thread_(thread) {}

  int rank() const override { return shared_->rank_of(thread_); }
  int size() const override { return shared_->num_ranks(); }
  std::string_view transport() const override { return shared_->transport(); }

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
  std::string Failure() const override { return shared_->Failure(); }

 private:
  void DoRun(const Collective& c) override { shared_->Run(thread_, c); }

  const std::shared_ptr<ProcessRanks> shared_;
  const int thread_;
};

void ProcessRanks::MakeParts(const std::map<int, std::vector<int>>& parts) {
  for (const auto& [color, ranks] : parts) {
    std::vector<int> process_of;
    process_of.reserve(ranks.size());
    for (const int r : ranks) {
      process_of.push_back(collectives_.process_of()[static_cast<size_t>(r)]);
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
  return std::make_unique<ProcessCommunicator>(
      part.shared,
      part.shared->collectives_.thread_of(static_cast<int>(place)));
}

}  // namespace

LocalRanks MakeLocalRanks(const std::shared_ptr<ProcessExchange>& exchange,
                          int count) {
  REPLICANT_CHECK(count >= 1, "{} ranks", count);
  std::vector<int> process_of;
  std::vector<int> processes;
  for (const int32_t number : exchange->GatherNumbers(count)) {
    const auto process = static_cast<int>(processes.size());
    processes.push_back(process);
    process_of.insert(process_of.end(), static_cast<size_t>(number), process);
  }
  LocalRanks result;
  result.processes = std::make_unique<ProcessCommunicator>(
      std::make_shared<ProcessRanks>(exchange, std::move(processes)),
      /*thread=*/0);
  const auto shared =
      std::make_shared<ProcessRanks>(exchange, std::move(process_of));
  for (int t = 0; t < count; ++t) {
    result.ranks.push_back(std::make_unique<ProcessCommunicator>(shared, t));
  }
  return result;
}

}  // namespace replicant::comm
