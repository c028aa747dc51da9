#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/images/folder_entries.h"
#include "base/images/image_names.h"
#include "learner/data/encoded_images.h"

namespace replicant::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDangling = "links that lead nowhere";
constexpr const char* kBack = "links back to a folder above";
constexpr const char* kSpecial = "devices, pipes and other special files";
constexpr const char* kOutside = "images outside the folder of a class";

enum class EntryKind { kFolder, kFile, kOther, kNothing };

// What the entry is, or what it leads to.
EntryKind KindOf(const fs::directory_entry& entry) {
  std::error_code error;
  if (entry.is_directory(error)) return EntryKind::kFolder;
  if (entry.is_regular_file(error)) return EntryKind::kFile;
  // a circle of links is an error
  return error || !entry.exists(error) ? EntryKind::kNothing
                                       : EntryKind::kOther;
}

// Lists what lies in one data set.
class FolderLister {
 public:
  explicit FolderLister(const fs::path& root) : root_(root) {}

  // The folders of the classes, sorted.
  std::vector<fs::path> Classes() {
    std::vector<fs::path> classes;
    for (const fs::directory_entry& entry : FolderEntries(root_)) {
      const fs::path& path = entry.path();
      const std::string name = path.filename().string();
      const EntryKind kind = KindOf(entry);
      const std::string extension = ExtensionOf(name);
      if (IsLeftByTools(name)) {
        LeaveOut(kHiddenFiles, path, /*is_loss=*/false);
      } else if (kind == EntryKind::kFolder) {
        classes.push_back(path);
      } else if (kind == EntryKind::kNothing) {
        LeaveOut(kDangling, path, /*is_loss=*/true);
      } else if (IsImageExtension(extension)) {
        LeaveOut(kOutside, path, /*is_loss=*/true);
      } else {
        LeaveOutFile(path, extension);
      }
    }
    return classes;
  }

  // Images at any depth below a folder, sorted.
  std::vector<fs::path> ImagesBelow(const fs::path& folder) {
    std::vector<fs::path> images;
    std::vector<fs::path> above;
    Descend(folder, &above, &images);
    return images;
  }

  LeftOutCounts TakeLeftOut() { return std::exchange(left_out_, {}); }

 private:
  // `above` holds the folders on the way down, without links.
  void Descend(const fs::path& folder, std::vector<fs::path>* above,
               std::vector<fs::path>* images) {
    std::error_code error;
    above->push_back(fs::canonical(folder, error));
    for (const fs::directory_entry& entry : FolderEntries(folder)) {
      const fs::path& path = entry.path();
      const std::string name = path.filename().string();
      if (IsLeftByTools(name)) {
        LeaveOut(kHiddenFiles, path, /*is_loss=*/false);
        continue;
      }
      switch (KindOf(entry)) {
        case EntryKind::kFolder:
          // a link back up would lead down again without end
          if (std::ranges::count(*above, fs::canonical(path, error)) > 0) {
            LeaveOut(kBack, path, /*is_loss=*/false);
          } else {
            Descend(path, above, images);
          }
          break;
        case EntryKind::kFile: {
          const std::string extension = ExtensionOf(name);
          if (IsImageExtension(extension)) {
            images->push_back(path);
          } else {
            LeaveOutFile(path, extension);
          }
          break;
        }
        case EntryKind::kOther:
          LeaveOut(kSpecial, path, /*is_loss=*/false);
          break;
        case EntryKind::kNothing:
          LeaveOut(kDangling, path, /*is_loss=*/true);
      }
    }
    above->pop_back();
  }

  static std::string ExtensionOf(const std::string& name) {
    return LowerExtension(name, name.rfind('.'));
  }
  void LeaveOutFile(const fs::path& path, const std::string& extension) {
    LeaveOut(extension.empty() ? "files without an extension"
                               : fmt::format(".{} files", extension),
             path, IsForeignImageExtension(extension));
  }
  void LeaveOut(const std::string& reason, const fs::path& path, bool is_loss) {
    left_out_.Add(reason, path.lexically_relative(root_).string(), is_loss);
  }

  const fs::path root_;
  LeftOutCounts left_out_;
};

std::vector<std::string> NamesOf(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  names.reserve(folders.size());
  for (const fs::path& folder : folders) names.push_back(folder.filename());
  return names;
}

// The numbers of `names` among `known`. Throws IoError if `folder` has classes
// that `training` lacks.
std::vector<int32_t> LabelsOf(const std::vector<std::string>& names,
                              const std::vector<std::string>& known,
                              const fs::path& folder,
                              const fs::path& training) {
  std::map<std::string, int32_t> numbers;
  for (const std::string& name : known) {
    numbers.emplace(name, static_cast<int32_t>(numbers.size()));
  }
  std::vector<int32_t> labels;
  std::vector<std::string> unknown;
  for (const std::string& name : names) {
    const auto found = numbers.find(name);
    if (found == numbers.end()) {
      unknown.push_back(name);
    } else {
      labels.push_back(found->second);
    }
  }
  if (!unknown.empty()) {
    throw IoError(fmt::format(
        "{}: {} has no classes of these names: {}; it has {}", folder.string(),
        training.string(), ListNames(unknown), ListNames(known)));
  }
  return labels;
}

// Throws the IoError of classes without an image.
[[noreturn]] void ThrowEmpty(const fs::path& folder,
                             const std::vector<std::string>& empty,
                             const LeftOutCounts& left_out) {
  std::string text =
      fmt::format("{}: classes without an image: {}; want {}", folder.string(),
                  ListNames(empty), kImageFiles);
  if (!left_out.all().empty()) {
    text += "; left out there: " + DescribeLeftOut(left_out.all());
  }
  throw IoError(text);
}

}  // namespace

EncodedImages ListImageFolder(const fs::path& folder,
                              const fs::path& training) {
  FolderLister lister(folder);
  const std::vector<fs::path> folders = lister.Classes();
  EncodedImages result;
  result.left_out.Add(lister.TakeLeftOut());
  const std::vector<std::string> names = NamesOf(folders);
  result.class_names =
      training.empty() ? names : NamesOf(FolderLister(training).Classes());
  const std::vector<int32_t> labels =
      LabelsOf(names, result.class_names, folder, training);

  std::vector<std::string> empty;
  LeftOutCounts left_out_of_empty;
  for (size_t i = 0; i < folders.size(); ++i) {
    const std::vector<fs::path> files = lister.ImagesBelow(folders[i]);
    const LeftOutCounts left_out = lister.TakeLeftOut();
    result.left_out.Add(left_out);
    if (files.empty()) {
      empty.push_back(names[i]);
      left_out_of_empty.Add(left_out);
    }
    for (const fs::path& file : files) {
      result.images.push_back(
          {.file = static_cast<int32_t>(result.files.size()),
           .label = labels[i]});
      result.files.push_back(file);
    }
  }
  if (!empty.empty()) ThrowEmpty(folder, empty, left_out_of_empty);
  if (result.images.empty()) {
    std::string text = fmt::format(
        "{}: no images; want a folder for each class", folder.string());
    if (!result.left_out.all().empty()) {
      text += "; left out: " + DescribeLeftOut(result.left_out.all());
    }
    throw IoError(text);
  }
  result.num_classes = static_cast<int64_t>(result.class_names.size());
  return result;
}

}  // namespace replicant::data
