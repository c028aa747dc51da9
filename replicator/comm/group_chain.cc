#include "replicator/comm/group_chain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "replicator/comm/reduce.h"

namespace replicant::comm {
namespace {

// Bytes of a message within one group: small enough for MPI's int and for the
// memory of an all-reduce, large enough that processes seldom wait.
constexpr size_t kGroupPieceBytes = size_t{4} << 20;
// Bytes of a piece that goes from group to group. Small ones fill and empty the
// chain sooner; each costs about as much time as kMinPieceBytes of its bytes.
constexpr size_t kMinPieceBytes = size_t{64} << 10;
constexpr size_t kMaxPieceBytes = size_t{512} << 10;

// The piece that is in a stage of its way in this step, if any.
std::optional<size_t> PieceAt(size_t step, size_t first_step,
                              size_t num_pieces) {
  if (step < first_step || step - first_step >= num_pieces) return {};
  return step - first_step;
}

}  // namespace

GroupChain::GroupChain(ProcessExchange* exchange,
                       const std::vector<std::vector<int>>& groups,
                       const std::vector<std::vector<int>>& ranks_of)
    : exchange_(*exchange), last_(groups.size() - 1) {
  const int own = exchange_.process();
  num_parts_ = std::ranges::min(groups, {}, &std::vector<int>::size).size();
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto at = std::ranges::find(groups[g], own);
    if (at == groups[g].end()) continue;
    number_ = g;
    group_ = groups[g];
    place_ = static_cast<size_t>(at - groups[g].begin());
    if (owns_part() && g > 0) below_ = groups[g - 1][place_];
    if (owns_part() && g < last_) above_ = groups[g + 1][place_];
  }
  std::vector<std::pair<int, Term>> by_rank;
  for (const int process : group_) {
    size_t thread = 0;
    for (const int rank : ranks_of[static_cast<size_t>(process)]) {
      by_rank.emplace_back(rank, Term{process, thread++});
    }
  }
  std::ranges::sort(by_rank, {}, &std::pair<int, Term>::first);
  for (const auto& [rank, term] : by_rank) terms_.push_back(term);
}

void GroupChain::AllReduce(const Collective& c,
                           std::span<const std::byte* const> inputs,
                           std::span<std::byte> out) {
  const Call call = Begin(c, inputs, out);
  const size_t num_steps = call.num_pieces + 2 * last_ + 1;
  for (size_t step = 0; step < num_steps; ++step) {
    const auto adding = PieceAt(step, number_, call.num_pieces);
    if (adding) CollectTerms(call, *adding);
    if (owns_part()) PassOn(call, step);
    const auto whole = PieceAt(step, 2 * last_ - number_ + 1, call.num_pieces);
    if (whole) HandRound(call, *whole);
    exchange_.Exchange();
    if (adding && owns_part()) Add(call, *adding);
  }
}

// A call takes pieces + 2 * last steps. Each costs a latency plus the time of
// its bytes, so the best number of pieces is a square root.
size_t GroupChain::PieceBytes(size_t part_bytes) const {
  if (last_ == 0) return kGroupPieceBytes;
  const double best = std::sqrt(static_cast<double>(part_bytes) *
                                static_cast<double>(kMinPieceBytes) /
                                (2.0 * static_cast<double>(last_)));
  return std::clamp(static_cast<size_t>(best), kMinPieceBytes, kMaxPieceBytes);
}

GroupChain::Call GroupChain::Begin(const Collective& c,
                                   std::span<const std::byte* const> inputs,
                                   std::span<std::byte> out) {
  Call call{.c = c, .inputs = inputs, .out = out};
  call.count = static_cast<size_t>(c.in.shape().num_elements());
  call.element = DTypeSize(c.in.dtype());
  call.is_wide = c.in.dtype() == DType::kBF16 && last_ > 0;
  const size_t part = (call.count + num_parts_ - 1) / num_parts_;
  call.piece = PieceBytes(part * call.element) / call.element;
  call.num_pieces = (part + call.piece - 1) / call.piece;
  if (!owns_part()) return call;
  const size_t piece = std::min(call.piece, part);
  const size_t piece_bytes = piece * call.element;
  // of a sum; whole words
  const size_t wide_bytes = piece * std::max(call.element, sizeof(float));
  const size_t size = terms_.size() * piece_bytes + 2 * wide_bytes;
  if (scratch_.size_bytes() < size) scratch_ = HostBuffer(size);
  call.carry = scratch_.data();
  call.partial = reinterpret_cast<float*>(call.carry + wide_bytes);
  call.terms = call.carry + 2 * wide_bytes;
  return call;
}

Range GroupChain::PieceOf(const Call& call, size_t part, size_t i) const {
  const Range whole = PartOf(call.count, num_parts_, part, /*granularity=*/1);
  const size_t begin = std::min(whole.begin + i * call.piece, whole.end);
  return {begin, std::min(begin + call.piece, whole.end)};
}

std::span<std::byte> GroupChain::Result(const Call& call, size_t part,
                                        size_t i) const {
  const Range piece = PieceOf(call, part, i);
  return call.out.subspan(piece.begin * call.element,
                          piece.size() * call.element);
}

void GroupChain::CollectTerms(const Call& call, size_t i) {
  for (size_t part = 0; part < num_parts_; ++part) {
    if (part == place_) continue;
    const Range piece = PieceOf(call, part, i);
    for (const std::byte* const input : call.inputs) {
      exchange_.Send(group_[part], {input + piece.begin * call.element,
                                    piece.size() * call.element});
    }
  }
  if (!owns_part()) return;
  const Range piece = PieceOf(call, place_, i);
  const size_t size = piece.size() * call.element;
  added_.clear();
  for (const Term& term : terms_) {
    if (term.process == exchange_.process()) {
      added_.push_back(call.inputs[term.thread] + piece.begin * call.element);
      continue;
    }
    std::byte* const arrived = call.terms + added_.size() * size;
    exchange_.Receive(term.process, {arrived, size});
    added_.push_back(arrived);
  }
}

void GroupChain::PassOn(const Call& call, size_t step) {
  const auto sum_of = [&](size_t i, std::byte* wide) -> std::span<std::byte> {
    if (!call.is_wide) return Result(call, place_, i);
    return {wide, PieceOf(call, place_, i).size() * sizeof(float)};
  };
  // up
  if (number_ > 0) {
    if (const auto i = PieceAt(step, number_, call.num_pieces)) {
      const size_t size = sum_of(*i, call.carry).size();
      exchange_.Receive(below_, {call.carry, size});
    }
  }
  if (!is_last()) {
    if (const auto i = PieceAt(step, number_ + 1, call.num_pieces)) {
      exchange_.Send(above_,
                     sum_of(*i, reinterpret_cast<std::byte*>(call.partial)));
    }
    // down: the last group sends what it added, the others what they got
    if (const auto i = PieceAt(step, 2 * last_ - number_, call.num_pieces)) {
      exchange_.Receive(above_, Result(call, place_, *i));
    }
  }
  if (number_ > 0) {
    if (const auto i =
            PieceAt(step, 2 * last_ - number_ + 1, call.num_pieces)) {
      exchange_.Send(below_, Result(call, place_, *i));
    }
  }
}

void GroupChain::HandRound(const Call& call, size_t i) {
  for (size_t place = 0; place < group_.size(); ++place) {
    if (place == place_) continue;
    if (owns_part()) exchange_.Send(group_[place], Result(call, place_, i));
    if (place < num_parts_) {
      exchange_.Receive(group_[place], Result(call, place, i));
    }
  }
}

void GroupChain::Add(const Call& call, size_t i) {
  const size_t count = PieceOf(call, place_, i).size();
  const std::span<std::byte> result = Result(call, place_, i);
  const double factor = is_last() ? call.c.factor : 1.0;
  if (!call.is_wide) {
    if (number_ > 0) added_.insert(added_.begin(), call.carry);
    std::byte* const outputs[] = {result.data()};
    Reduce(call.c.op, call.c.in.dtype(), added_, outputs, 0, count, factor);
    return;
  }
  const auto* carry =
      number_ > 0 ? reinterpret_cast<const float*>(call.carry) : nullptr;
  ReduceOn(call.c.op, carry, added_, call.partial, count);
  if (!is_last()) return;
  Narrow(call.partial, reinterpret_cast<BFloat16*>(result.data()), count);
  if (factor != 1.0) {
    Scale(DType::kBF16, factor, result.data(), result.data(), count);
  }
}

}  // namespace replicant::comm
