#include "programs/check_data/check_data_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "learner/data/check_images.h"
#include "programs/run/make_workload.h"
#include "programs/run/mix_prior.h"
#include "programs/run/step_shape.h"
#include "replay/prior/prior_replay.h"

namespace replicant::programs {
namespace {

// Lines of one list; the rest is counted.
constexpr size_t kMaxLines = 100;
constexpr size_t kMaxClasses = 20;
constexpr const char* kImages = "10000";

// One of the two sets of a run.
struct ImageSet {
  std::string key;  // "images.train"
  std::shared_ptr<const data::ImageSource> source;
  data::ImageCheck check;

  bool has_all() const { return check.num_tried() == source->size(); }
};

// Collects the report.
class Checker {
 public:
  Checker(const Invocation& invocation, int64_t max_images)
      : config_(invocation.config()),
        images_(config_.ImagesOf(invocation.registry)),
        max_images_(max_images) {
    if (config_.workload->images_of) {
      needs_ = config_.workload->images_of(config_.section());
    }
  }

  DataReport Check() {
    const auto train = CheckSet("images.train", data::Split::kTrain);
    const auto evaluation =
        CheckSet("images.evaluation", data::Split::kEvaluation);
    if (train) CheckTraining(*train);
    if (train && evaluation) CheckAgainst(*train, *evaluation);
    return std::move(report_);
  }

 private:
  // Nothing for a set that cannot be opened, or that the run does not have.
  std::optional<ImageSet> CheckSet(const std::string& key, data::Split split) {
    ImageSet set{.key = key};
    try {
      set.source = images_.open(split);
    } catch (const ConfigError& error) {
      Problem("{}", error.what());  // begins with a key
      return std::nullopt;
    } catch (const Error& error) {
      Problem("{}: {}", key, error.what());
      return std::nullopt;
    }
    if (set.source == nullptr) {
      Line("{}: none", key);
      return std::nullopt;
    }
    const std::string& path = split == data::Split::kTrain
                                  ? config_.images.train
                                  : config_.images.evaluation;
    set.check = data::CheckImages(
        *set.source, {.side = needs_.side,
                      .max_images = max_images_,
                      .threads = std::max(config_.images.threads, 1)});
    Line("{}: {}", key, path.empty() ? config_.images.source : path);
    Line("  {} images, {} classes", set.source->size(),
         set.source->num_classes());
    ListClasses(set);
    ListLeftOut(set);
    ListUnreadable(set);
    return set;
  }

  // The classes by number, in the order that the network learns.
  void ListClasses(const ImageSet& set) {
    std::vector<int64_t> sizes = set.source->ClassSizes();
    const bool is_counted = !sizes.empty();
    sizes.resize(static_cast<size_t>(set.source->num_classes()));
    const std::vector<std::string>& names = set.source->class_names();
    const size_t shown =
        sizes.size() <= kMaxClasses ? sizes.size() : kMaxClasses;
    for (size_t i = 0; i < shown; ++i) {
      Line("  class {}{}{}", i, names.empty() ? "" : ": " + names[i],
           is_counted ? fmt::format(", {} images", sizes[i]) : "");
    }
    if (shown < sizes.size()) {
      Line("  and {} more classes", sizes.size() - shown);
    }
    if (is_counted) {
      const auto [least, most] = std::ranges::minmax_element(sizes);
      Line("  {} to {} images in a class", *least, *most);
    }
  }

  void ListLeftOut(const ImageSet& set) {
    for (const data::LeftOut& one : set.source->left_out()) {
      Line("  left out: {}: {}, the first is {}", one.reason, one.count,
           one.first);
      if (!one.is_loss) continue;
      Problem(
          "{}: {}: {} left out, the first is {}; they may be images: "
          "convert or remove them",
          set.key, one.reason, one.count, one.first);
    }
  }

  void ListUnreadable(const ImageSet& set) {
    const data::ImageCheck& check = set.check;
    Line(
        "  read {} of {} images{}: {} good, {} damaged; {:.0f} images/s by {} "
        "threads at {} pixels",
        check.num_tried(), set.source->size(),
        set.has_all() ? "" : ", evenly spread (--images 0 reads all)",
        check.read.size(), check.unreadable.size(),
        static_cast<double>(check.num_tried()) / std::max(check.seconds, 1e-9),
        std::max(config_.images.threads, 1), needs_.side);
    for (size_t i = 0; i < std::min(check.unreadable.size(), kMaxLines); ++i) {
      Line("  damaged: {}", check.unreadable[i].message);
    }
    if (check.unreadable.size() > kMaxLines) {
      Line("  and {} more", check.unreadable.size() - kMaxLines);
    }
    if (!check.unreadable.empty()) {
      Problem("{}: damaged images: {}, the first is {}; replace or remove them",
              set.key, check.unreadable.size(), check.unreadable[0].message);
    }
  }

  void CheckTraining(const ImageSet& train) {
    const data::ImageSource& source = *train.source;
    const std::vector<std::string>& names = source.class_names();
    const std::vector<std::string> empty = data::EmptyClasses(source);
    if (!empty.empty()) {
      Problem(
          "{}: no image of the classes {}; number the classes from 0 "
          "without gaps",
          train.key, data::ListNames(empty));
    }
    if (needs_.num_classes > 0 && needs_.num_classes != source.num_classes()) {
      Problem("{}.num_classes: {}, but {} has {} classes{}; want {}",
              config_.workload->section, needs_.num_classes, train.key,
              source.num_classes(),
              names.empty() ? "" : fmt::format(" ({})", data::ListNames(names)),
              source.num_classes());
    }
    const auto copies = data::FindCopies(train.check, train.check);
    if (!copies.empty()) {
      Line("{}: images that equal an earlier one: {}", train.key,
           copies.size());
    }
    std::vector<data::ImagePair> contradictions;
    std::ranges::copy_if(
        copies, std::back_inserter(contradictions),
        [](const data::ImagePair& pair) { return !pair.has_one_class; });
    if (!contradictions.empty()) {
      Problem(
          "{}: images that equal one of another class: {}, the first is {}, "
          "which equals {}; keep one of them",
          train.key, contradictions.size(),
          source.NameOf(contradictions[0].second),
          source.NameOf(contradictions[0].first));
    }
  }

  void CheckAgainst(const ImageSet& train, const ImageSet& evaluation) {
    const int64_t known = train.source->num_classes();
    if (evaluation.source->num_classes() > known) {
      Problem(
          "{}: classes up to {}, but those of {} end at {}; take the others "
          "out",
          evaluation.key, evaluation.source->num_classes() - 1, train.key,
          known - 1);
    }
    const auto copies = data::FindCopies(train.check, evaluation.check);
    if (copies.empty()) return;
    Problem(
        "{}: images that are training images too: {}, the first is {}, "
        "which equals {}; take them out of one set{}",
        evaluation.key, copies.size(),
        evaluation.source->NameOf(copies[0].second),
        train.source->NameOf(copies[0].first),
        train.has_all() && evaluation.has_all()
            ? ""
            : " (--images 0 looks for all of them)");
  }

  template <typename... Arguments>
  void Line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    report_.text +=
        fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }
  template <typename... Arguments>
  void Problem(fmt::format_string<Arguments...> format,
               Arguments&&... arguments) {
    report_.problems.push_back(
        fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  const RunConfig& config_;
  const data::ImageInput images_;
  const int64_t max_images_;
  learner::ImageNeeds needs_;
  DataReport report_;
};

// Reads all prior data of a run.
DataReport CheckPriorOf(const Invocation& invocation) {
  const RunConfig& config = invocation.config();
  const agents::TaskSpec task = TaskOf(invocation);
  const std::string& folder = config.replay.prior_folder;
  DataReport report{.text = fmt::format("replay.prior.folder: {}\n", folder)};
  try {
    CheckPrior(config, task);
    const replay::PriorSummary summary =
        replay::SummarizePrior(folder, StepShapeOf(task));
    report.text += fmt::format(
        "  steps: {}; whole episodes: {}, of which terminated: {}\n"
        "  rewards of a step from {:.6g} to {:.6g}, {:.6g} in the mean\n",
        summary.num_steps, summary.num_episodes, summary.num_terminated,
        summary.least_reward, summary.largest_reward, summary.mean_reward);
    if (summary.num_left_out > 0) {
      report.problems.push_back(fmt::format(
          "{}: {} parts of episodes hold numbers that are not finite, and are "
          "left out with what follows in their episodes",
          folder, summary.num_left_out));
    }
    if (task.has_unit_rewards &&
        (summary.least_reward < 0.0F ||
         static_cast<double>(summary.largest_reward) > task.largest_reward)) {
      report.problems.push_back(fmt::format(
          "{}: rewards outside [0, {:.6g}], which the task's are in; import "
          "with reward_scale, or reward_of_repeat of the task",
          folder, task.largest_reward));
    }
  } catch (const Error& error) {
    report.problems.emplace_back(error.what());
  }
  return report;
}

int Print(const Invocation& invocation, const std::string& max_images) {
  constexpr config::Range<int64_t> kRange{0, 1'000'000'000};
  const DataReport report =
      CheckData(invocation, ParseInteger("--images", max_images, kRange));
  fmt::print("{}", report.text);
  if (report.problems.empty()) {
    fmt::print("nothing to mend\n");
    return 0;
  }
  fmt::print("to mend:\n");
  for (const std::string& problem : report.problems) {
    fmt::print("  {}\n", problem);
  }
  return 1;
}

}  // namespace

DataReport CheckData(const Invocation& invocation, int64_t max_images) {
  const RunConfig& config = invocation.config();
  if (config.has_actors() && HasPrior(config)) return CheckPriorOf(invocation);
  if (config.has_actors()) {
    throw ConfigError(
        fmt::format("learner.workload: {} learns from actors, not from images; "
                    "allowed: a workload with images, or replay.prior.folder",
                    config.learner.workload));
  }
  if (!config.ImagesOf(invocation.registry).open) {
    return {.text = fmt::format("images.source: {}: made in the step\n",
                                config.images.source)};
  }
  return Checker(invocation, max_images).Check();
}

Program CheckDataProgram() {
  const auto images = std::make_shared<std::string>(kImages);
  return {
      .name = "check-data",
      .about =
          "Tries the images, or the prior data, of a configuration and prints "
          "what to mend: "
          "check-data CONFIG. Ends with 1 if there is anything.",
      .add_options =
          [images](config::CommandLine& command_line) {
            command_line.AddConfigArgument();
            command_line.AddOption("--images", images.get(),
                                   "images of each set to read, evenly "
                                   "spread; 0 for all");
          },
      .run =
          [images](const Invocation& invocation) {
            return Print(invocation, *images);
          }};
}

}  // namespace replicant::programs
