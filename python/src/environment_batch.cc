#include "python/src/environment_batch.h"

#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "env/tasks/suite.h"

namespace replicant::python {
namespace nb = nanobind;
namespace {

env::TaskRegistry RegistryOf(const EnvironmentBatchOptions& options) {
  env::TaskRegistry registry(env::SuiteTasks());
  if (options.own_task) registry.Add(options.own_task->definition);
  return registry;
}

// The elements of a contiguous NumPy array.
template <typename T>
std::span<T> ElementsOf(const nb::object& array) {
  const auto view = nb::cast<nb::ndarray<T, nb::c_contig, nb::device::cpu>>(
      array, /*convert=*/false);
  return {view.data(), view.size()};
}

nb::tuple ShapeOf(int64_t rows, const Shape& shape) {
  nb::list sides;
  sides.append(rows);
  for (int i = 0; i < shape.rank(); ++i) sides.append(shape[i]);
  return nb::tuple(sides);
}

}  // namespace

EnvironmentBatch::EnvironmentBatch(EnvironmentBatchOptions options,
                                   const Seeds& seeds)
    : options_(std::move(options)),
      numpy_(nb::module_::import_("numpy")),
      process_(getpid()),
      registry_(RegistryOf(options_)) {
  MakeEnvironments(seeds);
  if (options_.is_flat && environments_->observation_spec().state_size() > 0) {
    arrays_.push_back(
        {.name = "state",
         .shape = Shape({environments_->observation_spec().state_size()})});
  }
  for (const env::ArraySpec& array : environments_->observation_spec().arrays) {
    const bool is_state = array.dtype == DType::kF64;
    if (is_state ? options_.has_state && !options_.is_flat : true) {
      arrays_.push_back(array);
    }
  }
  if (arrays_.empty()) {
    throw InvalidArgument(
        fmt::format("{}: the observation would be empty; hint: give state=True "
                    "or pixels=(height, width), or let the task define arrays",
                    options_.task.name));
  }
  all_ids_.resize(static_cast<size_t>(size()));
  std::iota(all_ids_.begin(), all_ids_.end(), 0);
  steps_.resize(all_ids_.size());
  if (options_.has_state) {
    last_states_.resize(
        all_ids_.size() *
        static_cast<size_t>(environments_->observation_spec().state_size()));
  }
}

EnvironmentBatch::~EnvironmentBatch() {
  if (getpid() != process_) {
    // the threads are the parent's, and joining them would never end
    static_cast<void>(environments_.release());
    return;
  }
  // threads may wait for the GIL in a task of Python's
  GilRelease release;
  cameras_.clear();
  environments_.reset();
}

void EnvironmentBatch::MakeEnvironments(const Seeds& seeds) {
  if (options_.num_environments < 1) {
    throw InvalidArgument(fmt::format("num_envs must be >= 1, got {}",
                                      options_.num_environments));
  }
  const auto count = static_cast<size_t>(options_.num_environments);
  if (seeds.size() != 1 && seeds.size() != count) {
    throw InvalidArgument(fmt::format("seed: got {} seeds for {} environments",
                                      seeds.size(), options_.num_environments));
  }
  std::unique_ptr<env::VectorEnvironment> made;
  {
    const GilRelease release;
    if (model_ == nullptr) {
      model_ = env::LoadConfiguredModel(registry_, options_.task);
    }
    std::vector<std::unique_ptr<env::Environment>> all;
    const auto make = [&](uint64_t seed, int64_t index, int64_t number) {
      auto some = env::MakeConfiguredEnvironments(registry_, options_.task,
                                                  *model_, seed, index, number);
      std::move(some.begin(), some.end(), std::back_inserter(all));
    };
    if (seeds.size() == 1) {
      make(seeds[0], options_.first_index, options_.num_environments);
    } else {
      for (size_t i = 0; i < count; ++i) {
        make(seeds[i], options_.first_index + static_cast<int64_t>(i), 1);
      }
    }
    made = std::make_unique<env::VectorEnvironment>(
        std::move(all), env::VectorOptions{.threads = options_.threads});
  }
  // only once all are made: a failure leaves the old environments. With the
  // GIL: another thread may read their number
  environments_.swap(made);
  const GilRelease release;
  cameras_.clear();
  made.reset();
  // new environments lie between the old ones, which leave holes: hundreds of
  // megabytes where there are a thousand
  if (count >= 16) malloc_trim(0);
}

void EnvironmentBatch::CheckNoneIsUnderWay(const char* call) const {
  if (num_under_way() == 0) return;
  throw InvalidArgument(
      fmt::format("{}: {} environments are under way; hint: recv() them first",
                  call, num_under_way()));
}

void EnvironmentBatch::Seed(const Seeds& seeds) {
  const ExclusiveCall call = Begin();
  CheckNoneIsUnderWay("reset");
  MakeEnvironments(seeds);
}

std::unique_ptr<EnvironmentBatch::ResultArrays> EnvironmentBatch::MakeArrays()
    const {
  auto made = std::make_unique<ResultArrays>();
  const int64_t rows = size();
  const env::ObservationSpec& spec = environments_->observation_spec();
  const auto add = [&](nb::object array) {
    made->arrays.push_back(array);
    return array;
  };
  const auto zeros = [&](const nb::tuple& shape, const char* dtype) {
    return add(numpy_.attr("zeros")(shape, dtype));
  };

  nb::object state;
  if (options_.has_state) {
    state = zeros(nb::make_tuple(rows, spec.state_size()), "float64");
    made->state = ElementsOf<double>(state);
  }
  nb::object pixels;
  if (spec.pixels_size() > 0) {
    pixels = zeros(nb::make_tuple(rows, spec.pixels_size()), "uint8");
    made->pixels = ElementsOf<uint8_t>(pixels);
  }
  // columns of `all`, without a copy
  const auto columns_of = [&](const nb::object& all,
                              const env::ArraySpec& array) {
    const int64_t begin = spec.Offset(array.name);
    const int64_t end = begin + array.shape.num_elements();
    const nb::object columns = all[nb::make_tuple(
        nb::slice(nb::none(), nb::none(), nb::none()),
        nb::slice(nb::int_(begin), nb::int_(end), nb::none()))];
    nb::object value = add(columns.attr("reshape")(ShapeOf(rows, array.shape)));
    REPLICANT_CHECK(value.attr("base").is(all), "{}", array.name);
    return value;
  };
  for (const env::ArraySpec& array : arrays_) {
    const bool is_state = array.dtype == DType::kF64;
    const nb::object value = is_state && options_.is_flat
                                 ? state
                                 : columns_of(is_state ? state : pixels, array);
    made->observations.emplace_back(nb::str(array.name.c_str()), value);
  }
  const nb::tuple batch = nb::make_tuple(rows);
  made->reward = zeros(batch, "float64");
  made->discount = zeros(batch, "float64");
  made->terminated = zeros(batch, "bool");
  made->truncated = zeros(batch, "bool");
  made->step_type = zeros(batch, "int8");
  made->rewards = ElementsOf<double>(made->reward);
  made->discounts = ElementsOf<double>(made->discount);
  made->are_terminated = ElementsOf<bool>(made->terminated);
  made->are_truncated = ElementsOf<bool>(made->truncated);
  made->step_types = ElementsOf<int8_t>(made->step_type);

  // these are the counts of a set without other references
  state.reset();
  pixels.reset();
  for (const nb::object& array : made->arrays) {
    made->counts_at_rest.push_back(Py_REFCNT(array.ptr()));
  }
  return made;
}

bool EnvironmentBatch::IsAtRest(const ResultArrays& arrays) {
  for (size_t i = 0; i < arrays.arrays.size(); ++i) {
    if (Py_REFCNT(arrays.arrays[i].ptr()) != arrays.counts_at_rest[i]) {
      return false;
    }
  }
  return true;
}

EnvironmentBatch::ResultArrays& EnvironmentBatch::TakeArrays() {
  // further unreferenced sets come from a caller that held many for a while
  size_t num_at_rest = 0;
  ResultArrays* found = nullptr;
  std::erase_if(pool_, [&](const std::unique_ptr<ResultArrays>& arrays) {
    if (!IsAtRest(*arrays)) return false;
    if (found == nullptr) found = arrays.get();
    return ++num_at_rest > 2 && arrays.get() != now_;
  });
  if (found == nullptr) {
    pool_.push_back(MakeArrays());
    found = pool_.back().get();
  }
  return *found;
}

env::BatchBuffer EnvironmentBatch::BufferOf(ResultArrays& arrays) {
  return {.state = arrays.state, .pixels = arrays.pixels, .steps = steps_};
}

nb::object EnvironmentBatch::ObservationOf(const ResultArrays& arrays) const {
  if (arrays.observations.size() == 1) return arrays.observations[0].second;
  nb::dict all;
  for (const auto& [name, array] : arrays.observations) all[name] = array;
  return all;
}

nb::object EnvironmentBatch::CopyObservation(int id) const {
  const auto row = [&](const nb::object& array) {
    return nb::object(array[nb::int_(id)]).attr("copy")();
  };
  const nb::object all = ObservationOf(*now_);
  if (!nb::isinstance<nb::dict>(all)) return row(all);
  nb::dict rows;
  for (const auto& [name, array] : now_->observations) rows[name] = row(array);
  return rows;
}

void EnvironmentBatch::FillResults(ResultArrays& arrays,
                                   const std::vector<int>& ids) {
  for (size_t row = 0; row < ids.size(); ++row) {
    const env::TimeStep& step = steps_[static_cast<size_t>(ids[row])];
    arrays.rewards[row] = step.reward;
    arrays.discounts[row] = step.discount;
    arrays.are_terminated[row] = step.IsLast() && step.discount == 0.0;
    arrays.are_truncated[row] = step.IsLast() && step.discount != 0.0;
    arrays.step_types[row] = static_cast<int8_t>(step.step_type);
  }
}

void EnvironmentBatch::SetNow(ResultArrays& arrays) {
  now_ = &arrays;
  last_states_.assign(arrays.state.begin(), arrays.state.end());
  FillResults(arrays, all_ids_);
}

template <typename T>
std::span<T> EnvironmentBatch::RowOf(std::span<T> all, int row) const {
  const size_t width = all.size() / all_ids_.size();
  return all.subspan(static_cast<size_t>(row) * width, width);
}

ExclusiveCall EnvironmentBatch::Begin() {
  if (getpid() != process_) {
    throw Error(fmt::format(
        "these environments were made in process {}, and this is its fork {}; "
        "hint: make them in the child, or start it by the method 'spawn'",
        process_, getpid()));
  }
  if (finished_by_ != std::thread::id()) {
    const char* const message =
        "the program ends, and these environments have ended with it";
    if (std::this_thread::get_id() == finished_by_) throw Error(message);
    // ends a thread without a traceback. To wait here for the end would block a
    // program that joins its threads
    PyErr_SetString(PyExc_SystemExit, message);
    nb::raise_python_error();
  }
  return {&is_busy_, "these environments"};
}

void EnvironmentBatch::Finish() {
  if (getpid() != process_ || task_functions() == nullptr) return;
  finished_by_ = std::this_thread::get_id();
  while (is_busy_) {
    const GilRelease release;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const GilRelease release;
  std::vector<int> ids(static_cast<size_t>(num_under_way()));
  try {
    environments_->Receive(ids);
  } catch (const std::exception& failure) {
    spdlog::debug("a step that nobody received: {}", failure.what());
  }
}

std::span<const double> EnvironmentBatch::CheckActions(const Actions& actions,
                                                       size_t rows) const {
  const auto columns = static_cast<size_t>(action_spec().size());
  if (actions.ndim() != 2 || actions.shape(0) != rows ||
      actions.shape(1) != columns) {
    std::string shape;
    for (size_t i = 0; i < actions.ndim(); ++i) {
      shape += fmt::format("{}{}", i == 0 ? "" : ", ", actions.shape(i));
    }
    throw InvalidArgument(fmt::format(
        "actions have the shape ({}), want ({}, {})", shape, rows, columns));
  }
  return {actions.data(), actions.size()};
}

void EnvironmentBatch::ResetAll() {
  ResultArrays& arrays = TakeArrays();
  {
    GilRelease release;
    environments_->Reset(BufferOf(arrays));
  }
  SetNow(arrays);
}

nb::object EnvironmentBatch::Reset(
    const std::optional<nb::ndarray<const bool, nb::ndim<1>, nb::c_contig>>&
        mask) {
  const ExclusiveCall call = Begin();
  if (!mask) {
    ResetAll();
    return ObservationOf(*now_);
  }
  if (mask->size() != all_ids_.size()) {
    throw InvalidArgument(fmt::format("reset_mask has {} elements, want {}",
                                      mask->size(), all_ids_.size()));
  }
  CheckNoneIsUnderWay("reset_mask");
  if (now_ == nullptr) {
    if (!std::all_of(mask->data(), mask->data() + mask->size(),
                     std::identity())) {
      throw InvalidArgument(
          "reset_mask: the first reset must include all environments");
    }
    ResetAll();
    return ObservationOf(*now_);
  }
  std::vector<int> ids, others;
  for (const int id : all_ids_) {
    (mask->data()[id] ? ids : others).push_back(id);
  }
  ResultArrays& arrays = TakeArrays();
  // the caller may have written into the arrays of the last call; a task in
  // Python is not asked for its numbers twice
  std::ranges::copy(last_states_, arrays.state.begin());
  {
    GilRelease release;
    for (const int id : others) {
      environments_->environment(id).Observe(
          {.pixels = RowOf(arrays.pixels, id)});
    }
    environments_->SendReset(ids, BufferOf(arrays));
    environments_->Receive(ids);
  }
  SetNow(arrays);
  return ObservationOf(arrays);
}

void EnvironmentBatch::Advance(const Actions& actions) {
  const std::span<const double> elements =
      CheckActions(actions, all_ids_.size());
  if (options_.autoreset == AutoresetMode::kDisabled) {
    for (const int id : all_ids_) {
      if (now_ != nullptr && !steps_[static_cast<size_t>(id)].IsLast())
        continue;
      throw InvalidArgument(fmt::format(
          "step: the episode of environment {} is over; hint: {}", id,
          size() == 1 ? "reset()"
                      : "reset(options={'reset_mask': mask}), or another "
                        "autoreset_mode"));
    }
  }
  ResultArrays& arrays = TakeArrays();
  {
    GilRelease release;
    environments_->Step(elements, BufferOf(arrays));
  }
  SetNow(arrays);
}

nb::dict EnvironmentBatch::StartEpisodes() {
  nb::dict info;
  std::vector<int> ids;
  for (const int id : all_ids_) {
    if (steps_[static_cast<size_t>(id)].IsLast()) ids.push_back(id);
  }
  if (ids.empty()) return info;
  // as Gymnasium's: an object for each environment
  const nb::object last =
      numpy_.attr("full")(size(), nb::none(), nb::arg("dtype") = "object");
  const nb::object is_last =
      numpy_.attr("zeros")(nb::make_tuple(size()), "bool");
  for (const int id : ids) {
    last[nb::int_(id)] = CopyObservation(id);
    ElementsOf<bool>(is_last)[static_cast<size_t>(id)] = true;
  }
  info["final_obs"] = last;
  info["_final_obs"] = is_last;
  {
    GilRelease release;
    environments_->SendReset(ids, BufferOf(*now_));
    environments_->Receive(ids);
  }
  last_states_.assign(now_->state.begin(), now_->state.end());
  return info;
}

nb::tuple EnvironmentBatch::Step(const Actions& actions) {
  const ExclusiveCall call = Begin();
  Advance(actions);
  nb::dict info;
  if (options_.autoreset == AutoresetMode::kSameStep) info = StartEpisodes();
  return nb::make_tuple(ObservationOf(*now_), now_->reward, now_->terminated,
                        now_->truncated, info);
}

nb::tuple EnvironmentBatch::DmStep(const Actions& actions) {
  const ExclusiveCall call = Begin();
  Advance(actions);
  return nb::make_tuple(now_->step_type, now_->reward, now_->discount,
                        ObservationOf(*now_));
}

nb::tuple EnvironmentBatch::DmReset() {
  const ExclusiveCall call = Begin();
  ResetAll();
  return nb::make_tuple(now_->step_type, now_->reward, now_->discount,
                        ObservationOf(*now_));
}

void EnvironmentBatch::Send(const Actions& actions, const Ids& ids) {
  const ExclusiveCall call = Begin();
  if (options_.autoreset != AutoresetMode::kNextStep) {
    throw InvalidArgument(
        "send: want autoreset_mode AutoresetMode.NEXT_STEP, the default");
  }
  const std::span<const double> elements = CheckActions(actions, ids.size());
  if (staging_ == nullptr) staging_ = MakeArrays();
  GilRelease release;
  environments_->Send({ids.data(), ids.size()}, elements, BufferOf(*staging_));
}

nb::tuple EnvironmentBatch::Receive(int count) {
  const ExclusiveCall call = Begin();
  if (count < 1) {
    throw InvalidArgument(
        fmt::format("recv: count must be >= 1, got {}", count));
  }
  std::vector<int> ids(static_cast<size_t>(count));
  {
    GilRelease release;
    environments_->Receive(ids);
  }
  ResultArrays& arrays = TakeArrays();
  for (int row = 0; row < count; ++row) {
    const int id = ids[static_cast<size_t>(row)];
    const std::span<double> state = RowOf(staging_->state, id);
    std::ranges::copy(state, RowOf(arrays.state, row).begin());
    std::ranges::copy(state, RowOf(std::span(last_states_), id).begin());
    std::ranges::copy(RowOf(staging_->pixels, id),
                      RowOf(arrays.pixels, row).begin());
  }
  FillResults(arrays, ids);
  const nb::slice rows{nb::none(), nb::int_(count), nb::none()};
  nb::object observation;
  if (arrays.observations.size() == 1) {
    observation = arrays.observations[0].second[rows];
  } else {
    nb::dict all;
    for (const auto& [name, array] : arrays.observations) {
      all[name] = array[rows];
    }
    observation = all;
  }
  nb::dict info;
  const nb::object env_id =
      numpy_.attr("empty")(nb::make_tuple(count), "int32");
  std::copy(ids.begin(), ids.end(), ElementsOf<int32_t>(env_id).begin());
  info["env_id"] = env_id;
  return nb::make_tuple(observation, nb::object(arrays.reward[rows]),
                        nb::object(arrays.terminated[rows]),
                        nb::object(arrays.truncated[rows]), info);
}

nb::object EnvironmentBatch::Render(int id, env::CameraOptions camera) {
  const ExclusiveCall call = Begin();
  if (id < 0 || id >= size()) {
    throw InvalidArgument(
        fmt::format("render: environment {} is outside [0, {})", id, size()));
  }
  CheckNoneIsUnderWay("render");
  const env::RendererOptions& configured = options_.task.pixels.camera.renderer;
  camera.renderer.gl_platform = configured.gl_platform;
  camera.renderer.egl_device = configured.egl_device;
  const std::string key =
      fmt::format("{} {} {} {}", camera.camera, camera.height, camera.width,
                  env::ToString(camera.renderer.kind));
  if (key != camera_key_) cameras_.clear();
  camera_key_ = key;
  cameras_.resize(all_ids_.size());

  env::Environment& environment = environments_->environment(id);
  std::unique_ptr<env::Camera>& one = cameras_[static_cast<size_t>(id)];
  const auto sibling =
      std::find_if(cameras_.begin(), cameras_.end(),
                   [](const auto& other) { return other != nullptr; });
  const nb::object picture = numpy_.attr("empty")(
      nb::make_tuple(camera.height, camera.width, 3), "uint8");
  const std::span<uint8_t> rgb = ElementsOf<uint8_t>(picture);
  GilRelease release;
  if (one == nullptr) {
    one = sibling == cameras_.end()
              ? std::make_unique<env::Camera>(environment.physics(), camera)
              : std::make_unique<env::Camera>(**sibling, environment.physics());
  }
  if (environment.ResetChangesAssets())
    one->ReloadAssets(environment.physics());
  one->Render(environment.mutable_physics(), rgb);
  return picture;
}

}  // namespace replicant::python
