#include "engine/kernels/cuda/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "engine/kernels/cuda/kernel_builder.h"

namespace replicant::kernels::cuda {
namespace {

static_assert(kMaxCombined == DeviceCollectives::kMaxSharers);

CombineOp ToCombineOp(DeviceReduceOp op) {
  switch (op) {
    case DeviceReduceOp::kSum:
      return CombineOp::kSum;
    case DeviceReduceOp::kMin:
      return CombineOp::kMin;
    case DeviceReduceOp::kMax:
      return CombineOp::kMax;
    case DeviceReduceOp::kProd:
      return CombineOp::kProd;
  }
  REPLICANT_CHECK(false, "DeviceReduceOp {}", static_cast<int>(op));
}

MemoryRange RangeOf(const std::byte* data, int64_t begin, int64_t count,
                    DType dtype) {
  const auto size = static_cast<int64_t>(DTypeSize(dtype));
  return {AddressOf(data + begin * size), static_cast<size_t>(count * size)};
}

// Adds the device to what the library says, and a thread that may wait in its
// abort.
class CudaRank : public DeviceRank {
 public:
  CudaRank(std::shared_ptr<const Device> device, const std::string& group,
           int rank, int size)
      : device_(std::move(device)) {
    static_cast<void>(device_->driver());
    Named([&] { rank_ = device_->libraries().nccl->Join(group, rank, size); });
  }
  ~CudaRank() override {
    {
      const MutexLock lock(mutex_);
      aborting_.reset();
    }
    static_cast<void>(device_->driver_for_cleanup());
    rank_.reset();
  }
  CudaRank(const CudaRank&) = delete;
  CudaRank& operator=(const CudaRank&) = delete;

  void Launch(const DeviceCall& call, Stream& stream) override {
    const MutexLock lock(mutex_);
    if (aborting_) return;
    static_cast<void>(device_->driver());
    Named([&] { rank_->Launch(call, HandleOf(stream)); });
  }
  Status Poll() override {
    const MutexLock lock(mutex_);
    Status status = aborting_
                        ? Status{State::kFailed, "the communicator was aborted"}
                        : rank_->Poll();
    if (status.state == State::kFailed) {
      status.problem = fmt::format("{}: {}", device_->name(), status.problem);
    }
    return status;
  }
  void Leave() override {
    const MutexLock lock(mutex_);
    if (aborting_) return;
    static_cast<void>(device_->driver_for_cleanup());
    rank_->Leave();
  }
  void Abort() override {
    const MutexLock lock(mutex_);
    if (aborting_) return;
    aborting_.emplace("nccl-abort", [this](const Thread::StopToken&) {
      static_cast<void>(device_->driver_for_cleanup());
      rank_->Abort();
    });
  }

 private:
  template <typename Call>
  void Named(const Call& call) const {
    try {
      call();
    } catch (const DeviceError& e) {
      throw DeviceError(fmt::format("{}: {}", device_->name(), e.what()));
    }
  }

  const std::shared_ptr<const Device> device_;
  std::unique_ptr<NcclRank> rank_;
  Mutex mutex_;  // held in calls of rank_, but for Abort(), which is the last
  std::optional<Thread> aborting_ GUARDED_BY(mutex_);
};

class CudaCollectives : public DeviceCollectives {
 public:
  explicit CudaCollectives(std::shared_ptr<const Device> device)
      : device_(std::move(device)) {}

  std::string device_id() override { return device_->Uuid(); }

  std::string library() override {
    return "NCCL " +
           OfLibrary([](NcclLibrary& nccl) { return nccl.version(); });
  }
  std::string NewGroup() override {
    return OfLibrary([](NcclLibrary& nccl) { return nccl.NewUniqueId(); });
  }
  std::unique_ptr<DeviceRank> Join(const std::string& group, int rank,
                                   int size) override {
    return std::make_unique<CudaRank>(device_, group, rank, size);
  }

  bool CanReduce(DType dtype) const override {
    return dtype == DType::kF32 || dtype == DType::kBF16 ||
           dtype == DType::kI32 || dtype == DType::kI64;
  }

  void Reduce(DeviceReduceOp op, DType dtype,
              std::span<const std::byte* const> inputs,
              std::span<std::byte* const> outputs, int64_t begin, int64_t end,
              Stream& stream) override {
    if (begin == end) return;
    const auto launch = [&]<typename T>(T /*element*/) {
      CombineReplicas<T> body{.op = ToCombineOp(op),
                              .num_inputs = static_cast<int>(inputs.size()),
                              .num_outputs = static_cast<int>(outputs.size()),
                              .begin = begin};
      std::vector<MemoryRange> reads;
      std::vector<MemoryRange> writes;
      for (size_t j = 0; j < inputs.size(); ++j) {
        body.inputs[j] = reinterpret_cast<const T*>(inputs[j]);
        reads.push_back(RangeOf(inputs[j], begin, end - begin, dtype));
      }
      for (size_t j = 0; j < outputs.size(); ++j) {
        body.outputs[j] = reinterpret_cast<T*>(outputs[j]);
        writes.push_back(RangeOf(outputs[j], begin, end - begin, dtype));
      }
      Launch(body, end - begin, reads, writes, stream);
    };
    REPLICANT_CHECK(
        inputs.size() <= kMaxCombined && outputs.size() <= kMaxCombined,
        "{} replicas on one device", inputs.size());
    switch (dtype) {
      case DType::kF32:
        return launch(float{});
      case DType::kBF16:
        return launch(BFloat16{});
      case DType::kI32:
        return launch(int32_t{});
      case DType::kI64:
        return launch(int64_t{});
      default:
        REPLICANT_CHECK(false, "no reduction of {}", DTypeName(dtype));
    }
  }

  void Pack(std::span<const BucketPart> parts, DType from, std::byte* to,
            DType wire, Stream& stream) override {
    if (from == DType::kF32 && wire == DType::kF32) {
      return PackAs<float, float>(parts, from, to, wire, stream);
    }
    if (from == DType::kF32 && wire == DType::kBF16) {
      return PackAs<float, BFloat16>(parts, from, to, wire, stream);
    }
    if (from == DType::kBF16 && wire == DType::kBF16) {
      return PackAs<BFloat16, BFloat16>(parts, from, to, wire, stream);
    }
    REPLICANT_CHECK(from == wire, "{} of {}", DTypeName(wire), DTypeName(from));
    for (const BucketPart& part : parts) {
      const size_t size = static_cast<size_t>(part.count) * DTypeSize(from);
      if (part.data != to) stream.CopyOnDevice(to, part.data, size);
      to += size;
    }
  }

  void Unpack(const std::byte* from, DType wire, double factor,
              std::span<const BucketPart> parts, DType to,
              Stream& stream) override {
    if (to == DType::kF32 && wire == DType::kF32) {
      return UnpackAs<float, float>(from, wire, factor, parts, to, stream);
    }
    if (to == DType::kF32 && wire == DType::kBF16) {
      return UnpackAs<BFloat16, float>(from, wire, factor, parts, to, stream);
    }
    if (to == DType::kBF16 && wire == DType::kBF16) {
      return UnpackAs<BFloat16, BFloat16>(from, wire, factor, parts, to,
                                          stream);
    }
    REPLICANT_CHECK(to == wire && factor == 1.0, "{} of {} times {}",
                    DTypeName(to), DTypeName(wire), factor);
    for (const BucketPart& part : parts) {
      const size_t size = static_cast<size_t>(part.count) * DTypeSize(to);
      if (part.data != from) stream.CopyOnDevice(part.data, from, size);
      from += size;
    }
  }

 private:
  template <typename Call>
  std::string OfLibrary(const Call& call) {
    static_cast<void>(device_->driver());
    try {
      return call(*device_->libraries().nccl);
    } catch (const DeviceError& e) {
      throw DeviceError(fmt::format("{}: {}", device_->name(), e.what()));
    }
  }

  // Divides the parts among launches: f(parts of one launch, first element,
  // number of elements).
  template <typename T, typename Function>
  static void ForEachLaunch(std::span<const BucketPart> parts,
                            const Function& f) {
    int64_t begin = 0;
    while (!parts.empty()) {
      const auto now =
          parts.first(std::min<size_t>(parts.size(), kMaxBucketParts));
      parts = parts.subspan(now.size());
      BucketParts<T> some{};
      int64_t size = 0;
      for (const BucketPart& part : now) {
        // two parts at one place could not be distinguished
        if (part.count == 0) continue;
        some.first[some.count] = size;
        some.data[some.count++] = reinterpret_cast<T*>(part.data);
        size += part.count;
      }
      if (size > 0) f(some, now, begin, size);
      begin += size;
    }
  }

  static std::vector<MemoryRange> RangesOf(std::span<const BucketPart> parts,
                                           DType dtype) {
    std::vector<MemoryRange> ranges;
    for (const BucketPart& part : parts) {
      if (part.count == 0) continue;
      ranges.push_back(RangeOf(part.data, 0, part.count, dtype));
    }
    return ranges;
  }

  template <typename From, typename To>
  void PackAs(std::span<const BucketPart> parts, DType from, std::byte* to,
              DType wire, Stream& stream) {
    if (parts.size() == 1 && parts[0].data == to) return;
    ForEachLaunch<From>(parts, [&](const BucketParts<From>& some,
                                   std::span<const BucketPart> now,
                                   int64_t begin, int64_t size) {
      const std::array<MemoryRange, 1> writes = {
          RangeOf(to, begin, size, wire)};
      Launch(PackBucket<From, To>{.parts = some,
                                  .bucket = reinterpret_cast<To*>(to) + begin},
             size, RangesOf(now, from), writes, stream);
    });
  }

  template <typename From, typename To>
  void UnpackAs(const std::byte* from, DType wire, double factor,
                std::span<const BucketPart> parts, DType to, Stream& stream) {
    if (parts.size() == 1 && parts[0].data == from && factor == 1.0) return;
    ForEachLaunch<To>(
        parts, [&](const BucketParts<To>& some, std::span<const BucketPart> now,
                   int64_t begin, int64_t size) {
          const std::array<MemoryRange, 1> reads = {
              RangeOf(from, begin, size, wire)};
          Launch(
              UnpackBucket<From, To>{
                  .parts = some,
                  .bucket = reinterpret_cast<const From*>(from) + begin,
                  .factor = static_cast<float>(factor)},
              size, reads, RangesOf(now, to), stream);
        });
  }

  template <typename Body>
  void Launch(const Body& body, int64_t count,
              std::span<const MemoryRange> reads,
              std::span<const MemoryRange> writes, Stream& stream) {
    Driver& driver = device_->driver();
    KernelLaunch launch = LaunchOf(FunctionOf(KernelName<Body>::kName), count,
                                   KernelName<Body>::kIsRow);
    launch.argument = &body;
    launch.argument_size_bytes = sizeof body;
    launch.reads = reads;
    launch.writes = writes;
    device_->Check(driver.LaunchKernel(launch, HandleOf(stream)),
                   KernelName<Body>::kName);
  }

  CUfunction FunctionOf(std::string_view name) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    CUfunction& function = functions_[name];
    if (function == nullptr) function = device_->FindFunction(name.data());
    return function;
  }

  const std::shared_ptr<const Device> device_;
  Mutex mutex_;
  // by names of kernel_list.h
  std::map<std::string_view, CUfunction> functions_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<DeviceCollectives> MakeCollectivesOn(
    std::shared_ptr<const Device> device) {
  return std::make_unique<CudaCollectives>(std::move(device));
}

}  // namespace replicant::kernels::cuda
