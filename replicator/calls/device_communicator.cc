#include "replicator/calls/device_communicator.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/mutex.h"
#include "replicator/comm/thread_group.h"

namespace replicant::replicator {
namespace {

using comm::Collective;
using kernels::Backend;
using kernels::DeviceCall;
using kernels::DeviceCollectives;
using kernels::DeviceRank;
using kernels::DeviceReduceOp;
using kernels::Event;
using kernels::Stream;

constexpr size_t kCacheLine = 64;
// How often a call that the library still prepares is looked at.
constexpr auto kPollInterval = std::chrono::microseconds(50);

DeviceReduceOp ToDeviceOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return DeviceReduceOp::kSum;
    case ReduceOp::kMin:
      return DeviceReduceOp::kMin;
    case ReduceOp::kMax:
      return DeviceReduceOp::kMax;
    case ReduceOp::kProd:
      return DeviceReduceOp::kProd;
    case ReduceOp::kMean:
      break;
  }
  REPLICANT_CHECK(false, "a mean is a sum with a factor");
}

DeviceCall ToDeviceCall(const Collective& c) {
  DeviceCall call{.source = c.source,
                  .dtype = c.in.dtype(),
                  .in = c.in.data(),
                  .out = c.out.data(),
                  .count = c.in.shape().num_elements()};
  switch (c.kind) {
    case Collective::Kind::kAllReduce:
      call.kind = DeviceCall::Kind::kAllReduce;
      call.op = ToDeviceOp(c.op);
      return call;
    case Collective::Kind::kAllGather:
      call.kind = DeviceCall::Kind::kAllGather;
      return call;
    case Collective::Kind::kReduceScatter:
      call.kind = DeviceCall::Kind::kReduceScatter;
      call.op = ToDeviceOp(c.op);
      return call;
    case Collective::Kind::kBroadcast:
      call.kind = DeviceCall::Kind::kBroadcast;
      return call;
    case Collective::Kind::kBarrier:
      break;
  }
  REPLICANT_CHECK(false, "a barrier has no operands on a device");
}

// The state that both kinds have: how they failed, and what they do.
class Communicator : public DeviceCommunicator {
 public:
  const std::string& name() const override { return name_; }
  std::string WhyNot(DType dtype) const override {
    if (collectives_.CanReduce(dtype)) return {};
    return fmt::format("no kernel reduces {}", DTypeName(dtype));
  }
  void Abort(const std::string& reason) override {
    {
      const MutexLock lock(mutex_);
      if (!failure_.empty()) return;
      failure_ = reason;
      changed_.NotifyAll();
    }
    EndCalls(reason);
  }
  std::string failure() const override {
    const MutexLock lock(mutex_);
    return failure_;
  }
  std::string last_call() const override {
    const MutexLock lock(mutex_);
    if (num_calls_ == 0) return "call 0, join";
    return fmt::format("call {}, {}", num_calls_, last_call_.ToString());
  }

 protected:
  Communicator(Backend& backend, std::string name)
      : collectives_(*backend.collectives()),
        name_(std::move(name)),
        stream_(backend.CreateStream()),
        ready_(backend.CreateEvent()) {}

  // Ends what is under way; failure() is set.
  virtual void EndCalls(const std::string& reason) = 0;

  // Notes the call; throws if the group has failed.
  void Begin(const Collective& call) {
    const MutexLock lock(mutex_);
    ThrowIfFailed();
    last_call_ = call;
    ++num_calls_;
  }
  void ThrowIfFailed() REQUIRES(mutex_) {
    if (failure_.empty()) return;
    throw CommError(fmt::format("{}: {}", name_, failure_));
  }

  DeviceCollectives& collectives_;
  const std::string name_;
  const std::unique_ptr<Stream> stream_;
  // what the call's operands wait for
  const std::unique_ptr<Event> ready_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::string failure_ GUARDED_BY(mutex_);
  // its place outlives the plan
  Collective last_call_ GUARDED_BY(mutex_);
  uint64_t num_calls_ GUARDED_BY(mutex_) = 0;
};

// What the replicas on one device share.
struct SharedDevice {
  SharedDevice(int size, const comm::CommunicatorOptions& options)
      : ranks(size, options,
              {.member = "rank", .transport = "replicas of one device"}),
        ready(static_cast<size_t>(size)),
        done(static_cast<size_t>(size)) {}

  comm::ThreadGroup ranks;
  // by rank: when its operands are there, and when its part is done
  std::vector<Event*> ready;
  std::vector<Event*> done;
};

// A call, by rank: the hosts' barrier ends once all have recorded `ready`, each
// waits for all of these and computes its part; the second one ends once all
// have recorded `done`, and each waits for these before it goes on. A rank
// records an event again after the barrier that follows all waits for it.
class SharedCommunicator : public Communicator {
 public:
  SharedCommunicator(Backend& backend, std::shared_ptr<SharedDevice> shared,
                     int rank)
      : Communicator(backend,
                     fmt::format("rank {} of {} ({})", rank,
                                 shared->ranks.size(), backend.device())),
        shared_(std::move(shared)),
        rank_(rank),
        done_(backend.CreateEvent()) {
    shared_->ready[static_cast<size_t>(rank)] = ready_.get();
    shared_->done[static_cast<size_t>(rank)] = done_.get();
  }

  void Launch(const Collective& call, Stream& stream, Event& done) override {
    Begin(call);
    stream.Record(*ready_);
    shared_->ranks.Enter(rank_, call);
    for (Event* event : shared_->ready) stream_->Wait(*event);
    LaunchOwnPart(call);
    stream_->Record(*done_);
    shared_->ranks.Barrier(rank_);
    for (Event* event : shared_->done) stream_->Wait(*event);
    stream_->Record(done);
  }
  std::string Poll() override { return {}; }
  // a barrier of the hosts in each call
  bool can_record() const override { return false; }
  void AwaitOthers() override {}
  void Leave() override {}

 private:
  void EndCalls(const std::string& reason) override {
    shared_->ranks.Abort(reason);
  }

  const Collective& CallOf(size_t rank) const {
    return shared_->ranks.call_of(rank);
  }
  size_t size() const { return shared_->ready.size(); }

  void LaunchOwnPart(const Collective& c) {
    switch (c.kind) {
      case Collective::Kind::kAllReduce:
        return ReduceOwnPart(c);
      case Collective::Kind::kReduceScatter:
        return ReduceOwnRow(c);
      case Collective::Kind::kAllGather:
        for (size_t r = 0; r < size(); ++r) {
          const TensorView& in = CallOf(r).in;
          Copy(in, c.out.data() + r * in.size_bytes());
        }
        return;
      case Collective::Kind::kBroadcast:
        return Copy(CallOf(static_cast<size_t>(c.source)).in, c.out.data());
      case Collective::Kind::kBarrier:
        return;
    }
  }
  void Copy(const TensorView& from, std::byte* to) {
    if (from.data() == to) return;
    stream_->CopyOnDevice(to, from.data(), from.size_bytes());
  }
  // One part of the elements, for all replicas.
  void ReduceOwnPart(const Collective& c) {
    std::array<const std::byte*, DeviceCollectives::kMaxSharers> inputs;
    std::array<std::byte*, DeviceCollectives::kMaxSharers> outputs;
    for (size_t r = 0; r < size(); ++r) {
      inputs[r] = CallOf(r).in.data();
      outputs[r] = CallOf(r).out.data();
    }
    const comm::Range part = comm::PartOf(
        static_cast<size_t>(c.in.shape().num_elements()), size(),
        static_cast<size_t>(rank_), kCacheLine / DTypeSize(c.in.dtype()));
    collectives_.Reduce(
        ToDeviceOp(c.op), c.in.dtype(), std::span(inputs).first(size()),
        std::span(outputs).first(size()), static_cast<int64_t>(part.begin),
        static_cast<int64_t>(part.end), *stream_);
  }
  void ReduceOwnRow(const Collective& c) {
    std::array<const std::byte*, DeviceCollectives::kMaxSharers> inputs;
    const size_t row = static_cast<size_t>(rank_) * c.out.size_bytes();
    for (size_t r = 0; r < size(); ++r) inputs[r] = CallOf(r).in.data() + row;
    std::array<std::byte*, 1> output = {c.out.data()};
    collectives_.Reduce(ToDeviceOp(c.op), c.in.dtype(),
                        std::span(inputs).first(size()), output, 0,
                        c.out.shape().num_elements(), *stream_);
  }

  const std::shared_ptr<SharedDevice> shared_;
  const int rank_;
  const std::unique_ptr<Event> done_;
};

class LibraryCommunicator : public Communicator {
 public:
  LibraryCommunicator(Backend& backend, const std::string& group,
                      const comm::Communicator* host,
                      const comm::CommunicatorOptions& options)
      : Communicator(backend,
                     fmt::format("nccl, rank {} of {} ({})", host->rank(),
                                 host->size(), backend.device())),
        host_(*host),
        timeout_(options.timeout),
        rank_(collectives_.Join(group, host->rank(), host->size())) {}
  ~LibraryCommunicator() override {
    // the others must not wait for a rank that ends with an error
    if (!failure().empty()) rank_->Abort();
  }

  void Launch(const Collective& call, Stream& stream, Event& done) override {
    Begin(call);
    stream.Record(*ready_);
    stream_->Wait(*ready_);
    rank_->Launch(ToDeviceCall(call), *stream_);
    AwaitLibrary();
    stream_->Record(done);
  }

  bool can_record() const override { return true; }
  void AwaitOthers() override { AwaitLibrary(); }
  void Leave() override { rank_->Leave(); }

  std::string Poll() override {
    std::string on_host = host_.Failure();
    if (!on_host.empty()) return on_host;
    const DeviceRank::Status status = rank_->Poll();
    return status.state == DeviceRank::State::kFailed ? status.problem
                                                      : std::string();
  }

 private:
  void EndCalls(const std::string& /*reason*/) override { rank_->Abort(); }

  // Waits until the library has queued what it was given. The first call
  // connects to the others, which may never come.
  void AwaitLibrary() {
    const auto deadline = Clock::Real().Now() + timeout_;
    DeviceRank::Status status = rank_->Poll();
    while (status.state == DeviceRank::State::kInProgress) {
      const auto now = Clock::Real().Now();
      if (now >= deadline) {
        status = {DeviceRank::State::kFailed,
                  fmt::format("waited {} s for the others in {}",
                              ToSeconds(timeout_), last_call())};
        break;
      }
      {
        const MutexLock lock(mutex_);
        ThrowIfFailed();
        Clock::Real().WaitUntil(
            mutex_, changed_, now + kPollInterval,
            [&]() REQUIRES(mutex_) { return !failure_.empty(); });
        ThrowIfFailed();
      }
      status = rank_->Poll();
      const std::string on_host = host_.Failure();
      if (!on_host.empty()) status = {DeviceRank::State::kFailed, on_host};
    }
    if (status.state == DeviceRank::State::kReady) return;
    // an abort looks like a failure of the library
    if (failure().empty()) Abort(status.problem);
    const MutexLock lock(mutex_);
    ThrowIfFailed();
  }

  const comm::Communicator& host_;
  const std::chrono::milliseconds timeout_;
  const std::unique_ptr<DeviceRank> rank_;
};

}  // namespace

std::vector<std::unique_ptr<DeviceCommunicator>> MakeSharedDeviceCommunicators(
    const std::vector<Backend*>& backends,
    const comm::CommunicatorOptions& options) {
  const auto size = static_cast<int>(backends.size());
  if (size > DeviceCollectives::kMaxSharers) {
    throw InvalidArgument(fmt::format("{} replicas on {}; allowed: up to {}",
                                      size, backends[0]->device(),
                                      DeviceCollectives::kMaxSharers));
  }
  const auto shared = std::make_shared<SharedDevice>(size, options);
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators;
  communicators.reserve(backends.size());
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<SharedCommunicator>(
        *backends[static_cast<size_t>(rank)], shared, rank));
  }
  return communicators;
}

std::unique_ptr<DeviceCommunicator> MakeLibraryCommunicator(
    Backend& backend, const std::string& group, const comm::Communicator* host,
    const comm::CommunicatorOptions& options) {
  return std::make_unique<LibraryCommunicator>(backend, group, host, options);
}

}  // namespace replicant::replicator
