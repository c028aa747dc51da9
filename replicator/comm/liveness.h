#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/rpc/client.h"
#include "base/rpc/server.h"
#include "base/rpc/wake_queue.h"
#include "base/rpc/zap.h"
#include "base/thread.h"
#include "replicator/comm/communicator.h"
#include "replicator/comm/rank_table.h"

namespace replicant::comm {

// Finds the process of a group that is dead or stalled, names it to all others
// and ends their calls, for a transport that cannot (MPI).
//
// Once per interval a thread of every rank reports its current call to the
// first rank, over ZeroMQ. The first rank holds one request of each rank at all
// times, and answers it when the next one comes. The answer is immediate in two
// cases: when there is a verdict, so that all ranks learn it at the same
// moment, and when no request comes for two intervals, because a failed answer
// reveals a broken connection. RankTable decides when the first rank gives up
// another one. Every other rank gives up the first one by the same rule.
//
// The verdict names the lost rank and the call that it is missing from, or it
// is the reason that a rank gave to Report(). Every rank logs it. Waits check
// has_verdict() and throw. A rank in a call that cannot be interrupted exits
// with _Exit(1) if it has not destroyed its Liveness within `end_grace`.
//
// The channel is encrypted (CURVE). The first rank makes the keys for the run;
// `broadcast` passes them to the others together with its address.
//
// Thread-safety: all methods may be called from any thread.
class Liveness {
 public:
  struct Options {
    Clock::Duration interval = std::chrono::milliseconds(200);
    // Maximum silence.
    Clock::Duration timeout = std::chrono::seconds(10);
    // Time for a process to end by itself after a verdict.
    Clock::Duration end_grace = std::chrono::seconds(5);
    // The clock that measures silence.
    const Clock* clock = &Clock::Real();
  };
  struct Group {
    int rank = 0;
    // The place of each rank, "host12/4711".
    std::vector<std::string> places;
    // Whether all ranks share 127.0.0.1.
    bool is_one_host = true;
  };
  // Gives the first rank's text to all ranks. Every rank calls it once.
  using Broadcast = std::function<std::string(const std::string&)>;

  // All ranks of the group, two or more, make one. Throws CommError if the
  // first rank cannot be reached.
  Liveness(const Options& options, Group group, const Broadcast& broadcast);
  // Tells the others that this rank leaves. Takes up to 2 s if they do not
  // answer.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // Reports that this rank is in a call while the object lives; `liveness` may
  // be null.
  class CallScope {
   public:
    CallScope(Liveness* liveness, const Collective& call)
        : liveness_(liveness) {
      if (liveness_ != nullptr) liveness_->Enter(call);
    }
    ~CallScope() {
      if (liveness_ != nullptr) liveness_->Leave();
    }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    Liveness* const liveness_;
  };

  // Reports that this rank cannot go on, and why. Together with the ranks that
  // others wait for in a call, it becomes the verdict unless there is one.
  void Report(const std::string& problem) EXCLUDES(mutex_);

  bool has_verdict() const { return has_verdict_; }
  // Empty without a verdict.
  std::string verdict() const EXCLUDES(mutex_);

 private:
  // A request of another rank that has no answer yet.
  struct HeldBeat {
    rpc::Responder responder;
    Clock::TimePoint since;
  };

  void Enter(const Collective& call) EXCLUDES(mutex_);
  void Leave() EXCLUDES(mutex_);
  RankState State() const EXCLUDES(mutex_);
  void SetVerdict(const std::string& verdict) EXCLUDES(mutex_);
  bool IsLeaving() const EXCLUDES(mutex_);
  // Exits if the process has exceeded end_grace.
  void CheckEnd() const EXCLUDES(mutex_);

  // Methods of the first rank.
  std::string Listen();
  void HandleBeat(rpc::Request& request, const rpc::Responder& responder);
  void HandleProblem(const std::string& problem);
  void Answer(int rank);
  void Tick();

  // Methods of the other ranks.
  void Connect(const std::string& address);
  void Beat();
  void StartBeat(const std::string& problem, bool is_leaving);
  // Handles the answers that have arrived.
  void ReceiveAnswers();

  const Options options_;
  const Group group_;
  const std::string name_;  // names this rank in messages

  mutable Mutex mutex_;
  const Collective* call_ GUARDED_BY(mutex_) = nullptr;
  uint64_t num_calls_ GUARDED_BY(mutex_) = 0;
  // not reported yet
  std::string problem_ GUARDED_BY(mutex_);
  std::string verdict_ GUARDED_BY(mutex_);
  Clock::TimePoint verdict_at_ GUARDED_BY(mutex_);
  std::optional<Clock::TimePoint> leaving_at_ GUARDED_BY(mutex_);
  std::atomic<bool> has_verdict_{false};

  // used by the thread
  RankTable table_;
  std::map<int, HeldBeat> held_;
  std::map<uint64_t, int> rank_of_peer_;
  std::optional<rpc::Client::RequestId> beat_;  // the last one, unanswered
  int num_open_beats_ = 0;
  // why this rank gave up the first one
  std::string lost_;
  bool is_over_ = false;

  rpc::ZmqContext context_;
  std::optional<rpc::ZapHandler> zap_;
  std::optional<rpc::Server> server_;
  std::optional<rpc::Client> client_;
  rpc::WakeEvent wake_;
  std::optional<Thread> thread_;
};

}  // namespace replicant::comm
