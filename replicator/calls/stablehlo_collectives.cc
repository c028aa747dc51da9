#include "replicator/calls/stablehlo_collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "replicator/calls/call_ops.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {
namespace {

using exporting::HloBuilder;
using exporting::HloValue;
using exporting::HloValues;
using exporting::StableHloNode;

// "replica_groups = ...": all replicas, in one group.
std::string AllReplicas(const HloBuilder& b) {
  std::vector<int> replicas(static_cast<size_t>(b.num_replicas()));
  std::iota(replicas.begin(), replicas.end(), 0);
  return fmt::format("replica_groups = dense<[[{}]]> : tensor<1x{}xi64>",
                     fmt::join(replicas, ", "), b.num_replicas());
}

std::string_view RegionOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return "add";
    case ReduceOp::kMin:
      return "minimum";
    case ReduceOp::kMax:
      return "maximum";
    case ReduceOp::kProd:
      return "multiply";
  }
  REPLICANT_CHECK(false, "unknown reduction {}", static_cast<int>(op));
}

HloValue Scaled(HloBuilder& b, const HloValue& x, double factor) {
  return factor == 1.0 ? x : b.Mul(x, factor);
}

HloValue AllReduced(HloBuilder& b, const HloValue& x, std::string_view op) {
  return b.Op({.op = "all_reduce",
               .operands = {x},
               .dtype = x.dtype,
               .shape = x.shape,
               .attributes = AllReplicas(b),
               .regions = {{.op = op, .dtype = x.dtype}}});
}

// Differs from our communicators: where gradients travel as bf16, XLA may round
// partial sums as well.
HloValues WriteAllReduce(HloBuilder& b, const StableHloNode& n) {
  const HloValue& x = n.input(0);
  if (b.num_replicas() == 1) return {x};
  if (n.attributes().Has("top_k")) {
    n.Fail(
        "sends a gradient's largest elements alone, which has no form in "
        "StableHLO; hint: replication.top_k: 0");
  }
  const CallSpec call = CallOf(n.node);
  const DType format = n.attributes().Has("wire")
                           ? *ParseDType(n.attributes().Text("wire"))
                           : x.dtype;
  const HloValue sum = AllReduced(b, b.Convert(x, format), RegionOf(call.op));
  return {Scaled(b, b.Convert(sum, x.dtype), call.factor)};
}

HloValues WriteAllGather(HloBuilder& b, const StableHloNode& n) {
  const HloValue& x = n.input(0);
  const HloValue row = b.Reshape(x, [&] {
    std::vector<int64_t> dims = {1};
    dims.insert(dims.end(), x.shape.dims().begin(), x.shape.dims().end());
    return Shape(std::span<const int64_t>(dims));
  }());
  if (b.num_replicas() == 1) return {row};
  return {b.Op({.op = "all_gather",
                .operands = {row},
                .dtype = x.dtype,
                .shape = n.type().shape,
                .attributes = fmt::format("all_gather_dim = 0 : i64, {}",
                                          AllReplicas(b))})};
}

HloValues WriteReduceScatter(HloBuilder& b, const StableHloNode& n) {
  const HloValue& x = n.input(0);
  if (b.num_replicas() == 1) return {x};
  const CallSpec call = CallOf(n.node);
  const HloValue rows =
      b.Op({.op = "reduce_scatter",
            .operands = {x},
            .dtype = x.dtype,
            .shape = n.type().shape,
            .attributes =
                fmt::format("scatter_dimension = 0 : i64, {}", AllReplicas(b)),
            .regions = {{.op = RegionOf(call.op), .dtype = x.dtype}}});
  return {Scaled(b, rows, call.factor)};
}

// XLA's own broadcast is not there on every device.
HloValues WriteBroadcast(HloBuilder& b, const StableHloNode& n) {
  const HloValue& x = n.input(0);
  if (b.num_replicas() == 1) return {x};
  const auto source = static_cast<double>(n.attributes().Int("source"));
  const HloValue is_source = b.Compare("EQ", b.ReplicaId(), source);
  const HloValue own = b.Select(is_source, x, b.Like(0.0, x));
  return {AllReduced(b, own, x.dtype == DType::kBool ? "or" : "add")};
}

}  // namespace

const exporting::StableHloForms& CollectiveForms() {
  using Locality = exporting::StableHloForm::Locality;
  static const exporting::StableHloForms forms = {
      {"AllReduce", {&WriteAllReduce, Locality::kReplicated}},
      {"AllGather", {&WriteAllGather, Locality::kReplicated}},
      {"ReduceScatter", {&WriteReduceScatter, Locality::kPerReplica}},
      {"Broadcast", {&WriteBroadcast, Locality::kReplicated}}};
  return forms;
}

}  // namespace replicant::replicator
