#include "replicator/comm/liveness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/process.h"
#include "replicator/comm/host_addresses.h"
#include "replicator/comm/liveness_messages.h"

namespace replicant::comm {
namespace {

// Time to tell other ranks that this one leaves.
constexpr auto kFarewell = std::chrono::seconds(2);
// Time to try one address of the first rank.
constexpr auto kReachTimeout = std::chrono::milliseconds(1000);

Clock::TimePoint Now() { return Clock::Real().Now(); }

struct HostAndPort {
  std::string host;
  int port = 0;
};

// Parses "tcp://10.0.0.2:41234".
HostAndPort Parse(const std::string& endpoint) {
  constexpr size_t kScheme = 6;
  const size_t colon = endpoint.rfind(':');
  HostAndPort result;
  if (colon == std::string::npos || colon < kScheme) return result;
  result.host = endpoint.substr(kScheme, colon - kScheme);
  std::from_chars(endpoint.data() + colon + 1,
                  endpoint.data() + endpoint.size(), result.port);
  return result;
}

}  // namespace

Liveness::Liveness(const Options& options, Group group,
                   const Broadcast& broadcast)
    : options_(options),
      group_(std::move(group)),
      name_(fmt::format("rank {} of {}", group_.rank, group_.places.size())),
      table_(group_.places, options.timeout,
             /*reconnect_time=*/options.interval, options.clock) {
  if (group_.rank == 0) {
    for (int rank = 1; rank < table_.size(); ++rank) table_.Watch(rank);
    broadcast(Listen());
  } else {
    table_.Watch(0);
    Connect(broadcast({}));
  }
  thread_.emplace("liveness", [this](const Thread::StopToken&) {
    if (group_.rank == 0) {
      server_->Run();
    } else {
      Beat();
    }
  });
}

Liveness::~Liveness() {
  {
    const MutexLock lock(mutex_);
    leaving_at_ = Now();
  }
  wake_.Wake();
  if (server_) server_->Post([this] { Tick(); });
  // logs its failure
  thread_.reset();
}

void Liveness::Enter(const Collective& call) {
  const MutexLock lock(mutex_);
  call_ = &call;
  ++num_calls_;
}

void Liveness::Leave() {
  const MutexLock lock(mutex_);
  call_ = nullptr;
}

RankState Liveness::State() const {
  const MutexLock lock(mutex_);
  return {num_calls_, call_ == nullptr ? "" : call_->ToString()};
}

void Liveness::Report(const std::string& problem) {
  if (group_.rank == 0) {
    server_->Post([this, problem] {
      HandleProblem(problem);
      Tick();
    });
    return;
  }
  {
    const MutexLock lock(mutex_);
    problem_ = problem;
  }
  wake_.Wake();
}

std::string Liveness::verdict() const {
  const MutexLock lock(mutex_);
  return verdict_;
}

void Liveness::SetVerdict(const std::string& verdict) {
  {
    const MutexLock lock(mutex_);
    if (has_verdict_) return;
    verdict_ = verdict;
    verdict_at_ = Now();
    has_verdict_ = true;
  }
  spdlog::error("{} ends: {}", name_, verdict);
}

bool Liveness::IsLeaving() const {
  const MutexLock lock(mutex_);
  return leaving_at_.has_value();
}

void Liveness::CheckEnd() const {
  const MutexLock lock(mutex_);
  if (!has_verdict_ || Now() - verdict_at_ < options_.end_grace) return;
  spdlog::critical("{} is ended where it stands, after: {}", name_, verdict_);
  spdlog::default_logger()->flush();
  // nothing else ends a blocked call of MPI
  std::_Exit(kExitPeerLost);
}

// --- the first rank ---

std::string Liveness::Listen() {
  LivenessAddress address{.client_keys = rpc::GenerateCurveKeyPair()};
  const rpc::CurveKeyPair keys = rpc::GenerateCurveKeyPair();
  address.server_public_key = keys.public_key;
  zap_.emplace(context_,
               std::vector<std::string>{address.client_keys.public_key});
  rpc::ServerOptions options;
  options.socket.curve = rpc::CurveServer{keys};
  options.tick_interval = options_.interval / 2;
  // their keys are made for each other, and a short job ends before the
  // handshake is done
  options.names_abandoned_handshakes = false;
  // silence is checked below
  options.peer_timeout = options.reply_timeout = std::chrono::hours(1);
  server_.emplace(context_, LivenessProtocol(), options);
  server_->Handle(kLivenessBeat, [this](rpc::Request& request,
                                        const rpc::Responder& responder) {
    HandleBeat(request, responder);
  });
  server_->OnTick([this] { Tick(); });
  server_->OnPeerLost([this](const rpc::Peer& peer) {
    const auto found = rank_of_peer_.find(peer.id);
    if (found != rank_of_peer_.end()) table_.Disconnect(found->second);
  });
  const std::vector<std::string> hosts = HostAddresses();
  const bool has_ipv6 = std::ranges::any_of(hosts, [](const std::string& host) {
    return host.find(':') != std::string::npos;
  });
  const std::string bound =
      server_->Bind(group_.is_one_host ? "tcp://127.0.0.1:*"
                    : has_ipv6         ? "tcp://[::]:*"
                                       : "tcp://0.0.0.0:*");
  if (group_.is_one_host) {
    address.endpoints.push_back(bound);
  } else {
    for (const std::string& host : hosts) {
      const bool is_ipv6 = host.find(':') != std::string::npos;
      address.endpoints.push_back(fmt::format(
          "tcp://{}:{}", is_ipv6 ? "[" + host + "]" : host, Parse(bound).port));
    }
  }
  return address.Encode();
}

void Liveness::HandleBeat(rpc::Request& request,
                          const rpc::Responder& responder) {
  LivenessBeat beat = rpc::DecodeMessage<LivenessBeat>(request.payload);
  const int rank = static_cast<int>(beat.rank);
  if (rank < 1 || rank >= table_.size()) {
    throw InvalidArgument(fmt::format("liveness: there are {} ranks, not {}",
                                      table_.size(), beat.rank));
  }
  rank_of_peer_[request.peer_id] = rank;
  // the previous request, held until now: if its connection broke, the answer
  // tells the table so before this request revives the rank
  Answer(rank);
  table_.Hear(rank, std::move(beat.state));
  held_.emplace(rank, HeldBeat{responder, Now()});
  if (!beat.problem.empty()) HandleProblem(beat.problem);
  if (beat.is_leaving) {
    table_.Unwatch(rank);
    Answer(rank);
  }
  if (has_verdict_) Tick();
}

void Liveness::HandleProblem(const std::string& problem) {
  table_.Hear(0, State());
  // a rank knows from whom it waits for a message, which may itself wait
  SetVerdict(problem + table_.DescribeLate());
}

void Liveness::Answer(int rank) {
  const auto held = held_.extract(rank);
  if (held.empty()) return;
  LivenessAnswer answer{.state = State(), .verdict = verdict()};
  if (has_verdict_) {
    answer.order = LivenessAnswer::Order::kEnd;
  } else if (IsLeaving()) {
    answer.order = LivenessAnswer::Order::kOver;
  }
  held.mapped().responder.Reply(rpc::EncodeMessage(answer));
}

void Liveness::Tick() {
  table_.Hear(0, State());
  if (const auto lost = table_.FindLost()) SetVerdict(*lost);
  const bool is_end = has_verdict_ || IsLeaving();
  std::vector<int> due;
  for (const auto& [rank, held] : held_) {
    // a live rank would have sent another one long ago
    if (is_end || Now() - held.since >= 2 * options_.interval) {
      due.push_back(rank);
    }
  }
  for (const int rank : due) Answer(rank);
  CheckEnd();
  const MutexLock lock(mutex_);
  if (leaving_at_ &&
      (!table_.IsAnyWatched() || Now() - *leaving_at_ >= kFarewell)) {
    server_->Stop();
  }
}

// --- the others ---

void Liveness::Connect(const std::string& address_text) {
  const LivenessAddress address = LivenessAddress::Decode(address_text);
  const auto endpoint = std::find_if(
      address.endpoints.begin(), address.endpoints.end(),
      [](const std::string& candidate) {
        const HostAndPort target = Parse(candidate);
        return IsReachable(target.host, target.port, kReachTimeout);
      });
  const auto fail = [&] {
    throw CommError(fmt::format(
        "liveness: {} ({}) cannot reach rank 0 ({}) at {}; hint: let the hosts "
        "connect to each other, or set heartbeat_timeout_s: 0",
        name_, group_.places[static_cast<size_t>(group_.rank)],
        group_.places[0], fmt::join(address.endpoints, ", ")));
  };
  if (endpoint == address.endpoints.end()) fail();
  rpc::ClientOptions options;
  options.name = fmt::format("rank-{}", group_.rank);
  options.socket.curve =
      rpc::CurveClient{address.client_keys, address.server_public_key};
  // silence is checked below
  options.heartbeat_interval = options.server_timeout = std::chrono::hours(1);
  client_.emplace(context_, LivenessProtocol(), options);
  client_->Connect(*endpoint);
  if (client_->AwaitSession(options_.timeout) != rpc::CallResult::kOk) fail();
  client_->DetachFromThread();
}

void Liveness::Beat() {
  rpc::Client* const clients[] = {&*client_};
  std::optional<Clock::TimePoint> lost_at;
  Clock::TimePoint next_beat;
  bool has_said_farewell = false;
  // the first rank answers the previous one when the next one arrives
  const auto can_beat = [&] {
    return !has_said_farewell && num_open_beats_ < 2;
  };
  while (true) {
    std::string problem;
    std::optional<Clock::TimePoint> leaving_at;
    {
      const MutexLock lock(mutex_);
      problem = std::exchange(problem_, {});
      leaving_at = leaving_at_;
    }
    // the first rank waits until all ranks have heard the verdict
    const bool is_last = leaving_at || is_over_ || has_verdict_;
    const bool is_news = !problem.empty() || is_last;
    if ((can_beat() && Now() >= next_beat) || (is_news && !has_said_farewell)) {
      StartBeat(problem, is_last);
      next_beat = Now() + options_.interval;
      has_said_farewell = is_last;
    }
    const bool is_done =
        (has_said_farewell && !beat_) || (has_verdict_ && lost_at);
    if (is_done && (leaving_at || is_over_)) return;
    if (leaving_at && Now() - *leaving_at >= kFarewell) return;

    rpc::Client::AwaitAny(clients, wake_,
                          can_beat() ? next_beat - Now() : options_.interval);
    ReceiveAnswers();
    if (is_over_) continue;
    if (client_->IsResponsive()) {
      table_.Reconnect(0);
    } else {
      table_.Disconnect(0);
    }
    table_.Hear(group_.rank, State());
    if (const auto lost = table_.FindLost(); lost && !has_verdict_) {
      lost_ = *lost;
      lost_at = Now();
    }
    // the first process that exits ends the others: let them learn the reason
    // first
    if (lost_at && Now() - *lost_at >= 2 * options_.interval) {
      SetVerdict(lost_);
    }
    CheckEnd();
  }
}

void Liveness::StartBeat(const std::string& problem, bool is_leaving) {
  const LivenessBeat beat{.rank = static_cast<uint32_t>(group_.rank),
                          .state = State(),
                          .problem = problem,
                          .is_leaving = is_leaving};
  beat_ = client_->Start(kLivenessBeat, rpc::EncodeMessage(beat),
                         {.timeout = options_.timeout});
  REPLICANT_CHECK(beat_.has_value(), "too many beats under way");
  ++num_open_beats_;
}

void Liveness::ReceiveAnswers() {
  client_->Process(Clock::Duration(0));
  while (const auto done = client_->WaitAny(Clock::Duration(0))) {
    const rpc::CallReply reply = client_->Wait(*done);
    --num_open_beats_;
    if (beat_ == done) beat_.reset();
    if (reply.result != rpc::CallResult::kOk) continue;
    LivenessAnswer answer = rpc::DecodeMessage<LivenessAnswer>(reply.payload);
    table_.Hear(0, std::move(answer.state));
    if (answer.order == LivenessAnswer::Order::kEnd) {
      SetVerdict(lost_.empty() ? answer.verdict : lost_);
    }
    if (answer.order == LivenessAnswer::Order::kOver) is_over_ = true;
  }
}

}  // namespace replicant::comm
