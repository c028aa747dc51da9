#include "engine/nn/replica_context.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"

namespace replicant::nn {
namespace {

void CheckReducible(std::string_view primitive, Output x, ReduceOp op,
                    CallSite site) {
  const DType dtype = x.dtype();
  if (dtype == DType::kBool) {
    throw ShapeError(fmt::format("{}: {}: cannot reduce bool; hint: cast it",
                                 site.ToString(), primitive));
  }
  if (op == ReduceOp::kMean && !graph::IsFloating(dtype)) {
    throw ShapeError(
        fmt::format("{}: {}: x is {}; a mean is for floating tensors",
                    site.ToString(), primitive, DTypeName(dtype)));
  }
}

// Combines two operands of a reduction; a mean adds them.
Output Combine(ReduceOp op, Output a, Output b, CallSite site) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return graph::Add(a, b, site);
    case ReduceOp::kMin:
      return graph::Minimum(a, b, site);
    case ReduceOp::kMax:
      return graph::Maximum(a, b, site);
    case ReduceOp::kProd:
      return graph::Mul(a, b, site);
  }
  REPLICANT_CHECK(false, "ReduceOp {}", static_cast<int>(op));
}

// The floating tensors that `results` are computed from and that are older than
// node `begin`, or variables.
std::vector<Output> SourcesOf(Graph& graph, const std::vector<Output>& results,
                              graph::NodeId begin) {
  std::set<graph::Endpoint> seen;
  std::vector<graph::Endpoint> pending;
  pending.reserve(results.size());
  for (const Output& result : results) pending.push_back(result.endpoint());
  std::vector<Output> sources;
  while (!pending.empty()) {
    const graph::Endpoint at = pending.back();
    pending.pop_back();
    if (!seen.insert(at).second) continue;
    const graph::Node& node = graph.node(at.node);
    if (node.id >= begin && !node.inputs.empty()) {
      pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
    } else if (graph::IsFloating(node.output_type(at.index).dtype) &&
               (node.id < begin || node.constant == nullptr)) {
      sources.push_back({&graph, at.node, at.index});
    }
  }
  return sources;
}

// Zeros of the type of `like`, which count as computed from the sources. Value
// and gradient are zero for infinite sources too.
Output ZerosThatDependOn(const std::vector<Output>& sources, Output like,
                         CallSite site) {
  Graph& graph = *like.graph;
  Output zero = graph.Scalar(0.0, like.dtype(), site);
  if (graph::IsFloating(like.dtype())) {
    const Output never = graph.Scalar(0.0, DType::kBool, site);
    for (const Output& source : sources) {
      const Output sum =
          graph::Cast(graph::ReduceSum(source, {}, site), like.dtype(), site);
      zero = graph::Where(never, sum, zero, site);
    }
  }
  return graph::BroadcastTo(zero, like.shape(), site);
}

}  // namespace

Graph::DeviceScope ReplicaContext::LogicalDevice(int device, CallSite site) {
  if (device < 0 || device >= num_logical_devices()) {
    throw InvalidArgument(
        fmt::format("{}: LogicalDevice: {} does not belong to this replica; "
                    "allowed: 0 to {}; hint: replication.logical_devices",
                    site.ToString(), device, num_logical_devices() - 1));
  }
  return {graph_, device};
}

Output ReplicaContext::AllReduce(Output x, ReduceOp op, CallSite site) {
  CheckReducible("AllReduce", x, op, site);
  return DoAllReduce(x, op, site);
}

std::vector<Output> ReplicaContext::AllReduce(const std::vector<Output>& xs,
                                              ReduceOp op, CallSite site) {
  std::vector<Output> reduced;
  reduced.reserve(xs.size());
  for (const Output& x : xs) reduced.push_back(AllReduce(x, op, site));
  return reduced;
}

std::vector<Output> ReplicaContext::ResultsOf(const Piece& piece, int owner,
                                              CallSite site) {
  divides_work_ = true;
  const auto begin = static_cast<graph::NodeId>(graph_.nodes().size());
  std::vector<Output> results = piece();
  if (owner == replica_id_) return results;
  // every replica's gradients lead to the same variables, though only the owner
  // has any
  const std::vector<Output> sources = SourcesOf(graph_, results, begin);
  for (Output& result : results) {
    result = ZerosThatDependOn(sources, result, site);
  }
  return results;
}

std::vector<std::vector<Output>> ReplicaContext::MapGather(
    const std::vector<Piece>& pieces, CallSite site) {
  std::vector<std::vector<Output>> gathered;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int owner = static_cast<int>(i) % num_replicas_;
    std::vector<Output> results = ResultsOf(pieces[i], owner, site);
    for (Output& result : results) result = Broadcast(result, owner, site);
    gathered.push_back(std::move(results));
  }
  return gathered;
}

std::vector<Output> ReplicaContext::MapReduce(const std::vector<Piece>& pieces,
                                              ReduceOp op, CallSite site) {
  if (pieces.empty()) {
    throw InvalidArgument(
        fmt::format("{}: MapReduce: there are no pieces", site.ToString()));
  }
  // partial sums can start from zero where a replica has no piece; the other
  // reductions would need an extreme value of every type to start from
  const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kMean;
  std::vector<Output> reduced;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int owner = static_cast<int>(i) % num_replicas_;
    std::vector<Output> results = ResultsOf(pieces[i], owner, site);
    if (i > 0 && results.size() != reduced.size()) {
      throw InvalidArgument(
          fmt::format("{}: MapReduce: piece {} has {} results, piece 0 has {}",
                      site.ToString(), i, results.size(), reduced.size()));
    }
    for (size_t k = 0; k < results.size(); ++k) {
      CheckReducible("MapReduce", results[k], op, site);
      if (i > 0 && results[k].type() != reduced[k].type()) {
        throw ShapeError(fmt::format(
            "{}: MapReduce: result {} of piece {} is {}, but piece 0 has {}",
            site.ToString(), k, i, results[k].type().ToString(),
            reduced[k].type().ToString()));
      }
      if (!is_sum) results[k] = Broadcast(results[k], owner, site);
      if (i == 0) {
        reduced.push_back(results[k]);
      } else {
        reduced[k] = Combine(op, reduced[k], results[k], site);
      }
    }
  }
  if (!is_sum) return reduced;
  for (Output& sum : reduced) {
    sum = AllReduce(sum, ReduceOp::kSum, site);
    if (op == ReduceOp::kMean) {
      sum = graph::Mul(sum, 1.0 / static_cast<double>(pieces.size()), site);
    }
  }
  return reduced;
}

std::vector<Output> ReplicaContext::MeanGradients(
    const std::vector<Output>& gradients, CallSite site) {
  std::vector<Output> means;
  means.reserve(gradients.size());
  for (const Output& gradient : gradients) {
    CheckReducible("MeanGradients", gradient, ReduceOp::kMean, site);
    means.push_back(DoMeanGradient(gradient, site));
  }
  return means;
}

Output ReplicaContext::AllGather(Output x, CallSite site) {
  return DoAllGather(x, site);
}

Output ReplicaContext::ReduceScatter(Output x, ReduceOp op, CallSite site) {
  CheckReducible("ReduceScatter", x, op, site);
  if (x.shape().rank() == 0 || x.shape()[0] % num_replicas_ != 0) {
    throw ShapeError(fmt::format(
        "{}: ReduceScatter: the leading dimension of {} cannot be divided "
        "among {} replicas",
        site.ToString(), x.shape().ToString(), num_replicas_));
  }
  return DoReduceScatter(x, op, site);
}

Output ReplicaContext::Broadcast(Output x, int source, CallSite site) {
  if (source < 0 || source >= num_replicas_) {
    throw InvalidArgument(
        fmt::format("{}: Broadcast: source {} is not a replica; allowed: 0 to "
                    "{}",
                    site.ToString(), source, num_replicas_ - 1));
  }
  return DoBroadcast(x, source, site);
}

Optimizer ReplicaContext::WrapOptimizer(Optimizer optimizer, CallSite site) {
  return [this, site, optimizer = std::move(optimizer)](
             const std::vector<VariableId>& parameters,
             const std::vector<Output>& gradients) {
    return optimizer(parameters, MeanGradients(gradients, site));
  };
}

}  // namespace replicant::nn
