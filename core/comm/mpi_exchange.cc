#include "core/comm/mpi_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/process.h"
#include "core/comm/host_addresses.h"

namespace replicant::comm {
namespace {

// Time to poll for other processes before yielding the processor.
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

// MPI, for the life of the process.
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
    // finalising would wait for all ranks, one of which may be lost; mpirun
    // ends them all when a process exits without it
    if (!has_failed) MPI_Finalize();
  }
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  std::atomic<bool> has_failed{false};
};

}  // namespace

std::shared_ptr<MpiExchange> MpiExchange::OfAllProcesses(
    const CommunicatorOptions& options) {
  MpiProcess::Get();
  MPI_Comm world = MPI_COMM_NULL;
  MPI_CALL(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  auto exchange = std::make_shared<MpiExchange>(world, options);
  if (exchange->num_processes_ > 1 && options.heartbeat_timeout.count() > 0) {
    exchange->Watch();
  }
  return exchange;
}

MpiExchange::MpiExchange(MPI_Comm comm, const CommunicatorOptions& options)
    : comm_(comm), options_(options) {
  MPI_CALL(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  MPI_CALL(MPI_Comm_rank(comm_, &process_));
  MPI_CALL(MPI_Comm_size(comm_, &num_processes_));
}

MpiExchange::~MpiExchange() {
  liveness_.reset();
  if (!MpiProcess::Get().has_failed) MPI_Comm_free(&comm_);
}

std::shared_ptr<MpiExchange> MpiExchange::Split(bool is_member) {
  MPI_Comm part = MPI_COMM_NULL;
  MPI_CALL(
      MPI_Comm_split(comm_, is_member ? 0 : MPI_UNDEFINED, /*key=*/0, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  auto result = std::make_shared<MpiExchange>(part, options_);
  result->liveness_ = liveness_;
  result->is_part_ = true;
  return result;
}

std::vector<int32_t> MpiExchange::GatherNumbers(int32_t own) {
  std::vector<int32_t> all(static_cast<size_t>(num_processes_));
  MPI_CALL(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own),
                         MPI_BYTE, comm_));
  return all;
}

void MpiExchange::Send(int peer, std::span<const std::byte> bytes) {
  REPLICANT_CHECK(peer != process_, "process {} sends to itself", peer);
  // MPI only reads it
  messages_.push_back({peer, /*is_send=*/true,
                       const_cast<std::byte*>(bytes.data()), bytes.size()});
}

void MpiExchange::Receive(int peer, std::span<std::byte> bytes) {
  REPLICANT_CHECK(peer != process_, "process {} hears from itself", peer);
  messages_.push_back({peer, /*is_send=*/false, bytes.data(), bytes.size()});
}

void MpiExchange::Exchange() {
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

void MpiExchange::WaitForAll() {
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

std::string MpiExchange::DescribeMissing() {
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
      process_, num_processes_,
      static_cast<double>(options_.timeout.count()) / 1e3, num_calls_,
      call_->ToString(), fmt::join(missing, ", rank "));
}

void MpiExchange::Abort(const std::string& reason) {
  End(reason,
      fmt::format("rank {} of {}: {}", process_, num_processes_, reason));
}

void MpiExchange::End(const std::string& reason, const std::string& to_others) {
  {
    const MutexLock lock(mutex_);
    if (is_aborted_) return;
    reason_ = reason;
    is_aborted_ = true;
    MpiProcess::Get().has_failed = true;
  }
  if (liveness_ && !to_others.empty()) liveness_->Report(to_others);
}

void MpiExchange::ThrowIfAborted() {
  if (liveness_ && liveness_->has_verdict()) {
    End(liveness_->verdict(), /*to_others=*/"");
  }
  if (!is_aborted_) return;
  const MutexLock lock(mutex_);
  throw CommError(
      fmt::format("mpi, rank {} of {}: {}", process_, num_processes_, reason_));
}

void MpiExchange::Watch() {
  // where each rank runs
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
  std::vector<Place> places(static_cast<size_t>(num_processes_));
  MPI_CALL(MPI_Allgather(&own, sizeof(Place), MPI_BYTE, places.data(),
                         sizeof(Place), MPI_BYTE, comm_));
  Liveness::Group group{.rank = process_};
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

}  // namespace replicant::comm
