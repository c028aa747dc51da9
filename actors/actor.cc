// Each Step() has three parts: one inference for all environments, one step of
// all environments, and Emit() for each. now_ holds the observations before the
// step and next_ the observations after it; then they are swapped.
//
// Restore() makes no snapshot of the physics: an environment reaches the same
// state again if it repeats the actions of its episode. The environments stand
// at different steps of their episodes, so the one with the longest episode
// begins first and the others join it later, such that all reach the present
// with the same call.
#include "actors/actor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace replicant::actors {
namespace {

template <typename T>
std::span<const T> Row(const std::vector<T>& rows, int64_t index,
                       int64_t num_rows) {
  const size_t size = rows.size() / static_cast<size_t>(num_rows);
  return {rows.data() + static_cast<size_t>(index) * size, size};
}

}  // namespace

Actor::Actor(const agents::TaskSpec& task, env::VectorEnvironment* environments,
             Policy* policy, std::vector<replay::StepSink*> sinks,
             ActorOptions options)
    : task_(task),
      environments_(*environments),
      policy_(*policy),
      sinks_(std::move(sinks)),
      options_(std::move(options)),
      random_(options_.seed,
              fmt::format("actor-{}/exploration", options_.first_environment)),
      now_(MakeObserved()),
      next_(MakeObserved()),
      actions_(static_cast<size_t>(size() * task_.action_size())),
      task_actions_(actions_.size()),
      episodes_(static_cast<size_t>(size())),
      made_(episodes_.size()),
      is_endless_(episodes_.size()),
      num_calls_(options_.first_position) {
  REPLICANT_CHECK_EQ(sinks_.size(), static_cast<size_t>(size()));
  for (int e = 0; e < environments_.size(); ++e) {
    const auto i = static_cast<size_t>(e);
    episodes_[i].environment = options_.first_environment + e;
    made_[i].number = options_.first_position;
    environments_.SeekEpisode(e, options_.first_position);
  }
  environments_.Reset(BufferOf(now_));
  Convert(now_);
  for (replay::StepSink* sink : sinks_) sink->BeginEpisode();
}

Actor::Observed Actor::MakeObserved() const {
  const auto num_rows = static_cast<size_t>(size());
  Observed made;
  made.steps.resize(num_rows);
  if (task_.has_pixels) {
    made.pixels.resize(num_rows *
                       static_cast<size_t>(task_.observation.num_elements()));
    made.frames.resize(num_rows * static_cast<size_t>(task_.frame_bytes()));
  }
  made.state.resize(num_rows * static_cast<size_t>(task_.num_state_values()));
  made.values.resize(made.state.size());
  return made;
}

env::BatchBuffer Actor::BufferOf(Observed& observed) {
  return {.state = observed.state,
          .pixels = observed.pixels,
          .frames = observed.frames,
          .steps = observed.steps};
}

void Actor::Convert(Observed& observed) {
  std::copy(observed.state.begin(), observed.state.end(),
            observed.values.begin());
}

std::span<const std::byte> Actor::ObservationOf(const Observed& observed,
                                                int64_t index) const {
  return std::as_bytes(Row(observed.values, index, size()));
}

std::span<const std::byte> Actor::FrameOf(const Observed& observed,
                                          int64_t index) const {
  return std::as_bytes(Row(observed.frames, index, size()));
}

int64_t Actor::num_all_steps() const {
  return std::max(num_global_steps_,
                  num_steps_ * options_.num_all_environments / size());
}

double Actor::ScaleOf(int64_t environment, int64_t num_done) const {
  return options_.exploration.Scale(num_done,
                                    options_.first_environment + environment,
                                    options_.num_all_environments);
}

double Actor::NoiseScale() const {
  const int64_t num_done = num_all_steps();
  double sum = 0.0;
  for (int64_t e = 0; e < size(); ++e) sum += ScaleOf(e, num_done);
  return sum / static_cast<double>(size());
}

void Actor::ChooseActions() {
  const int64_t num_done = num_all_steps();
  // the first call that shares the draw
  const int64_t draw =
      num_calls_ - num_calls_ % options_.exploration.HoldSteps(num_done);
  if (options_.exploration.IsRandom(num_done)) {
    random_.set_position(static_cast<uint64_t>(draw) * actions_.size());
    for (float& action : actions_) {
      action = static_cast<float>(random_.Uniform(-1.0, 1.0));
    }
  } else {
    const std::span<std::byte> wanted = policy_.observations().bytes();
    const auto seen = task_.has_pixels ? std::as_bytes(std::span(now_.pixels))
                                       : std::as_bytes(std::span(now_.values));
    REPLICANT_CHECK_EQ(wanted.size(), seen.size());
    std::memcpy(wanted.data(), seen.data(), seen.size());
    if (task_.state_size > 0) {
      std::ranges::copy(now_.values, policy_.states().begin());
    }
    const std::span<float> scales = policy_.noise_scales();
    for (size_t e = 0; e < scales.size(); ++e) {
      scales[e] =
          static_cast<float>(ScaleOf(static_cast<int64_t>(e), num_done));
    }
    const auto chosen = policy_.Act(draw).Span<float>();
    std::copy(chosen.begin(), chosen.end(), actions_.begin());
  }
  for (int64_t e = 0; e < size(); ++e) ToTaskActions(e);
}

void Actor::ToTaskActions(int64_t index) {
  const auto action_size = static_cast<size_t>(task_.action_size());
  task_.ToTaskRange(
      Row(actions_, index, size()),
      std::span(task_actions_)
          .subspan(static_cast<size_t>(index) * action_size, action_size));
}

void Actor::Step() {
  Clock::TimePoint begin = Clock::Real().Now();
  const auto add_to = [&begin](double* seconds) {
    const Clock::TimePoint now = Clock::Real().Now();
    *seconds += ToSeconds(now - begin);
    begin = now;
  };
  ChooseActions();
  ++num_calls_;
  add_to(&times_.policy_s);
  environments_.Step(task_actions_, BufferOf(next_));
  Convert(next_);
  add_to(&times_.environments_s);
  for (int64_t e = 0; e < size(); ++e) Emit(e);
  std::swap(now_, next_);
  add_to(&times_.sinks_s);
}

void Actor::Emit(int64_t index) {
  const auto e = static_cast<size_t>(index);
  const env::TimeStep& step = next_.steps[e];
  replay::StepSink& sink = *sinks_[e];
  EpisodeResult& episode = episodes_[e];
  ActorState::Episode& made = made_[e];
  if (step.IsFirst()) {
    if (!is_restoring_) ++made.number;
    made.actions.clear();
    sink.BeginEpisode();
    return;
  }
  const std::span<const float> action = Row(actions_, index, size());
  if (options_.keeps_state) {
    made.actions.insert(made.actions.end(), action.begin(), action.end());
  }
  sink.Append({.observation = ObservationOf(now_, index),
               .frame = FrameOf(now_, index),
               .action = std::as_bytes(action),
               .reward = static_cast<float>(step.reward),
               .discount = static_cast<float>(step.discount)});
  ++num_steps_;
  ++episode.length;
  episode.episode_return += task_.SumOfRewards(step);
  if (!step.IsLast()) return NoteLength(index);
  sink.EndEpisode(ObservationOf(next_, index), FrameOf(next_, index));
  if (!is_restoring_) options_.on_episode(episode);
  episode.length = 0;
  episode.episode_return = 0.0;
}

void Actor::NoteLength(int64_t index) {
  const auto e = static_cast<size_t>(index);
  const int64_t limit = options_.long_episode_steps / task_.action_repeat;
  if (is_endless_[e] || episodes_[e].length < limit) return;
  is_endless_[e] = true;
  ++num_endless_;
  spdlog::warn(
      "environment {}: an episode goes on after {} control steps; without an "
      "end it has no return; hint: give the environment a time limit, such as "
      "gymnasium.wrappers.TimeLimit",
      options_.first_environment + index, options_.long_episode_steps);
}

ActorState Actor::state() const {
  REPLICANT_CHECK(options_.keeps_state, "an actor that keeps no state");
  return {.episodes = made_, .num_steps = num_steps_, .num_calls = num_calls_};
}

void Actor::Restore(const ActorState& state) {
  const auto action_size = static_cast<size_t>(task_.action_size());
  bool fits = state.episodes.size() == episodes_.size();
  size_t longest = 0;
  for (const ActorState::Episode& episode : state.episodes) {
    fits &= episode.actions.size() % action_size == 0;
    longest = std::max(longest, episode.actions.size() / action_size);
  }
  if (!fits) {
    throw InvalidArgument(
        fmt::format("Actor::Restore: the state has {} environments, expected "
                    "{} with actions of {}",
                    state.episodes.size(), episodes_.size(), action_size));
  }
  is_restoring_ = true;
  for (int e = 0; e < environments_.size(); ++e) {
    const auto i = static_cast<size_t>(e);
    environments_.SeekEpisode(e, state.episodes[i].number);
    made_[i].number = state.episodes[i].number;
    episodes_[i].length = 0;
    episodes_[i].episode_return = 0.0;
  }
  // `left` steps before the present the environments with as many steps join
  for (auto left = static_cast<int64_t>(longest); left >= 0; --left) {
    std::vector<int> ids;
    for (int e = 0; e < environments_.size(); ++e) {
      const auto& actions = state.episodes[static_cast<size_t>(e)].actions;
      if (static_cast<int64_t>(actions.size() / action_size) >= left) {
        ids.push_back(e);
      }
    }
    Repeat(state, ids, left);
  }
  num_steps_ = state.num_steps;
  num_calls_ = state.num_calls;
  is_restoring_ = false;
}

void Actor::Repeat(const ActorState& state, const std::vector<int>& ids,
                   int64_t left) {
  const auto action_size = static_cast<size_t>(task_.action_size());
  std::vector<double> sent;
  for (const int id : ids) {
    const auto row = static_cast<size_t>(id) * action_size;
    const auto& actions = state.episodes[static_cast<size_t>(id)].actions;
    const size_t end = actions.size() - static_cast<size_t>(left) * action_size;
    // before the first action: the step that starts the episode
    if (end >= action_size) {
      std::copy_n(actions.data() + end - action_size, action_size,
                  actions_.data() + row);
    }
    ToTaskActions(id);
    sent.insert(sent.end(), task_actions_.data() + row,
                task_actions_.data() + row + action_size);
  }
  environments_.Send(ids, sent, BufferOf(next_));
  std::vector<int> done(ids.size());
  environments_.Receive(done);
  Convert(next_);
  for (const int id : ids) Emit(id);
  std::swap(now_, next_);
}

}  // namespace replicant::actors
