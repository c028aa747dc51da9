#include "replicator/calls/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "engine/graph/passes/rewriter.h"
#include "replicator/calls/call_ops.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {
namespace {

using graph::Node;
using graph::NodeId;
using graph::Program;
using graph::Rewriter;

// Placeholders that are merged into one call.
struct Call {
  // in the order in which they joined
  std::vector<NodeId> members;
  // packed: started behind node `ready` and waited for at node `first_use`;
  // otherwise blocking, at its only member
  bool is_bucket = false;
  NodeId ready = -1;
  NodeId first_use = -1;

  // the node after which it is issued
  NodeId position() const { return is_bucket ? ready : first_use; }
};

// Finds the calls of a program, in the order of issue.
class CallPlanner {
 public:
  CallPlanner(const Graph& graph, const LoweringOptions& options)
      : graph_(graph), options_(options) {}

  std::vector<Call> Run() {
    std::vector<const Node*> reductions;
    for (const Node& node : graph_.nodes()) {
      const Primitive primitive = PrimitiveOf(node);
      if (primitive == Primitive::kAllReduce) {
        reductions.push_back(&node);
      } else if (primitive != Primitive::kNone) {
        calls_.push_back({.members = {node.id}, .first_use = node.id});
      }
    }
    if (!options_.in_program_order) {
      std::ranges::stable_sort(reductions, {}, [](const Node* node) {
        return node->inputs[0].node;
      });
    }
    for (const Node* node : reductions) Append(*node);
    for (auto& [kind, bucket] : open_) Close(std::move(bucket.call));
    std::ranges::stable_sort(calls_, {}, [this](const Call& call) {
      return options_.in_program_order ? call.first_use : call.position();
    });
    return std::move(calls_);
  }

 private:
  struct Bucket {
    Call call;
    size_t size_bytes = 0;
  };

  void Append(const Node& node) {
    const GradientFormat format = FormatOf(graph_, node);
    Bucket& bucket = open_[{ReduceOpOf(node), node.output_type().dtype,
                            format.dtype, format.top_k, node.device}];
    const NodeId ready = node.inputs[0].node;
    const size_t size_bytes =
        static_cast<size_t>(node.output_type().shape.num_elements()) *
        DTypeSize(format.dtype);
    // a tensor that fills a bucket stays alone, which needs no copies
    const bool fits =
        bucket.call.members.empty() ||
        (bucket.size_bytes < options_.bucket_bytes &&
         size_bytes <= options_.bucket_bytes && ready < bucket.call.first_use);
    if (!fits) Close(std::exchange(bucket, {}).call);
    Call& call = bucket.call;
    call.first_use =
        call.members.empty() ? node.id : std::min(call.first_use, node.id);
    call.ready = std::max(call.ready, ready);
    call.members.push_back(node.id);
    bucket.size_bytes += size_bytes;
  }

  void Close(Call call) {
    // the order of the first uses is that of all replicas
    if (options_.in_program_order) call.ready = call.first_use - 1;
    // there is something to compute between the last input and the first use;
    // and only a bucket changes the number format
    const Node& first = graph_.node(call.members.front());
    call.is_bucket = call.members.size() > 1 ||
                     call.first_use > call.ready + 1 ||
                     FormatOf(graph_, first) !=
                         GradientFormat{.dtype = first.output_type().dtype};
    calls_.push_back(std::move(call));
  }

  const Graph& graph_;
  const LoweringOptions& options_;
  // by kind, dtype, number format and device
  std::map<std::tuple<ReduceOp, DType, DType, double, int32_t>, Bucket> open_;
  std::vector<Call> calls_;
};

// Builds the program with the calls.
class Lowerer {
 public:
  Lowerer(const Program& program, const LoweringOptions& options)
      : program_(program),
        options_(options),
        rewriter_(*program.graph),
        calls_(CallPlanner(*program.graph, options_).Run()) {}

  LoweredProgram Run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      for (const NodeId member : calls_[i].members) call_of_[member] = i;
    }
    for (const Node& node : program_.graph->nodes()) {
      if (PrimitiveOf(node) != Primitive::kNone) {
        numbers_.emplace(node.id, numbers_.size() + 1);
      }
    }
    for (const Node& node : program_.graph->nodes()) {
      const auto call = call_of_.find(node.id);
      if (call == call_of_.end()) {
        rewriter_.Copy(node);
      } else if (!calls_[call->second].is_bucket) {
        AddCall(node);
      } else if (calls_[call->second].first_use == node.id) {
        AddWait(call->second);
      }
      // calls are sorted by the node that they follow
      while (next_ < calls_.size() && calls_[next_].position() <= node.id) {
        if (calls_[next_].is_bucket) AddStart(next_);
        ++next_;
      }
    }
    result_.program = rewriter_.Finish(program_);
    return std::move(result_);
  }

 private:
  const Node& node(NodeId id) const { return program_.graph->node(id); }

  // An input of the next call, so that calls stay in order.
  Output Token(CallSite site) {
    if (!token_.is_valid()) {
      token_ = rewriter_.graph().Scalar(0.0, DType::kU8, site);
    }
    return token_;
  }

  BucketSpec BucketOf(size_t number) const {
    const Node& first = node(calls_[number].members.front());
    return {.number = static_cast<int64_t>(number),
            .call = CallOf(first),
            .rank = RankOf(first),
            .dtype = first.output_type().dtype,
            .gradient_format = FormatOf(*program_.graph, first),
            .is_async = options_.is_async};
  }

  void AddCall(const Node& placeholder) {
    const Graph::DeviceScope device(rewriter_.graph(), placeholder.device);
    const Output result = AddCollectiveCall(
        rewriter_.Mapped(placeholder.inputs[0]), Token(placeholder.site),
        CallOf(placeholder), placeholder.output_type().shape, placeholder.site);
    token_ = Graph::OutputOf(result, 1);
    rewriter_.Map({placeholder.id, 0}, result);
    AddToResult(Describe(*program_.graph, placeholder), {placeholder.id});
  }

  void AddStart(size_t number) {
    const Call& call = calls_[number];
    const Node& first = node(call.members.front());
    const Graph::DeviceScope device(rewriter_.graph(), first.device);
    std::vector<Output> inputs;
    inputs.reserve(call.members.size());
    for (const NodeId member : call.members) {
      inputs.push_back(rewriter_.Mapped(node(member).inputs[0]));
    }
    const Output bucket =
        AddBucketStart(inputs, Token(first.site), BucketOf(number), first.site);
    token_ = Graph::OutputOf(bucket, 1);
    started_[number] = bucket;
    AddToResult(fmt::format("AllReduce {} of {} tensors, {}",
                            ToString(ReduceOpOf(first)), call.members.size(),
                            bucket.type().ToString()),
                call.members);
  }

  void AddToResult(std::string call, const std::vector<NodeId>& members) {
    result_.calls.push_back(std::move(call));
    std::vector<size_t>& numbers = result_.members.emplace_back();
    for (const NodeId member : members) {
      numbers.push_back(numbers_.at(member));
    }
  }

  void AddWait(size_t number) {
    const Call& call = calls_[number];
    const Node& first = node(call.members.front());
    const Graph::DeviceScope device(rewriter_.graph(), first.device);
    std::vector<Shape> shapes;
    shapes.reserve(call.members.size());
    for (const NodeId member : call.members) {
      shapes.push_back(node(member).output_type().shape);
    }
    const Output reduced = AddBucketWait(started_.at(number), shapes,
                                         BucketOf(number), first.site);
    for (size_t i = 0; i < call.members.size(); ++i) {
      rewriter_.Map({call.members[i], 0},
                    Graph::OutputOf(reduced, static_cast<int>(i)));
    }
  }

  const Program& program_;
  const LoweringOptions options_;
  Rewriter rewriter_;
  const std::vector<Call> calls_;
  std::map<NodeId, size_t> call_of_;
  std::map<NodeId, size_t> numbers_;  // of placeholders, from 1
  // the next call to issue
  size_t next_ = 0;
  Output token_;
  std::map<size_t, Output> started_;
  LoweredProgram result_;
};

}  // namespace

LoweredProgram LowerCollectives(const Program& program,
                                const LoweringOptions& options) {
  return Lowerer(program, options).Run();
}

}  // namespace replicant::replicator
