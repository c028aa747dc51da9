#include "core/comm/mpi_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/process.h"
#include "core/comm/host_addresses.h"
#include "core/comm/liveness.h"
#include "core/tensor/host_buffer.h"

namespace replicant::comm {
namespace {

// Bytes that go to one rank at a time: small enough for caches, for MPI's int
// and for the memory that an all-reduce needs, large enough to forget latency.
constexpr size_t kPieceBytes = size_t{4} << 20;
// How long a rank polls for the others before it lets the processor rest.
constexpr auto kPolling = std::chrono::milliseconds(200);
constexpr auto kRest = std::chrono::microseconds(100);
constexpr int kTag = 0;

void Check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(fmt::format("{}: {}", call, text));
}
#define MPI_CALL(call) Check((call), #call)

// MPI for the life of the process.
class MpiProcess {
 public:
  static MpiProcess& Get() {
    static MpiProcess process;
    return process;
  }

  MpiProcess() {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) !=
            MPI_SUCCESS ||
        provided < MPI_THREAD_MULTIPLE) {
      throw CommError(
          "MPI_Init_thread: this MPI cannot be used by several threads");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }
  ~MpiProcess() {
    // finalising waits for all ranks, which may be the ones that are missing;
    // mpirun ends them all when one goes without
    if (!has_failed) MPI_Finalize();
  }
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  std::atomic<bool> has_failed{false};
};

// One message of an exchange.
struct Message {
  int peer = 0;
  bool is_send = false;
  std::byte* data = nullptr;
  size_t size_bytes = 0;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, const CommunicatorOptions& options)
      : comm_(comm), options_(options) {
    MPI_CALL(MPI_Comm_rank(comm_, &rank_));
    MPI_CALL(MPI_Comm_size(comm_, &size_));
  }
  ~MpiCommunicator() override {
    liveness_.reset();
    if (!MpiProcess::Get().has_failed) MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view transport() const override { return "mpi"; }

  // All ranks watch each other from now on.
  void Watch();

  std::unique_ptr<Communicator> Split(int color, int key) override {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_CALL(
        MPI_Comm_split(comm_, color < 0 ? MPI_UNDEFINED : color, key, &part));
    if (part == MPI_COMM_NULL) return nullptr;
    MPI_CALL(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN));
    auto result = std::make_unique<MpiCommunicator>(part, options_);
    result->liveness_ = liveness_;
    result->is_part_ = true;
    return result;
  }

  void Abort(const std::string& reason) override {
    End(reason, fmt::format("rank {} of {}: {}", rank_, size_, reason));
  }

 private:
  void DoRun(const Collective& c) override {
    ThrowIfAborted();
    call_ = &c;
    ++num_calls_;
    // the order of the calls is that of all ranks
    const Liveness::CallScope scope(is_part_ ? nullptr : liveness_.get(), c);
    try {
      switch (c.kind) {
        case Collective::Kind::kAllReduce:
          RunAllReduce(c);
          break;
        case Collective::Kind::kAllGather:
          RunAllGather(c);
          break;
        case Collective::Kind::kReduceScatter:
          RunReduceScatter(c);
          break;
        case Collective::Kind::kBroadcast:
          RunBroadcast(c);
          break;
        case Collective::Kind::kBarrier:
          for (int peer = 0; peer < size_; ++peer) SendAndReceive(peer, {}, {});
          Exchange();
          break;
      }
    } catch (const CommError& e) {
      End(e.what(), e.what());
      throw;
    }
  }

  void RunAllReduce(const Collective& c) {
    const size_t element = DTypeSize(c.in.dtype());
    const auto count = static_cast<size_t>(c.in.shape().num_elements());
    const auto ranks = static_cast<size_t>(size_);
    const size_t piece = ranks * (kPieceBytes / element);
    for (size_t begin = 0; begin < count; begin += piece) {
      const size_t n = std::min(piece, count - begin);
      const auto part_of = [&](size_t rank) {
        const Range part = PartOf(n, ranks, rank, /*granularity=*/1);
        return std::span(c.out.data() + (begin + part.begin) * element,
                         part.size() * element);
      };
      const auto in_of = [&](size_t rank) {
        const Range part = PartOf(n, ranks, rank, /*granularity=*/1);
        return c.in.bytes().subspan((begin + part.begin) * element,
                                    part.size() * element);
      };
      const std::span<std::byte> own = part_of(static_cast<size_t>(rank_));
      GatherAndReduce(c, in_of, own);
      for (int peer = 0; peer < size_; ++peer) {
        SendAndReceive(peer, own, part_of(static_cast<size_t>(peer)));
      }
      Exchange();
    }
  }

  void RunReduceScatter(const Collective& c) {
    const size_t row = c.out.size_bytes();
    for (size_t begin = 0; begin < row; begin += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, row - begin);
      GatherAndReduce(
          c,
          [&](size_t rank) {
            return c.in.bytes().subspan(rank * row + begin, n);
          },
          c.out.bytes().subspan(begin, n));
    }
  }

  // Sends every rank in_of(rank), and reduces what comes for this one to `out`.
  template <typename InOf>
  void GatherAndReduce(const Collective& c, const InOf& in_of,
                       std::span<std::byte> out) {
    const auto ranks = static_cast<size_t>(size_);
    if (scratch_.size_bytes() < out.size() * ranks) {
      scratch_ = HostBuffer(out.size() * ranks);
    }
    inputs_.clear();
    for (size_t peer = 0; peer < ranks; ++peer) {
      std::byte* const arrived = scratch_.data() + peer * out.size();
      const bool is_own = peer == static_cast<size_t>(rank_);
      inputs_.push_back(is_own ? in_of(peer).data() : arrived);
      SendAndReceive(static_cast<int>(peer), in_of(peer),
                     {arrived, out.size()});
    }
    Exchange();
    std::byte* const outputs[] = {out.data()};
    Reduce(c.op, c.in.dtype(), inputs_, outputs, 0,
           out.size() / DTypeSize(c.in.dtype()), c.factor);
  }

  void RunAllGather(const Collective& c) {
    const size_t row = c.in.size_bytes();
    std::byte* const own = c.out.data() + static_cast<size_t>(rank_) * row;
    if (row > 0 && own != c.in.data()) std::memcpy(own, c.in.data(), row);
    for (size_t begin = 0; begin < row; begin += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, row - begin);
      for (int peer = 0; peer < size_; ++peer) {
        SendAndReceive(
            peer, {own + begin, n},
            c.out.bytes().subspan(static_cast<size_t>(peer) * row + begin, n));
      }
      Exchange();
    }
  }

  void RunBroadcast(const Collective& c) {
    const size_t size = c.in.size_bytes();
    if (rank_ == c.source && size > 0 && c.out.data() != c.in.data()) {
      std::memcpy(c.out.data(), c.in.data(), size);
    }
    for (size_t begin = 0; begin < size; begin += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, size - begin);
      if (rank_ != c.source) {
        messages_.push_back(
            {c.source, /*is_send=*/false, c.out.data() + begin, n});
      } else {
        for (int peer = 0; peer < size_; ++peer) {
          if (peer == rank_) continue;
          messages_.push_back({peer, /*is_send=*/true,
                               const_cast<std::byte*>(c.in.data()) + begin, n});
        }
      }
      Exchange();
    }
  }

  // Notes two messages of the next exchange; none with oneself.
  void SendAndReceive(int peer, std::span<const std::byte> send,
                      std::span<std::byte> receive) {
    if (peer == rank_) return;
    messages_.push_back(
        {peer, /*is_send=*/false, receive.data(), receive.size()});
    // MPI only reads it
    messages_.push_back({peer, /*is_send=*/true,
                         const_cast<std::byte*>(send.data()), send.size()});
  }

  // Sends and receives all messages noted.
  void Exchange() {
    requests_.assign(messages_.size(), MPI_REQUEST_NULL);
    for (size_t i = 0; i < messages_.size(); ++i) {
      const Message& m = messages_[i];
      const auto size = static_cast<int>(m.size_bytes);
      if (m.is_send) {
        MPI_CALL(MPI_Isend(m.data, size, MPI_BYTE, m.peer, kTag, comm_,
                           &requests_[i]));
      } else {
        MPI_CALL(MPI_Irecv(m.data, size, MPI_BYTE, m.peer, kTag, comm_,
                           &requests_[i]));
      }
    }
    WaitForAll();
    messages_.clear();
  }

  void WaitForAll() {
    const Clock::TimePoint start = Clock::Real().Now();
    while (true) {
      int is_done = 0;
      MPI_CALL(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(),
                           &is_done, MPI_STATUSES_IGNORE));
      if (is_done != 0) return;
      ThrowIfAborted();
      const Clock::Duration waited = Clock::Real().Now() - start;
      if (waited > options_.timeout) throw CommError(DescribeMissing());
      if (waited < kPolling) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kRest);
      }
    }
  }

  std::string DescribeMissing() {
    std::vector<int> missing;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int is_done = 0;
      MPI_Test(&requests_[i], &is_done, MPI_STATUS_IGNORE);
      if (is_done == 0) missing.push_back(messages_[i].peer);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    return fmt::format(
        "mpi: rank {} of {} waited {} s in call {}, {}, for "
        "rank {}",
        rank_, size_, static_cast<double>(options_.timeout.count()) / 1e3,
        num_calls_, call_->ToString(), fmt::join(missing, ", rank "));
  }

  // Nothing goes any more, for the reason; the others are told, if `to_others`
  // says something.
  void End(const std::string& reason, const std::string& to_others)
      EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (is_aborted_) return;
      reason_ = reason;
      is_aborted_ = true;
      MpiProcess::Get().has_failed = true;
    }
    if (liveness_ && !to_others.empty()) liveness_->Report(to_others);
  }

  void ThrowIfAborted() EXCLUDES(mutex_) {
    if (liveness_ && liveness_->has_verdict()) {
      End(liveness_->verdict(), /*to_others=*/"");
    }
    if (!is_aborted_) return;
    const MutexLock lock(mutex_);
    throw CommError(
        fmt::format("mpi, rank {} of {}: {}", rank_, size_, reason_));
  }

  MPI_Comm comm_;
  const CommunicatorOptions options_;
  int rank_ = 0;
  int size_ = 1;
  // null where nobody watches
  std::shared_ptr<Liveness> liveness_;
  bool is_part_ = false;
  // the call under way, and how many there were
  const Collective* call_ = nullptr;
  uint64_t num_calls_ = 0;
  // kept so that calls allocate nothing
  std::vector<Message> messages_;
  std::vector<MPI_Request> requests_;
  std::vector<const std::byte*> inputs_;
  HostBuffer scratch_{0};

  std::atomic<bool> is_aborted_{false};
  Mutex mutex_;
  std::string reason_ GUARDED_BY(mutex_);
};

void MpiCommunicator::Watch() {
  // where each rank is
  struct Place {
    std::array<char, 256> network{};
    std::array<char, 256> process{};
  };
  const auto copy = [](const std::string& from, std::array<char, 256>* to) {
    from.copy(to->data(), to->size() - 1);
  };
  Place own;
  copy(NetworkName(), &own.network);
  copy(HostAndPid(), &own.process);
  std::vector<Place> places(static_cast<size_t>(size_));
  MPI_CALL(MPI_Allgather(&own, sizeof(Place), MPI_BYTE, places.data(),
                         sizeof(Place), MPI_BYTE, comm_));
  Liveness::Group group{.rank = rank_};
  for (const Place& place : places) {
    group.places.emplace_back(place.process.data());
    group.is_one_host &= place.network == places[0].network;
  }
  const auto broadcast = [this](const std::string& text) {
    auto size = static_cast<int>(text.size());
    MPI_CALL(MPI_Bcast(&size, 1, MPI_INT, /*root=*/0, comm_));
    std::string all = text;
    all.resize(static_cast<size_t>(size));
    MPI_CALL(MPI_Bcast(all.data(), size, MPI_BYTE, /*root=*/0, comm_));
    return all;
  };
  try {
    liveness_ = std::make_shared<Liveness>(
        Liveness::Options{.interval = options_.heartbeat_interval,
                          .timeout = options_.heartbeat_timeout},
        std::move(group), broadcast);
  } catch (...) {
    MpiProcess::Get().has_failed = true;
    throw;
  }
}

}  // namespace

bool HasMpi() { return true; }

int NumMpiProcesses() {
  const char* const text = std::getenv("OMPI_COMM_WORLD_SIZE");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options) {
  MpiProcess::Get();
  MPI_Comm world = MPI_COMM_NULL;
  MPI_CALL(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  MPI_CALL(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN));
  auto communicator = std::make_unique<MpiCommunicator>(world, options);
  if (communicator->size() > 1 && options.heartbeat_timeout.count() > 0) {
    communicator->Watch();
  }
  return communicator;
}

}  // namespace replicant::comm
