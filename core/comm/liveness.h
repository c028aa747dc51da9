#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "core/comm/communicator.h"
#include "core/comm/rank_table.h"
#include "core/rpc/client.h"
#include "core/rpc/server.h"
#include "core/rpc/wake_queue.h"
#include "core/rpc/zap.h"

namespace replicant::comm {

// Tells the processes of a group which of them is dead or stands still, and
// ends them, beside a transport whose calls know no such thing (MPI).
//
// A thread of every rank tells the first one, over ZeroMQ, in which call it is,
// once in an interval. The first rank answers when the next word comes, so that
// there is always one to answer: at once when the group is at its end, so that
// all know it at the same moment; and when no word comes for two intervals,
// because an answer that finds no connection any more is how it hears of a
// death. It gives a rank up as RankTable says, and so does every other rank
// with the first one.
//
// The verdict names the rank that was given up and the call that it is missing
// from; or it is what a rank that cannot go on has told by Report(). It is
// logged by every rank, whose waits look for it (has_verdict()) and throw. What
// is in a call that cannot be interrupted, and has not destroyed its Liveness
// within `end_grace`, is ended: _Exit(1).
//
// The channel is encrypted by keys that the first rank makes for the run
// (CURVE), and given to the others by `broadcast` together with its address.
//
// Thread-safety: all methods may be called from any thread.
class Liveness {
 public:
  struct Options {
    Clock::Duration interval = std::chrono::milliseconds(200);
    // Of silence.
    Clock::Duration timeout = std::chrono::seconds(10);
    // For a process to end by itself once there is a verdict.
    Clock::Duration end_grace = std::chrono::seconds(5);
    // Of the silence.
    const Clock* clock = &Clock::Real();
  };
  struct Group {
    int rank = 0;
    // Where each rank runs, "host12/4711".
    std::vector<std::string> places;
    // Whether 127.0.0.1 is the same to all.
    bool is_one_host = true;
  };
  // Gives the first rank's text to all; every rank calls it once.
  using Broadcast = std::function<std::string(const std::string&)>;

  // All ranks of the group, two or more, make one. Throws CommError where the
  // first rank cannot be reached.
  Liveness(const Options& options, Group group, const Broadcast& broadcast);
  // Tells the others that this rank leaves, which takes up to 2 s if they are
  // not there.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // Notes that this rank is in a call as long as this lives; `liveness` may be
  // null.
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

  // Says that this rank cannot go on, and why: the verdict of all, unless there
  // is one already.
  void Report(const std::string& problem) EXCLUDES(mutex_);

  bool has_verdict() const { return has_verdict_; }
  // Empty as long as there is none.
  std::string verdict() const EXCLUDES(mutex_);

 private:
  // A request of another rank that waits for its answer.
  struct HeldBeat {
    rpc::Responder responder;
    Clock::TimePoint since;
  };

  void Enter(const Collective& call) EXCLUDES(mutex_);
  void Leave() EXCLUDES(mutex_);
  RankState State() const EXCLUDES(mutex_);
  void SetVerdict(const std::string& verdict) EXCLUDES(mutex_);
  bool IsLeaving() const EXCLUDES(mutex_);
  // Ends the process if it should have ended long ago.
  void CheckEnd() const EXCLUDES(mutex_);

  // The first rank's.
  std::string Listen();
  void HandleBeat(rpc::Request& request, const rpc::Responder& responder);
  void Answer(int rank);
  void Tick();

  // The others'.
  void Connect(const std::string& address);
  void Beat();
  void StartBeat(const std::string& problem, bool is_leaving);
  // Takes the answers that have come in.
  void ReceiveAnswers();

  const Options options_;
  const Group group_;
  const std::string name_;  // of this rank, in messages

  mutable Mutex mutex_;
  const Collective* call_ GUARDED_BY(mutex_) = nullptr;
  uint64_t num_calls_ GUARDED_BY(mutex_) = 0;
  // to be told
  std::string problem_ GUARDED_BY(mutex_);
  std::string verdict_ GUARDED_BY(mutex_);
  Clock::TimePoint verdict_at_ GUARDED_BY(mutex_);
  std::optional<Clock::TimePoint> leaving_at_ GUARDED_BY(mutex_);
  std::atomic<bool> has_verdict_{false};

  // of the thread
  RankTable table_;
  std::map<int, HeldBeat> held_;
  std::map<uint64_t, int> rank_of_peer_;
  std::optional<rpc::Client::RequestId> beat_;  // the last one, unanswered
  int num_open_beats_ = 0;
  // why the first rank was given up
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
