#include "replicator/comm/mpi_exchange.h"

#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"

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

int RankIn(MPI_Comm comm) {
  int rank = 0;
  MPI_CALL(MPI_Comm_rank(comm, &rank));
  return rank;
}

int SizeOf(MPI_Comm comm) {
  int size = 0;
  MPI_CALL(MPI_Comm_size(comm, &size));
  return size;
}

}  // namespace

std::shared_ptr<MpiExchange> MpiExchange::OfAllProcesses(
    const CommunicatorOptions& options) {
  MpiProcess::Get();
  MPI_Comm world = MPI_COMM_NULL;
  MPI_CALL(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  auto exchange = std::make_shared<MpiExchange>(world, options);
  try {
    exchange->MeetOthers(HostAndPid());
  } catch (...) {
    MpiProcess::Get().has_failed = true;
    throw;
  }
  return exchange;
}

MpiExchange::MpiExchange(MPI_Comm comm, const CommunicatorOptions& options)
    : ProcessExchange(RankIn(comm), SizeOf(comm), options), comm_(comm) {
  MPI_CALL(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
}

MpiExchange::~MpiExchange() {
  StopWatching();
  if (!MpiProcess::Get().has_failed) MPI_Comm_free(&comm_);
}

std::shared_ptr<ProcessExchange> MpiExchange::Split(bool is_member) {
  const std::vector<int> members = GatherMembers(is_member);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_CALL(
      MPI_Comm_split(comm_, is_member ? 0 : MPI_UNDEFINED, /*key=*/0, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  auto result = std::make_shared<MpiExchange>(part, options());
  result->BecomePartOf(*this, members);
  return result;
}

void MpiExchange::Move(std::span<const Message> messages) {
  requests_.assign(messages.size(), MPI_REQUEST_NULL);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    const auto size = static_cast<int>(m.size_bytes);
    if (m.is_send) {
      MPI_CALL(MPI_Isend(m.data, size, MPI_BYTE, m.peer, kTag, comm_,
                         &requests_[i]));
    } else {
      MPI_CALL(MPI_Irecv(m.data, size, MPI_BYTE, m.peer, kTag, comm_,
                         &requests_[i]));
    }
  }
  const Clock::TimePoint start = Clock::Real().Now();
  while (true) {
    int is_done = 0;
    MPI_CALL(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(),
                         &is_done, MPI_STATUSES_IGNORE));
    if (is_done != 0) return;
    ThrowIfAborted();
    const Clock::Duration waited = Clock::Real().Now() - start;
    if (waited > options().timeout) break;
    if (waited < kPolling) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kRest);
    }
  }
  std::vector<int> missing;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int is_done = 0;
    MPI_Test(&requests_[i], &is_done, MPI_STATUS_IGNORE);
    if (is_done == 0) missing.push_back(messages[i].peer);
  }
  ThrowMissing(std::move(missing));
}

void MpiExchange::OnEnd() { MpiProcess::Get().has_failed = true; }

}  // namespace replicant::comm
