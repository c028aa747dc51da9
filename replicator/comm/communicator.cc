#include "replicator/comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/error.h"

namespace replicant::comm {
namespace {

using Kind = Collective::Kind;

std::string_view NameOf(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kBarrier:
      return "barrier";
  }
  REPLICANT_CHECK(false, "Kind {}", static_cast<int>(kind));
}

bool IsReduction(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduceScatter;
}

bool IsFloating(TensorView view) {
  const DType dtype = view.dtype();
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16;
}

[[noreturn]] void Fail(const Collective& c, const std::string& why) {
  throw InvalidArgument(fmt::format("{}: {}", c.ToString(), why));
}

// Whether the two ranges are disjoint, or the smaller is row `rank` of the
// larger.
bool MayBeUsedTogether(const Collective& c, int rank) {
  const std::byte* const in = c.in.data();
  const std::byte* const out = c.out.data();
  const size_t in_bytes = c.in.size_bytes();
  const size_t out_bytes = c.out.size_bytes();
  if (in + in_bytes <= out || out + out_bytes <= in) return true;
  const auto row = static_cast<size_t>(rank);
  if (c.kind == Kind::kAllGather) return in == out + row * in_bytes;
  if (c.kind == Kind::kReduceScatter) return out == in + row * out_bytes;
  return in == out;
}

}  // namespace

std::string Collective::ToString() const {
  std::string text(NameOf(kind));
  if (IsReduction(kind)) text += fmt::format(" {}", replicant::ToString(op));
  if (kind == Kind::kBroadcast) text += fmt::format(" from rank {}", source);
  if (kind != Kind::kBarrier) {
    text += fmt::format(" {}{}", DTypeName(in.dtype()), in.shape().ToString());
  }
  if (!place.empty()) text += fmt::format(" ({})", place);
  return text;
}

void Communicator::Run(const Collective& c) {
  if (c.kind != Kind::kBarrier) {
    const int64_t in = c.in.shape().num_elements();
    const int64_t out = c.out.shape().num_elements();
    const int64_t in_rows = c.kind == Kind::kReduceScatter ? size() : 1;
    const int64_t out_rows = c.kind == Kind::kAllGather ? size() : 1;
    if (c.in.dtype() != c.out.dtype() || in * out_rows != out * in_rows) {
      Fail(c, fmt::format("the result does not fit {}{} on {} ranks",
                          DTypeName(c.out.dtype()), c.out.shape().ToString(),
                          size()));
    }
    if (IsReduction(c.kind) && c.in.dtype() == DType::kBool) {
      Fail(c, "bool cannot be reduced");
    }
    if (IsReduction(c.kind) && c.op == ReduceOp::kMean && !IsFloating(c.in)) {
      Fail(c, "a mean is for floating elements");
    }
    if (c.source < 0 || c.source >= size()) {
      Fail(c, fmt::format("there are {} ranks", size()));
    }
    if (!MayBeUsedTogether(c, rank())) {
      Fail(c, "input and result overlap, and are not in place");
    }
  }
  if (c.op != ReduceOp::kMean || !IsReduction(c.kind)) {
    DoRun(c);
    return;
  }
  Collective sum = c;
  sum.op = ReduceOp::kSum;
  sum.factor /= size();
  DoRun(sum);
}

std::map<int, std::vector<int>> Communicator::GatherParts(int color, int key) {
  const int64_t own[2] = {color, key};
  std::vector<int64_t> all(2 * static_cast<size_t>(size()));
  AllGather(TensorView(DType::kI64, Shape({2}), own),
            MutableTensorView(DType::kI64, Shape({2 * size()}), all.data()));
  std::map<int, std::vector<int>> parts;
  for (int r = 0; r < size(); ++r) {
    const auto of_rank = static_cast<int>(all[2 * static_cast<size_t>(r)]);
    if (of_rank >= 0) parts[of_rank].push_back(r);
  }
  for (auto& [ignored, ranks] : parts) {
    std::ranges::stable_sort(
        ranks, {}, [&](int r) { return all[2 * static_cast<size_t>(r) + 1]; });
  }
  return parts;
}

}  // namespace replicant::comm
