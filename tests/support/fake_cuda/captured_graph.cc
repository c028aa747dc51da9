#include "tests/support/fake_cuda/captured_graph.h"

#include <algorithm>

namespace replicant::testing {

CUresult WalkGraph(
    const CapturedGraph& graph, Clock* origin,
    std::map<uintptr_t, Clock>* others,
    const std::function<CUresult(const GraphOperation&, Clock*)>& run) {
  std::map<uintptr_t, Clock> events;
  for (const GraphOperation& operation : graph.operations) {
    Clock& clock = operation.stream == graph.origin
                       ? *origin
                       : (*others)[operation.stream];
    switch (operation.kind) {
      case GraphOperation::Kind::kWork:
      case GraphOperation::Kind::kMeet: {
        const CUresult result = run(operation, &clock);
        if (result != CUDA_SUCCESS) return result;
        break;
      }
      case GraphOperation::Kind::kRecord:
        events[operation.event] = clock;
        break;
      case GraphOperation::Kind::kWait:
        clock.Join(events[operation.event]);
        break;
    }
  }
  return CUDA_SUCCESS;
}

bool IsJoined(const CapturedGraph& graph) {
  Clock origin;
  std::map<uintptr_t, Clock> others;
  // the number of each stream's last work
  std::map<uintptr_t, uint64_t> last;
  WalkGraph(graph, &origin, &others,
            [&](const GraphOperation& operation, Clock* clock) {
              last[operation.stream] = clock->Advance(operation.stream);
              return CUDA_SUCCESS;
            });
  return std::ranges::all_of(last, [&](const auto& work) {
    return origin.Has(work.first, work.second);
  });
}

}  // namespace replicant::testing
