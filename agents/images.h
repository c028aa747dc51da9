#pragma once

#include <cstdint>
#include <vector>

#include "agents/task_spec.h"
#include "engine/graph/graph.h"

// The images of observations as tensors of a graph.
//
// Letters: B rows, H W C image, P bytes of all images of an observation.
namespace replicant::agents {

// Separates the images of observations: from [B, H, W, C] u8 that image, from
// [B, P] each of TaskSpec::images as [B, H, W, C].
std::vector<graph::Output> SplitImages(
    const TaskSpec& task, graph::Output observation,
    graph::CallSite site = graph::CallSite::Here());

// The inverse: one image as it is, several as [B, P].
graph::Output JoinImages(const std::vector<graph::Output>& images,
                         graph::CallSite site = graph::CallSite::Here());

// Observations from a table of frames.
//
// Args:
//   frames  [N, TaskSpec::frame_bytes()] u8: the images of one time, [H, W, 3]
//           each, one after the other
//   slots   [..., TaskSpec::frame_stack] i32, the oldest first; a slot outside
//           [0, N) is a frame of zeros
// Returns [..., TaskSpec::observation] u8.
graph::Output GatherObservations(
    const TaskSpec& task, graph::Output frames, graph::Output slots,
    graph::CallSite site = graph::CallSite::Here());

// Adds an input of the graph for each image, [rows, H, W, C] u8: "observation"
// of one image, and of several the images' names.
std::vector<graph::Output> ImageInputs(graph::Graph& graph,
                                       const TaskSpec& task, int64_t rows);

}  // namespace replicant::agents
