#include "tests/support/fake_cuda/host_nccl.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/kernels/common/element.h"
#include "core/kernels/cuda/device.h"

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

std::set<int> NcclWorld::aborted() const {
  const MutexLock lock(mutex_);
  return aborted_;
}

void NcclWorld::Run(Group& group) {
  std::vector<const DeviceCall*> calls;
  std::vector<StreamPart> works;
  for (const auto& [rank, pending] : group.pending) {
    const DeviceCall& call = pending.call;
    if (!calls.empty() && !Fit(*calls[0], call)) {
      // what NCCL makes of it is undefined; here it is said
      for (int r = 0; r < group.size; ++r) {
        group.problems[r] = "ranks make different calls";
      }
      group.pending.clear();
      return;
    }
    calls.push_back(&call);
    const auto bytes = [&](int64_t count) {
      return static_cast<size_t>(count) * DTypeSize(call.dtype);
    };
    works.push_back(
        {.stream = pending.stream,
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

  void Launch(const DeviceCall& call, CUstream stream) override {
    const MutexLock lock(world_->mutex_);
    if (is_aborted_ || call.count == 0) return;
    NcclWorld::Group& group = world_->groups_.at(id_);
    if (const CUresult result = world_->driver_->Arrive(stream);
        result != CUDA_SUCCESS) {
      throw DeviceError(fmt::format("{}: {}", NameOf(call.kind),
                                    world_->driver_->DescribeError(result)));
    }
    group.pending[rank_] = {.call = call, .stream = stream};
    if (static_cast<int>(group.pending.size()) == group.size) {
      world_->Run(group);
    }
  }

  DeviceRank::Status Poll() override {
    using State = DeviceRank::State;
    const MutexLock lock(world_->mutex_);
    if (is_aborted_) return {State::kFailed, "aborted"};
    const auto failure = world_->failures_.find(rank_);
    if (failure != world_->failures_.end()) {
      return {State::kFailed, failure->second};
    }
    const NcclWorld::Group& group = world_->groups_.at(id_);
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
    const MutexLock lock(world_->mutex_);
    is_aborted_ = true;
    world_->aborted_.insert(rank_);
  }

 private:
  const std::shared_ptr<NcclWorld> world_;
  const std::string id_;
  const int rank_;
  bool is_aborted_ = false;
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
