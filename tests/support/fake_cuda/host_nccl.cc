#include "tests/support/fake_cuda/host_nccl.h"

#include <fmt/format.h>

#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engine/kernels/common/element.h"
#include "engine/kernels/cuda/device.h"

namespace replicant::testing {

using kernels::DeviceCall;
using kernels::DeviceRank;
using kernels::DeviceReduceOp;
using kernels::cuda::MemoryRange;
using kernels::cuda::NcclLibrary;
using kernels::cuda::NcclRank;

namespace {

double Combine(DeviceReduceOp op, double a, double b) {
  switch (op) {
    case DeviceReduceOp::kSum:
      return a + b;
    case DeviceReduceOp::kMin:
      return b < a ? b : a;
    case DeviceReduceOp::kMax:
      return a < b ? b : a;
    case DeviceReduceOp::kProd:
      return a * b;
  }
  return a;
}

int64_t InCount(const DeviceCall& call) { return call.count; }
int64_t OutCount(const DeviceCall& call, int size) {
  if (call.kind == DeviceCall::Kind::kAllGather) return call.count * size;
  if (call.kind == DeviceCall::Kind::kReduceScatter) return call.count / size;
  return call.count;
}

// All results, before any is written: operands may overlap.
std::vector<std::vector<std::byte>> Compute(
    const std::vector<const DeviceCall*>& calls) {
  const auto size = static_cast<int64_t>(calls.size());
  const DType dtype = calls[0]->dtype;
  const size_t width = DTypeSize(dtype);
  std::vector<std::vector<std::byte>> results;
  for (int64_t rank = 0; rank < size; ++rank) {
    const DeviceCall& call = *calls[static_cast<size_t>(rank)];
    const int64_t count = OutCount(call, static_cast<int>(size));
    std::vector<std::byte> result(static_cast<size_t>(count) * width);
    const auto copy = [&](const std::byte* from, int64_t n, int64_t at) {
      std::memcpy(result.data() + static_cast<size_t>(at) * width, from,
                  static_cast<size_t>(n) * width);
    };
    switch (call.kind) {
      case DeviceCall::Kind::kAllReduce:
      case DeviceCall::Kind::kReduceScatter: {
        const bool scatters = call.kind == DeviceCall::Kind::kReduceScatter;
        const int64_t first = scatters ? rank * count : 0;
        for (int64_t i = 0; i < count; ++i) {
          double value = kernels::Load(calls[0]->in, dtype, first + i);
          for (size_t j = 1; j < calls.size(); ++j) {
            value = Combine(call.op, value,
                            kernels::Load(calls[j]->in, dtype, first + i));
            // as a sum of f32, not of doubles
            if (dtype == DType::kF32) value = static_cast<float>(value);
          }
          kernels::Store(result.data(), dtype, i, value);
        }
        break;
      }
      case DeviceCall::Kind::kAllGather:
        for (int64_t j = 0; j < size; ++j) {
          copy(calls[static_cast<size_t>(j)]->in, call.count, j * call.count);
        }
        break;
      case DeviceCall::Kind::kBroadcast:
        copy(calls[static_cast<size_t>(call.source)]->in, call.count, 0);
        break;
    }
    results.push_back(std::move(result));
  }
  return results;
}

const char* NameOf(DeviceCall::Kind kind) {
  switch (kind) {
    case DeviceCall::Kind::kAllReduce:
      return "ncclAllReduce";
    case DeviceCall::Kind::kAllGather:
      return "ncclAllGather";
    case DeviceCall::Kind::kReduceScatter:
      return "ncclReduceScatter";
    case DeviceCall::Kind::kBroadcast:
      return "ncclBroadcast";
  }
  return "";
}

bool Fit(const DeviceCall& a, const DeviceCall& b) {
  return a.kind == b.kind && a.op == b.op && a.source == b.source &&
         a.dtype == b.dtype && a.count == b.count;
}

}  // namespace

void NcclWorld::FailRank(int rank, const std::string& problem) {
  const MutexLock lock(mutex_);
  failures_[rank] = problem;
}

int NcclWorld::num_leaving() const {
  const MutexLock lock(mutex_);
  return num_leaving_;
}

std::set<int> NcclWorld::AwaitAborts(size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + graph_timeout_;
  const MutexLock lock(mutex_);
  while (true) {
    std::set<int> ranks;
    for (const auto& [id, group] : groups_) {
      ranks.insert(group.aborted.begin(), group.aborted.end());
    }
    if (ranks.size() >= count || std::chrono::steady_clock::now() >= deadline) {
      return ranks;
    }
    changed_.WaitUntil(mutex_, deadline);
  }
}

void NcclWorld::CutOff(int rank) {
  const MutexLock lock(mutex_);
  cut_off_.insert(rank);
}

CUresult NcclWorld::Meet(const std::string& id, int rank,
                         const Pending& pending) {
  const MutexLock lock(mutex_);
  Group& group = groups_.at(id);
  // a kernel whose rank is aborted leaves at once
  if (group.aborted.contains(rank)) return CUDA_SUCCESS;
  const bool is_in_graph = pending.place.is_in_graph();
  if (!is_in_graph || !cut_off_.contains(rank)) group.pending[rank] = pending;
  if (static_cast<int>(group.pending.size()) == group.size) {
    Run(group);
    return CUDA_SUCCESS;
  }
  if (!is_in_graph) return CUDA_SUCCESS;
  return AwaitOthers(group, rank, NameOf(pending.call.kind));
}

CUresult NcclWorld::AwaitOthers(Group& group, int rank, const char* name) {
  const uint64_t own_run = group.num_runs;
  const auto deadline = std::chrono::steady_clock::now() + graph_timeout_;
  while (group.num_runs == own_run && !group.aborted.contains(rank)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      driver_->Report(
          fmt::format("{} of rank {} of {}: nobody has ended its "
                      "wait for the others, in a graph",
                      name, rank, group.size));
      group.pending.erase(rank);
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    }
    changed_.WaitUntil(mutex_, deadline);
  }
  return CUDA_SUCCESS;
}

std::string NcclWorld::WhyNotOneCall(const Group& group) {
  const Pending& first = group.pending.begin()->second;
  for (const auto& [rank, pending] : group.pending) {
    if (!Fit(first.call, pending.call)) return "ranks make different calls";
    if (pending.place.is_in_graph() != first.place.is_in_graph()) {
      return "ranks make a call in a graph and outside of one";
    }
    if (pending.number != first.number) {
      return "ranks launch graphs of different captures";
    }
  }
  return {};
}

void NcclWorld::Run(Group& group) {
  ++group.num_runs;
  changed_.NotifyAll();
  if (const std::string why = WhyNotOneCall(group); !why.empty()) {
    driver_->Report("NCCL: " + why);
    for (int r = 0; r < group.size; ++r) group.problems[r] = why;
    group.pending.clear();
    return;
  }
  std::vector<const DeviceCall*> calls;
  std::vector<StreamPart> works;
  for (const auto& [rank, pending] : group.pending) {
    const DeviceCall& call = pending.call;
    calls.push_back(&call);
    const auto bytes = [&](int64_t count) {
      return static_cast<size_t>(count) * DTypeSize(call.dtype);
    };
    works.push_back(
        {.place = pending.place,
         .reads = {{kernels::cuda::AddressOf(call.in), bytes(InCount(call))}},
         .writes = {{kernels::cuda::AddressOf(call.out),
                     bytes(OutCount(call, group.size))}}});
  }
  const CUresult result =
      driver_->RunOnStreams(NameOf(calls[0]->kind), works, [&] {
        const auto results = Compute(calls);
        for (size_t rank = 0; rank < calls.size(); ++rank) {
          std::memcpy(calls[rank]->out, results[rank].data(),
                      results[rank].size());
        }
      });
  if (result != CUDA_SUCCESS) {
    for (int r = 0; r < group.size; ++r) {
      group.problems[r] = fmt::format("{}: {}", NameOf(calls[0]->kind),
                                      driver_->DescribeError(result));
    }
  }
  group.pending.clear();
}

class HostNcclRank : public NcclRank {
 public:
  HostNcclRank(std::shared_ptr<NcclWorld> world, std::string id, int rank)
      : world_(std::move(world)), id_(std::move(id)), rank_(rank) {}
  ~HostNcclRank() override {
    // NCCL waits for graphs that have its calls
    if (in_graphs_.use_count() > 1) {
      world_->driver_->Report(
          fmt::format("ncclCommDestroy: rank {} has calls in a graph", rank_));
    }
  }
  HostNcclRank(const HostNcclRank&) = delete;
  HostNcclRank& operator=(const HostNcclRank&) = delete;

  void Launch(const DeviceCall& call, CUstream stream) override {
    if (call.count == 0) return;
    NcclWorld::Pending pending{.call = call, .number = num_calls_++};
    const CUresult result = world_->driver_->Meet(
        NameOf(call.kind), stream,
        [world = world_, id = id_, rank = rank_, pending,
         held = in_graphs_](const StreamPlace& place) mutable {
          pending.place = place;
          return world->Meet(id, rank, pending);
        });
    if (result != CUDA_SUCCESS) {
      throw DeviceError(fmt::format("{}: {}", NameOf(call.kind),
                                    world_->driver_->DescribeError(result)));
    }
  }

  DeviceRank::Status Poll() override {
    using State = DeviceRank::State;
    const MutexLock lock(world_->mutex_);
    const NcclWorld::Group& group = world_->groups_.at(id_);
    const auto failure = world_->failures_.find(rank_);
    if (failure != world_->failures_.end()) {
      return {State::kFailed, failure->second};
    }
    const auto problem = group.problems.find(rank_);
    if (problem != group.problems.end()) {
      return {State::kFailed, problem->second};
    }
    const bool is_ready = static_cast<int>(group.joined.size()) == group.size &&
                          !group.pending.contains(rank_);
    return {is_ready ? State::kReady : State::kInProgress};
  }

  void Leave() override {
    const MutexLock lock(world_->mutex_);
    ++world_->num_leaving_;
  }
  void Abort() override {
    {
      const MutexLock lock(world_->mutex_);
      NcclWorld::Group& group = world_->groups_.at(id_);
      group.aborted.insert(rank_);
      group.pending.erase(rank_);
      world_->changed_.NotifyAll();
    }
    const auto deadline =
        std::chrono::steady_clock::now() + world_->graph_timeout_;
    while (in_graphs_.use_count() > 1 &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  const std::shared_ptr<NcclWorld> world_;
  const std::string id_;
  const int rank_;
  uint64_t num_calls_ = 0;
  // held by the calls that graphs have
  const std::shared_ptr<int> in_graphs_ = std::make_shared<int>();
};

class HostNccl : public NcclLibrary {
 public:
  HostNccl(std::shared_ptr<NcclWorld> world, HostNcclOptions options)
      : world_(std::move(world)), options_(std::move(options)) {}

  std::string version() override {
    ThrowIfMissing();
    return options_.version;
  }
  std::string NewUniqueId() override {
    ThrowIfMissing();
    const MutexLock lock(world_->mutex_);
    std::string id = fmt::format("group {}", world_->groups_.size());
    // as long as NCCL's, and with bytes that are no text
    id.resize(128, '\0');
    id.back() = '\x80';
    world_->groups_[id] = {};
    return id;
  }
  std::unique_ptr<NcclRank> Join(const std::string& unique_id, int rank,
                                 int size) override {
    ThrowIfMissing();
    const MutexLock lock(world_->mutex_);
    NcclWorld::Group& group = world_->groups_.at(unique_id);
    const CUresult result = world_->driver_->Note("ncclCommInitRankConfig");
    if (result != CUDA_SUCCESS) {
      throw DeviceError("ncclCommInitRankConfig: " +
                        world_->driver_->DescribeError(result));
    }
    if (!group.devices.insert(world_->driver_->current_device()).second) {
      throw DeviceError(
          "ncclCommInitRankConfig: invalid usage: Duplicate GPU detected");
    }
    group.size = size;
    group.joined.insert(rank);
    return std::make_unique<HostNcclRank>(world_, unique_id, rank);
  }

 private:
  void ThrowIfMissing() const {
    if (!options_.missing.empty()) throw DeviceError(options_.missing);
  }

  const std::shared_ptr<NcclWorld> world_;
  const HostNcclOptions options_;
};

std::unique_ptr<NcclLibrary> MakeHostNccl(std::shared_ptr<NcclWorld> world,
                                          const HostNcclOptions& options) {
  return std::make_unique<HostNccl>(std::move(world), options);
}

}  // namespace replicant::testing
