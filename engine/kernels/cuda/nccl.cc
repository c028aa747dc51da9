#include <fmt/format.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/shared_library.h"
#include "engine/kernels/cuda/nccl_library.h"

namespace replicant::kernels::cuda {
namespace {

// The library accepts the configuration of an older nccl.h, but not of a newer
// one.
constexpr int kMinVersion = NCCL_VERSION_CODE / 100 * 100;
// How long an ending rank waits for the others before it drops them.
constexpr auto kFinalizeTime = std::chrono::seconds(5);

std::string NcclVersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100,
                     version % 100);
}

struct NcclFunctions {
  explicit NcclFunctions(const SharedLibrary& library) {
    library.Find("ncclGetVersion", &get_version);
    library.Find("ncclGetUniqueId", &get_unique_id);
    library.Find("ncclCommInitRankConfig", &init_rank);
    library.Find("ncclCommFinalize", &finalize);
    library.Find("ncclCommDestroy", &destroy);
    library.Find("ncclCommAbort", &abort);
    library.Find("ncclCommGetAsyncError", &async_error);
    library.Find("ncclGetErrorString", &error_text);
    library.Find("ncclGetLastError", &last_error);
    library.Find("ncclAllReduce", &all_reduce);
    library.Find("ncclAllGather", &all_gather);
    library.Find("ncclReduceScatter", &reduce_scatter);
    library.Find("ncclBroadcast", &broadcast);
  }

  // "unhandled system error: socket ... closed".
  std::string Describe(ncclResult_t result) const {
    const char* detail = last_error(nullptr);
    std::string text = error_text(result);
    if (detail != nullptr && *detail != '\0')
      text += fmt::format(": {}", detail);
    return text;
  }
  void Check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    throw DeviceError(fmt::format("{}: {}", call, Describe(result)));
  }

  decltype(ncclGetVersion)* get_version;
  decltype(ncclGetUniqueId)* get_unique_id;
  decltype(ncclCommInitRankConfig)* init_rank;
  decltype(ncclCommFinalize)* finalize;
  decltype(ncclCommDestroy)* destroy;
  decltype(ncclCommAbort)* abort;
  decltype(ncclCommGetAsyncError)* async_error;
  decltype(ncclGetErrorString)* error_text;
  decltype(ncclGetLastError)* last_error;
  decltype(ncclAllReduce)* all_reduce;
  decltype(ncclAllGather)* all_gather;
  decltype(ncclReduceScatter)* reduce_scatter;
  decltype(ncclBroadcast)* broadcast;
};

ncclRedOp_t OpOf(DeviceReduceOp op) {
  switch (op) {
    case DeviceReduceOp::kSum:
      return ncclSum;
    case DeviceReduceOp::kMin:
      return ncclMin;
    case DeviceReduceOp::kMax:
      return ncclMax;
    case DeviceReduceOp::kProd:
      return ncclProd;
  }
  REPLICANT_CHECK(false, "DeviceReduceOp {}", static_cast<int>(op));
}

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
    case DType::kBool:
      return ncclUint8;
  }
  REPLICANT_CHECK(false, "DType {}", static_cast<int>(dtype));
}

class LoadedRank final : public NcclRank {
 public:
  LoadedRank(std::shared_ptr<const NcclFunctions> functions,
             const ncclUniqueId& unique_id, int rank, int size)
      : functions_(std::move(functions)), f_(*functions_), size_(size) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    f_.Check(f_.init_rank(&comm_, size, unique_id, rank, &config),
             "ncclCommInitRankConfig");
  }
  ~LoadedRank() override {
    if (comm_ == nullptr) return;
    Leave();
    // the others may still read this rank's memory
    const auto end = std::chrono::steady_clock::now() + kFinalizeTime;
    ncclResult_t state = ncclInProgress;
    while (f_.async_error(comm_, &state) == ncclSuccess &&
           state == ncclInProgress && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    if (state == ncclSuccess) {
      f_.destroy(comm_);
    } else {
      f_.abort(comm_);
    }
  }
  LoadedRank(const LoadedRank&) = delete;
  LoadedRank& operator=(const LoadedRank&) = delete;

  void Launch(const DeviceCall& call, CUstream stream) override {
    if (call.count == 0) return;
    const auto count = static_cast<size_t>(call.count);
    const ncclDataType_t type = TypeOf(call.dtype);
    switch (call.kind) {
      case DeviceCall::Kind::kAllReduce:
        f_.Check(f_.all_reduce(call.in, call.out, count, type, OpOf(call.op),
                               comm_, stream),
                 "ncclAllReduce");
        break;
      case DeviceCall::Kind::kAllGather:
        f_.Check(f_.all_gather(call.in, call.out, count, type, comm_, stream),
                 "ncclAllGather");
        break;
      case DeviceCall::Kind::kReduceScatter:
        f_.Check(f_.reduce_scatter(call.in, call.out,
                                   count / static_cast<size_t>(size_), type,
                                   OpOf(call.op), comm_, stream),
                 "ncclReduceScatter");
        break;
      case DeviceCall::Kind::kBroadcast:
        f_.Check(f_.broadcast(call.in, call.out, count, type, call.source,
                              comm_, stream),
                 "ncclBroadcast");
        break;
    }
  }

  DeviceRank::Status Poll() override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = f_.async_error(comm_, &state);
    if (result != ncclSuccess) state = result;
    if (state == ncclSuccess) return {};
    if (state == ncclInProgress) return {DeviceRank::State::kInProgress};
    return {DeviceRank::State::kFailed, f_.Describe(state)};
  }

  void Leave() override {
    if (is_leaving_) return;
    is_leaving_ = true;
    // the outcome is seen when the rank is destroyed
    static_cast<void>(f_.finalize(comm_));
  }

  void Abort() override { f_.abort(std::exchange(comm_, nullptr)); }

 private:
  const std::shared_ptr<const NcclFunctions> functions_;
  const NcclFunctions& f_;
  const int size_;
  ncclComm_t comm_ = nullptr;  // freed by the library when it aborts
  bool is_leaving_ = false;
};

class Nccl : public NcclLibrary {
 public:
  explicit Nccl(std::string file) : file_(std::move(file)) {}

  std::string version() override {
    const MutexLock lock(mutex_);
    Load();
    return NcclVersionText(version_);
  }

  std::string NewUniqueId() override {
    const MutexLock lock(mutex_);
    Load();
    ncclUniqueId id{};
    functions_->Check(functions_->get_unique_id(&id), "ncclGetUniqueId");
    return {id.internal, sizeof id.internal};
  }

  std::unique_ptr<NcclRank> Join(const std::string& unique_id, int rank,
                                 int size) override {
    const MutexLock lock(mutex_);
    Load();
    ncclUniqueId id{};
    REPLICANT_CHECK_EQ(unique_id.size(), sizeof id.internal);
    std::memcpy(id.internal, unique_id.data(), sizeof id.internal);
    return std::make_unique<LoadedRank>(functions_, id, rank, size);
  }

 private:
  void Load() REQUIRES(mutex_) {
    if (functions_ != nullptr) return;
    const SharedLibrary library(
        file_,
        "install NCCL 2, name its folder in LD_LIBRARY_PATH, or set "
        "learner.replication.collectives: host");
    const auto functions = std::make_shared<NcclFunctions>(library);
    functions->Check(functions->get_version(&version_), "ncclGetVersion");
    if (version_ < kMinVersion) {
      throw DeviceError(fmt::format(
          "NCCL {} is installed, want {} or newer; hint: update NCCL, or set "
          "learner.replication.collectives: host",
          NcclVersionText(version_), NcclVersionText(kMinVersion)));
    }
    functions_ = functions;
  }

  const std::string file_;
  Mutex mutex_;
  std::shared_ptr<const NcclFunctions> functions_ GUARDED_BY(mutex_);
  int version_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<NcclLibrary> MakeNccl(std::string file) {
  return std::make_unique<Nccl>(std::move(file));
}

}  // namespace replicant::kernels::cuda
