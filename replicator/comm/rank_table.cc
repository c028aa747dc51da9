#include "replicator/comm/rank_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace replicant::comm {

RankTable::RankTable(std::vector<std::string> places, Clock::Duration timeout,
                     Clock::Duration reconnect_time, const Clock* clock)
    : timeout_(timeout),
      reconnect_time_(reconnect_time),
      clock_(*clock),
      asked_at_(clock->Now()),
      watching_since_(asked_at_) {
  for (std::string& place : places) {
    ranks_.push_back({.place = std::move(place)});
  }
}

void RankTable::Watch(int rank) {
  ranks_[Index(rank)].is_watched = true;
  ranks_[Index(rank)].heard_at = clock_.Now();
}

bool RankTable::IsAnyWatched() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.is_watched; });
}

void RankTable::Hear(int rank, RankState state) {
  Rank& heard = ranks_[Index(rank)];
  heard.heard_at = clock_.Now();
  Reconnect(rank);
  heard.state = std::move(state);
}

void RankTable::Disconnect(int rank) {
  Rank& broken = ranks_[Index(rank)];
  if (!broken.disconnected_at) broken.disconnected_at = clock_.Now();
}

std::optional<std::string> RankTable::FindLost() {
  const Clock::TimePoint now = clock_.Now();
  if (now - asked_at_ > timeout_ / 2) watching_since_ = now;
  asked_at_ = now;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (!rank.is_watched) continue;
    const auto since = [&](Clock::TimePoint time) {
      return now - std::max(time, watching_since_);
    };
    const bool is_dead =
        rank.disconnected_at && since(*rank.disconnected_at) >= reconnect_time_;
    if (!is_dead && since(rank.heard_at) < timeout_) continue;
    rank.is_watched = false;
    return Describe(r, is_dead ? "has lost its connection, as one that died"
                               : fmt::format("was not heard of for {:.3g} s",
                                             ToSeconds(timeout_)));
  }
  return std::nullopt;
}

std::string RankTable::DescribeLate() const {
  std::optional<uint64_t> first_call;
  for (const Rank& rank : ranks_) {
    if (rank.state.call.empty()) continue;
    first_call = std::min(first_call.value_or(rank.state.num_calls),
                          rank.state.num_calls);
  }
  std::vector<std::string> late;
  for (size_t r = 0; first_call && r < ranks_.size(); ++r) {
    if (ranks_[r].state.num_calls >= *first_call) continue;
    late.push_back(
        fmt::format("rank {} of {} ({})", r, ranks_.size(), ranks_[r].place));
  }
  if (late.empty()) return {};
  return fmt::format("; not in call {}: {}", *first_call,
                     fmt::join(late, ", "));
}

std::string RankTable::Describe(size_t rank, const std::string& why) const {
  const RankState& lost = ranks_[rank].state;
  // the first call that others are in and that it has not left
  const RankState* missed = nullptr;
  for (const Rank& other : ranks_) {
    if (&other == &ranks_[rank] || other.state.call.empty()) continue;
    const bool has_done =
        other.state.num_calls < lost.num_calls ||
        (other.state.num_calls == lost.num_calls && lost.call.empty());
    if (has_done) continue;
    if (missed == nullptr || other.state.num_calls < missed->num_calls) {
      missed = &other.state;
    }
  }
  std::string text = fmt::format("rank {} of {} ({}) {}", rank, ranks_.size(),
                                 ranks_[rank].place, why);
  if (missed == nullptr) {
    if (!lost.call.empty()) {
      return text +
             fmt::format("; it was in call {}, {}", lost.num_calls, lost.call);
    }
    return text + fmt::format("; it was past call {}", lost.num_calls);
  }
  std::vector<size_t> waiting;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const RankState& state = ranks_[r].state;
    if (r != rank && !state.call.empty() &&
        state.num_calls == missed->num_calls) {
      waiting.push_back(r);
    }
  }
  return text + fmt::format("; waited for in call {}, {}, by rank {}",
                            missed->num_calls, missed->call,
                            fmt::join(waiting, ", rank "));
}

}  // namespace replicant::comm
