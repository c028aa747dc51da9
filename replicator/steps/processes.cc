#include "replicator/steps/processes.h"

#include <algorithm>

namespace replicant::replicator {
namespace {

using comm::Collective;
using Kind = comm::Collective::Kind;

template <typename T>
MutableTensorView View(std::span<T> elements) {
  return {kDTypeOf<T>, Shape({static_cast<int64_t>(elements.size())}),
          elements.data()};
}

std::span<uint8_t> Bytes(std::string& text) {
  return {reinterpret_cast<uint8_t*>(text.data()), text.size()};
}

}  // namespace

int Processes::rank() const {
  return between_ == nullptr ? 0 : between_->rank();
}

int Processes::size() const {
  return between_ == nullptr ? 1 : between_->size();
}

void Processes::Min(std::span<int32_t> words) {
  const MutableTensorView view = View(words);
  Run({Kind::kAllReduce, ReduceOp::kMin, 0, view, view});
}

void Processes::Broadcast(MutableTensorView tensor) {
  Run({Kind::kBroadcast, {}, 0, tensor, tensor});
}

std::string Processes::Broadcast(const std::string& text) {
  int64_t size[1] = {static_cast<int64_t>(text.size())};
  Broadcast(View(std::span<int64_t>(size)));
  std::string result = text;
  result.resize(static_cast<size_t>(size[0]));
  Broadcast(View(Bytes(result)));
  return result;
}

std::vector<std::string> Processes::Gather(const std::string& text) {
  if (between_ == nullptr) return {text};
  const auto num_ranks = static_cast<size_t>(size());
  int64_t own_size[1] = {static_cast<int64_t>(text.size())};
  std::vector<int64_t> sizes(num_ranks);
  Run({Kind::kAllGather,
       {},
       0,
       View(std::span<int64_t>(own_size)),
       View(std::span<int64_t>(sizes))});
  // rows of equal length
  const auto row =
      static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::string padded = text;
  padded.resize(row);
  std::string all(row * num_ranks, '\0');
  Run({Kind::kAllGather, {}, 0, View(Bytes(padded)), View(Bytes(all))});
  std::vector<std::string> texts;
  texts.reserve(num_ranks);
  for (size_t r = 0; r < num_ranks; ++r) {
    texts.push_back(all.substr(r * row, static_cast<size_t>(sizes[r])));
  }
  return texts;
}

void Processes::Run(const Collective& collective) {
  if (between_ == nullptr) return;
  Collective named = collective;
  named.place = "between steps";
  between_->Run(named);
}

}  // namespace replicant::replicator
