#include "fleet/protocol/heartbeat_sender.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/rpc/group_key.h"

namespace replicant::fleet {
namespace {

// Delay after which a request under way notices the end of the sender.
constexpr auto kStep = std::chrono::milliseconds(20);
// Timeout of the answer to the last heartbeat.
constexpr auto kLastTimeout = std::chrono::milliseconds(300);

void ReadVariable(const char* name, uint32_t* value) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  const std::string_view view(text);
  const char* end = view.data() + view.size();
  const auto [stop, error] = std::from_chars(view.data(), end, *value);
  if (error != std::errc() || stop != end) {
    throw InvalidArgument(fmt::format(
        "environment: {}: want a whole number >= 0, got '{}'", name, view));
  }
}

void ReadVariable(const char* name, std::string* value) {
  if (const char* text = std::getenv(name)) *value = text;
}

void CheckIdentity(const RoleId& id, uint32_t incarnation) {
  if (!IsRoleName(id.role)) {
    throw InvalidArgument(fmt::format(
        "heartbeat: role '{}' is not of the form [a-z0-9_-]{{1,32}}", id.role));
  }
  if (incarnation == 0) {
    throw InvalidArgument("heartbeat: incarnation must be >= 1, got 0");
  }
}

// The supervisor waits for changes into and out of these states, so they are
// sent at once.
bool IsPassing(RoleState state) {
  return state == RoleState::kStarting || state == RoleState::kDraining;
}

}  // namespace

HeartbeatSenderOptions HeartbeatSenderOptions::FromEnvironment(
    HeartbeatSenderOptions defaults) {
  ReadVariable("REPLICANT_SUPERVISOR", &defaults.endpoint);
  ReadVariable("REPLICANT_KEY_FILE", &defaults.key_file);
  ReadVariable("REPLICANT_ROLE", &defaults.id.role);
  ReadVariable("REPLICANT_ROLE_INDEX", &defaults.id.index);
  ReadVariable("REPLICANT_INCARNATION", &defaults.incarnation);
  return defaults;
}

std::vector<std::string> HeartbeatSenderOptions::ToEnvironment() const {
  return {"REPLICANT_SUPERVISOR=" + endpoint, "REPLICANT_KEY_FILE=" + key_file,
          "REPLICANT_ROLE=" + id.role,
          fmt::format("REPLICANT_ROLE_INDEX={}", id.index),
          fmt::format("REPLICANT_INCARNATION={}", incarnation)};
}

HeartbeatSender::HeartbeatSender(HeartbeatSenderOptions options)
    : options_(std::move(options)) {
  CheckIdentity(options_.id, options_.incarnation);
  if (options_.endpoint.empty()) return;
  rpc::ClientOptions client_options;
  client_options.socket = options_.socket;
  if (!options_.key_file.empty()) {
    client_options.socket.curve =
        rpc::GroupKey::FromFile(options_.key_file).client_role();
  }
  client_options.name = options_.id.ToString();
  client_.emplace(context_, SupervisionProtocol(), client_options);
  client_->Connect(options_.endpoint);
  client_->DetachFromThread();
  thread_.emplace("heartbeat", [this](const Thread::StopToken&) { Run(); });
}

HeartbeatSender::~HeartbeatSender() {
  {
    MutexLock lock(mutex_);
    is_ending_ = true;
  }
  changed_.NotifyAll();
}

void HeartbeatSender::SetState(RoleState state, std::string_view reason) {
  const Clock::TimePoint now = Clock::Real().Now();
  bool is_news = false;
  {
    MutexLock lock(mutex_);
    if (state != state_) {
      if (state_ == RoleState::kWaiting) waited_ += now - waiting_since_;
      if (state == RoleState::kWaiting) waiting_since_ = now;
      is_news = IsPassing(state_) || IsPassing(state);
      has_news_ |= is_news;
      state_ = state;
    }
    // a running role still reports the reason of its last wait
    if (state != RoleState::kRunning) reason_ = reason;
  }
  if (is_news) changed_.NotifyAll();
}

void HeartbeatSender::SetWaited(double total_s, std::string_view reason) {
  MutexLock lock(mutex_);
  if (total_s > measured_wait_s_) reason_ = reason;
  measured_wait_s_ = total_s;
}

void HeartbeatSender::SetCounter(std::string_view name, double total) {
  SetNumber(name, {BeatNumber::Kind::kCounter, total});
}

void HeartbeatSender::SetGauge(std::string_view name, double value) {
  SetNumber(name, {BeatNumber::Kind::kGauge, value});
}

void HeartbeatSender::SetGaugeSource(std::string_view name,
                                     std::function<double()> value) {
  SetGauge(name, value());
  MutexLock lock(mutex_);
  sources_[std::string(name)] = std::move(value);
}

void HeartbeatSender::SetNumber(std::string_view name, BeatNumber number) {
  MutexLock lock(mutex_);
  const auto known = numbers_.find(name);
  if (known != numbers_.end()) {
    known->second = number;
    return;
  }
  if (!IsNumberName(name)) {
    throw InvalidArgument(fmt::format(
        "heartbeat: name '{}' is not of the form [A-Za-z0-9_./-]{{1,64}}",
        name));
  }
  if (numbers_.size() == kMaxBeatNumbers) {
    throw InvalidArgument(
        fmt::format("heartbeat: number '{}' is over the limit of {} numbers",
                    name, kMaxBeatNumbers));
  }
  numbers_.emplace(name, number);
}

void HeartbeatSender::SetEndpoint(const std::string& endpoint) {
  MutexLock lock(mutex_);
  endpoint_ = endpoint;
}

std::string HeartbeatSender::EndpointOf(const RoleId& id) const {
  MutexLock lock(mutex_);
  const auto found = std::ranges::find(endpoints_, id, &RoleEndpoint::id);
  return found == endpoints_.end() ? "" : found->endpoint;
}

std::optional<std::string> HeartbeatSender::StopOrder() const {
  MutexLock lock(mutex_);
  return stop_order_;
}

bool HeartbeatSender::IsEnding() const {
  MutexLock lock(mutex_);
  return is_ending_;
}

bool HeartbeatSender::AwaitNext(Clock::TimePoint next) {
  MutexLock lock(mutex_);
  Clock::Real().WaitUntil(mutex_, changed_, next, [this]() REQUIRES(mutex_) {
    return is_ending_ || has_news_;
  });
  has_news_ = false;
  return !is_ending_;
}

void HeartbeatSender::Run() {
  Clock::TimePoint next = Clock::Real().Now();
  while (AwaitNext(next)) {
    next = Clock::Real().Now() + options_.interval;
    Beat(options_.interval, /*is_last=*/false);
  }
  if (client_->IsResponsive()) Beat(kLastTimeout, /*is_last=*/true);
}

void HeartbeatSender::Beat(Clock::Duration timeout, bool is_last) {
  try {
    const auto id =
        client_->Start(kBeatKind, Snapshot().Encode(), {.timeout = timeout});
    // requests given up below end by their timeouts
    if (!id) return;
    while (is_last || !IsEnding()) {
      const auto done = client_->WaitAny(kStep);
      if (!done) continue;
      HandleReply(client_->Wait(*done));
      if (*done == *id) return;
    }
  } catch (const std::exception& e) {
    // a supervisor of another version does not end the role, and nothing else
    // ends its heartbeats
    if (last_problem_ != e.what()) spdlog::warn("heartbeat: {}", e.what());
    last_problem_ = e.what();
  }
}

Heartbeat HeartbeatSender::Snapshot() {
  const Clock::TimePoint now = Clock::Real().Now();
  Heartbeat beat;
  beat.id = options_.id;
  beat.incarnation = options_.incarnation;
  beat.pid = static_cast<uint32_t>(::getpid());
  MutexLock lock(mutex_);
  beat.state = state_;
  beat.reason = reason_;
  if (state_ == RoleState::kRunning) reason_.clear();
  Clock::Duration waited = waited_;
  if (state_ == RoleState::kWaiting) waited += now - waiting_since_;
  beat.waiting_s = ToSeconds(waited) + measured_wait_s_;
  beat.endpoint = endpoint_;
  beat.numbers.insert(numbers_.begin(), numbers_.end());
  for (const auto& [name, value] : sources_) {
    beat.numbers[name] = {BeatNumber::Kind::kGauge, value()};
  }
  return beat;
}

void HeartbeatSender::HandleReply(const rpc::CallReply& reply) {
  if (reply.result == rpc::CallResult::kError) {
    throw CommError(fmt::format("{}: {}: {}", options_.endpoint,
                                ToString(reply.error), reply.error_text));
  }
  if (reply.result != rpc::CallResult::kOk) return;
  BeatReply answer = rpc::DecodeMessage<BeatReply>(reply.payload);
  last_problem_.clear();
  MutexLock lock(mutex_);
  endpoints_ = std::move(answer.endpoints);
  if (answer.order != BeatReply::Order::kStop) return;
  if (!stop_order_) stop_order_ = answer.reason;
}

}  // namespace replicant::fleet
