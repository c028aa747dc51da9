// Messages of hostile workers for a parameter server. Each is executed,
// answered or refused with MalformedMessage or InvalidArgument, and the server
// then still serves a worker that behaves.
//
// The input is a list of messages of eight bytes (kind, worker, run, sequence,
// step, form of the payload, two bytes of its length), raw payloads following
// their message.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/reduce.h"
#include "core/graph/ops/state.h"
#include "core/kernels/backend.h"
#include "core/replicator/graph/graph_replica.h"
#include "core/replicator/parameter_server/parameter_shard.h"
#include "core/rpc/wire.h"

namespace replicant::replicator {
namespace {

constexpr int64_t kColumns = 3;
constexpr int kWorkers = 2;

// w -= mean(x).
StepSplit WeightStep() {
  // outlives the split, which points into it
  static auto* const graph = new graph::Graph(/*seed=*/1);
  GraphReplica replica(*graph, {.id = 0, .count = 1});
  const graph::Output x = graph->Input("x", DType::kF64, Shape({2, kColumns}));
  const graph::VariableId w = graph->AddVariable(
      {.name = "w", .dtype = DType::kF64, .shape = Shape({kColumns})});
  const graph::Output mean = replica.AllReduce(
      graph::ReduceMean(graph::Add(x, graph->Read(w)), {.axes = {0}}),
      ReduceOp::kMean);
  const StepOutputs outputs = {
      .values = {},
      .updates = {graph::Assign(*graph, w, graph::Sub(graph->Read(w), mean))}};
  return SplitStep(*graph, outputs);
}

class Target {
 public:
  Target() : shard_(Options(), {&split()}, sharding(), &backend()) {}

  void Send(ServerMessage kind, rpc::Message message) {
    const size_t num_before = num_answers_;
    bool is_refused = false;
    try {
      shard_.Handle(
          kind, std::move(message),
          [this](const rpc::Message& reply) {
            static_cast<void>(ServerReply::Decode(reply));
            ++num_answers_;
          },
          now_);
    } catch (const rpc::MalformedMessage&) {
      is_refused = true;
    } catch (const InvalidArgument&) {
      is_refused = true;
    }
    REPLICANT_CHECK(!is_refused || num_answers_ == num_before,
                    "a refused message was answered");
    ++num_messages_;
    REPLICANT_CHECK(num_answers_ <= num_messages_, "answered twice");
  }

  void Lose(uint32_t worker) { shard_.Lose(worker % kWorkers); }

  void Wait(uint8_t seconds) {
    now_ += std::chrono::seconds(seconds);
    shard_.Tick(now_);
  }

  // A new run of the first worker joins and assigns, and is answered.
  void CheckAlive() {
    const ServerRequest request = {.worker = 0, .run = 1'000'000};
    rpc::Message join = rpc::MakeMessage(request.Encode());
    join.push_back(rpc::Frame::Copy(DescribeSplit(split())));
    const size_t num_before = num_answers_;
    Send(ServerMessage::kJoin, std::move(join));
    Send(ServerMessage::kEnd, rpc::MakeMessage(request.Encode()));
    REPLICANT_CHECK(num_answers_ >= num_before + 2 && shard_.is_over(),
                    "the server does not answer");
  }

  static const StepSplit& split() {
    static const auto* const split = new StepSplit(WeightStep());
    return *split;
  }

 private:
  static ParameterShard::Options Options() {
    return {.num_workers = kWorkers,
            .staleness = 1,
            .patience = std::chrono::seconds(10)};
  }
  static const Sharding& sharding() {
    static const auto* const sharding = new Sharding({&split()}, 1);
    return *sharding;
  }
  static kernels::Backend& backend() {
    static auto* const backend = kernels::MakeBackend("reference").release();
    return *backend;
  }

  ParameterShard shard_;
  Clock::TimePoint now_;
  size_t num_messages_ = 0;
  size_t num_answers_ = 0;
};

void Play(std::span<const std::byte> input) {
  Target target;
  const auto take = [&input](size_t count) {
    const auto taken = input.first(std::min(count, input.size()));
    input = input.subspan(taken.size());
    return taken;
  };
  while (!input.empty()) {
    std::array<uint8_t, 8> field{};
    const auto bytes = take(field.size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      field[i] = std::to_integer<uint8_t>(bytes[i]);
    }
    const uint8_t kind = field[0] % 8;
    if (kind == 0) {
      target.Wait(field[1]);
      continue;
    }
    if (kind > 5) {
      target.Lose(field[1]);
      continue;
    }
    const ServerRequest request = {
        .worker = field[1] == 0xff ? UINT32_MAX : field[1] % 4u,
        .run = field[2] % 4u,
        .sequence = field[3] == 0xff ? UINT64_MAX : field[3],
        .step =
            field[4] == 0xff ? ServerRequest::kAllVariables : field[4] % 3u};
    rpc::Message message = rpc::MakeMessage(request.Encode());
    const size_t length = field[6] + 256u * (field[7] % 4u);
    switch (field[5] % 4) {
      case 0:
        break;
      case 1:
        message.push_back(rpc::Frame::Copy(DescribeSplit(Target::split())));
        break;
      case 2: {
        const std::vector<double> numbers(field[6] % 8u, 0.5);
        message.push_back(rpc::Frame::Copy(std::as_bytes(std::span(numbers))));
        break;
      }
      default:
        // a part of a message of the tool's own making
        message.clear();
        message.push_back(rpc::Frame::Copy(take(length)));
    }
    target.Send(static_cast<ServerMessage>(kind), std::move(message));
  }
  target.CheckAlive();
}

}  // namespace
}  // namespace replicant::replicator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool is_set_up = [] {
    replicant::LogOptions options;
    options.level = replicant::LogLevel::kOff;
    replicant::InitLogging(options);
    return true;
  }();
  replicant::replicator::Play(std::as_bytes(std::span(data, size)));
  return 0;
}
