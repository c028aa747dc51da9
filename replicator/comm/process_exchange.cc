#include "replicator/comm/process_exchange.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "replicator/comm/host_addresses.h"

namespace replicant::comm {

const Collective ProcessExchange::kSetUp{.place = "start of the group"};

void ProcessExchange::Send(int peer, std::span<const std::byte> bytes) {
  REPLICANT_CHECK(peer != process_, "process {} sends to itself", peer);
  messages_.push_back({peer, /*is_send=*/true,
                       const_cast<std::byte*>(bytes.data()), bytes.size()});
}

void ProcessExchange::Receive(int peer, std::span<std::byte> bytes) {
  REPLICANT_CHECK(peer != process_, "process {} hears from itself", peer);
  messages_.push_back({peer, /*is_send=*/false, bytes.data(), bytes.size()});
}

void ProcessExchange::Exchange() {
  if (!messages_.empty()) Move(messages_);
  messages_.clear();
}

std::vector<std::byte> ProcessExchange::GatherBytes(
    std::span<const std::byte> own) {
  std::vector<std::byte> all(own.size() * static_cast<size_t>(num_processes_));
  for (int p = 0; p < num_processes_; ++p) {
    const auto row =
        std::span(all).subspan(static_cast<size_t>(p) * own.size(), own.size());
    if (p == process_) {
      std::ranges::copy(own, row.begin());
    } else {
      Receive(p, row);
      Send(p, own);
    }
  }
  Exchange();
  return all;
}

std::vector<int32_t> ProcessExchange::GatherNumbers(int32_t own) {
  const std::vector<std::byte> bytes =
      GatherBytes(std::as_bytes(std::span(&own, 1)));
  std::vector<int32_t> all(static_cast<size_t>(num_processes_));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

std::vector<int> ProcessExchange::GatherMembers(bool is_member) {
  const std::vector<int32_t> are_members = GatherNumbers(is_member ? 1 : 0);
  std::vector<int> members;
  for (int p = 0; p < num_processes_; ++p) {
    if (are_members[static_cast<size_t>(p)] != 0) members.push_back(p);
  }
  return members;
}

void ProcessExchange::MeetOthers(const std::string& place) {
  if (num_processes_ == 1) return;
  // where each process runs
  struct Place {
    std::array<char, 256> network{};
    std::array<char, 256> host{};
    std::array<char, 256> process{};
  };
  const auto copy = [](const std::string& from, std::array<char, 256>* to) {
    from.copy(to->data(), to->size() - 1);
  };
  Place own;
  copy(NetworkName(), &own.network);
  copy(options_.host.empty() ? NetworkName() : options_.host, &own.host);
  copy(place, &own.process);
  const std::vector<std::byte> bytes =
      GatherBytes(std::as_bytes(std::span(&own, 1)));
  std::vector<Place> places(static_cast<size_t>(num_processes_));
  std::memcpy(places.data(), bytes.data(), bytes.size());
  for (size_t p = 0; p < places.size(); ++p) {
    const auto first = std::ranges::find(places, places[p].host, &Place::host);
    host_of_[p] = static_cast<int>(first - places.begin());
  }
  if (options_.heartbeat_timeout.count() == 0) return;
  Liveness::Group group{.rank = process_};
  for (const Place& each : places) {
    group.places.emplace_back(each.process.data());
    group.is_one_host &= each.network == places[0].network;
  }
  const auto broadcast = [this](const std::string& text) {
    const std::vector<int32_t> sizes =
        GatherNumbers(static_cast<int32_t>(text.size()));
    std::string all = text;
    all.resize(static_cast<size_t>(sizes[0]));
    const auto memory = std::as_writable_bytes(std::span(all));
    if (process_ != 0) Receive(0, memory);
    for (int p = 1; process_ == 0 && p < num_processes_; ++p) Send(p, memory);
    Exchange();
    return all;
  };
  liveness_ = std::make_shared<Liveness>(
      Liveness::Options{.interval = options_.heartbeat_interval,
                        .timeout = options_.heartbeat_timeout},
      std::move(group), broadcast);
}

void ProcessExchange::BecomePartOf(const ProcessExchange& whole,
                                   std::span<const int> members) {
  liveness_ = whole.liveness_;
  is_part_ = true;
  for (size_t p = 0; p < members.size(); ++p) {
    host_of_[p] = whole.host_of_[static_cast<size_t>(members[p])];
  }
}

std::string ProcessExchange::NameOf(int peer) const {
  return fmt::format("rank {}", peer);
}

void ProcessExchange::ThrowMissing(std::vector<int> missing) {
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  std::vector<std::string> names;
  names.reserve(missing.size());
  for (const int peer : missing) names.push_back(NameOf(peer));
  const std::string problem =
      fmt::format("{}: rank {} of {} waited {} s in call {}, {}, for {}",
                  transport(), process_, num_processes_,
                  static_cast<double>(options_.timeout.count()) / 1e3,
                  num_calls_, call_->ToString(), fmt::join(names, ", "));
  if (liveness_) liveness_->Report(problem);
  ThrowProblem(problem);
}

void ProcessExchange::ThrowProblem(const std::string& problem) {
  if (liveness_) {
    const Clock::TimePoint deadline = Clock::Real().Now() +
                                      10 * options_.heartbeat_interval +
                                      std::chrono::seconds(1);
    while (Clock::Real().Now() < deadline) {
      ThrowIfAborted();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  throw CommError(problem);
}

void ProcessExchange::Abort(const std::string& reason) {
  End(reason,
      fmt::format("rank {} of {}: {}", process_, num_processes_, reason));
}

void ProcessExchange::End(const std::string& reason,
                          const std::string& to_others) {
  {
    const MutexLock lock(mutex_);
    if (is_aborted_) return;
    reason_ = reason;
    is_aborted_ = true;
  }
  OnEnd();
  if (liveness_ && !to_others.empty()) liveness_->Report(to_others);
}

std::string ProcessExchange::Failure() const {
  if (liveness_ && liveness_->has_verdict()) return liveness_->verdict();
  const MutexLock lock(mutex_);
  return reason_;
}

void ProcessExchange::ThrowIfAborted() {
  if (liveness_ && liveness_->has_verdict()) {
    End(liveness_->verdict(), /*to_others=*/"");
  }
  if (!is_aborted_) return;
  const MutexLock lock(mutex_);
  throw CommError(fmt::format("{}, rank {} of {}: {}", transport(), process_,
                              num_processes_, reason_));
}

}  // namespace replicant::comm
