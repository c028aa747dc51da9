#include "agents/transition_batch.h"

#include <span>
#include <utility>

namespace replicant::agents {
namespace {

using graph::Output;

// What a row, or a step or observation of a row's window, holds.
enum class Content { kObservation, kState, kAction, kNumber, kSteps };

template <typename Batch>
struct Field {
  const char* name;
  Output Batch::*output;
  Content content;
};

constexpr Field<TransitionBatch> kOfRows[] = {
    {"observation", &TransitionBatch::observation, Content::kObservation},
    {"action", &TransitionBatch::action, Content::kAction},
    {"reward", &TransitionBatch::reward, Content::kNumber},
    {"discount", &TransitionBatch::discount, Content::kNumber},
    {"importance_weight", &TransitionBatch::importance_weight,
     Content::kNumber},
    {"state", &TransitionBatch::state, Content::kState}};

// without a window
constexpr Field<TransitionBatch> kOfEnds[] = {
    {"next_observation", &TransitionBatch::next_observation,
     Content::kObservation},
    {"next_state", &TransitionBatch::next_state, Content::kState}};

constexpr Field<StepWindow> kOfWindows[] = {
    {"window_observation", &StepWindow::observation, Content::kObservation},
    {"window_follows", &StepWindow::follows, Content::kSteps},
    {"window_action", &StepWindow::action, Content::kAction},
    {"window_reward", &StepWindow::reward, Content::kNumber},
    {"window_discount", &StepWindow::discount, Content::kNumber},
    {"window_mask", &StepWindow::mask, Content::kNumber},
    {"window_state", &StepWindow::state, Content::kState}};

constexpr Field<TransitionBatch> kOfPrior{
    "prior_weight", &TransitionBatch::prior_weight, Content::kNumber};

// Calls visit(field) for each tensor of a batch: states, then prior_weight
// last.
template <typename Visit>
void VisitFields(const LearningSpec& spec, Visit visit) {
  for (const bool is_state : {false, true}) {
    if (is_state && spec.task.state_size == 0) break;
    const auto visit_all = [&](const auto& fields) {
      for (const auto& field : fields) {
        if ((field.content == Content::kState) == is_state) visit(field);
      }
    };
    visit_all(kOfRows);
    if (spec.window > 0) {
      visit_all(kOfWindows);
    } else {
      visit_all(kOfEnds);
    }
  }
  if (spec.has_prior) visit(kOfPrior);
}

// The type of tensors whose first dimensions are `leading`.
graph::TensorType TypeOf(const LearningSpec& spec, Content content,
                         std::vector<int64_t> leading) {
  DType dtype = spec.dtype;
  switch (content) {
    case Content::kObservation: {
      if (spec.task.has_pixels) dtype = DType::kU8;
      const auto dims = spec.task.observation.dims();
      leading.insert(leading.end(), dims.begin(), dims.end());
      break;
    }
    case Content::kState:
      leading.push_back(spec.task.state_size);
      break;
    case Content::kAction:
      leading.push_back(spec.task.action_size());
      break;
    case Content::kNumber:
      break;
    case Content::kSteps:
      leading.push_back(spec.window);
      break;
  }
  return {dtype, Shape(std::span<const int64_t>(leading))};
}

std::vector<int64_t> LeadingDims(const LearningSpec& /*spec*/, int64_t rows,
                                 const Field<TransitionBatch>& /*field*/) {
  return {rows};
}
std::vector<int64_t> LeadingDims(const LearningSpec& spec, int64_t rows,
                                 const Field<StepWindow>& field) {
  const bool is_observed = field.content == Content::kObservation ||
                           field.content == Content::kState ||
                           field.content == Content::kSteps;
  return {rows, is_observed ? spec.window_observations : spec.window};
}

Output& OutputOf(TransitionBatch& batch, const Field<TransitionBatch>& field) {
  return batch.*field.output;
}
Output& OutputOf(TransitionBatch& batch, const Field<StepWindow>& field) {
  if (!batch.window) batch.window.emplace();
  return *batch.window.*field.output;
}

}  // namespace

TransitionBatch TransitionBatch::From(
    const LearningSpec& spec,
    const std::function<Output(const std::string& name)>& input) {
  TransitionBatch batch;
  VisitFields(spec, [&](const auto& field) {
    OutputOf(batch, field) = input(field.name);
  });
  return batch;
}

std::vector<TransitionTensor> TransitionTensors(const LearningSpec& spec,
                                                int64_t rows) {
  std::vector<TransitionTensor> tensors;
  VisitFields(spec, [&](const auto& field) {
    auto type = TypeOf(spec, field.content, LeadingDims(spec, rows, field));
    tensors.push_back({field.name, type.dtype, std::move(type.shape)});
  });
  return tensors;
}

graph::TensorType ObservationType(const LearningSpec& spec, int64_t rows) {
  return TypeOf(spec, Content::kObservation, {rows});
}

}  // namespace replicant::agents
