// A document is built by merging trees. FileLoader starts from an empty map,
// merges the bases of a file into it in their order (each loaded the same way,
// with a check for cycles) and the file itself last. Each override "a.b=value"
// is then applied to the result: its path is walked, missing maps are made, and
// the value is parsed as YAML if it begins like a list, a map or quoted text.
#include "base/config/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/config/scalar.h"
#include "base/config/yaml_parser.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::config {
namespace {

// Merges `over` into `base`: maps key by key, other values replace.
void Merge(Node over, Node* base) {
  if (over.kind != Node::Kind::kMap || base->kind != Node::Kind::kMap) {
    *base = std::move(over);
    return;
  }
  base->place = over.place;
  for (Node::Entry& entry : over.entries) {
    if (Node::Entry* older = base->Find(entry.key)) {
      older->key_place = entry.key_place;
      Merge(std::move(entry.value), &older->value);
    } else {
      base->entries.push_back(std::move(entry));
    }
  }
}

// Where Python's package has the recipe that a missing file is named after; ""
// if it has none.
std::string RecipeHint(const std::filesystem::path& path) {
  // Python sets it before there are threads
  const char* const given =
      std::getenv("REPLICANT_RECIPES");  // NOLINT(concurrency-mt-unsafe)
  if (given == nullptr) return "";
  const std::filesystem::path folder = given;
  // "walker_walk_state", "distracting/easy.yaml"
  std::filesystem::path name = path.filename();
  name.replace_extension(".yaml");
  for (const auto& recipe :
       {folder / path.parent_path().filename() / name, folder / name}) {
    if (!std::filesystem::is_regular_file(recipe)) continue;
    return fmt::format("; hint: the package's recipe is {}", recipe.string());
  }
  return "";
}

// Reads a file and all its bases.
class FileLoader {
 public:
  FileLoader(const FileReader& read_file, Problems* problems)
      : read_file_(read_file), problems_(problems) {}

  // Whether every file could be read; if not, there is no tree.
  bool ok() const { return ok_; }

  Node LoadMain(const std::filesystem::path& path) {
    const int file = problems_->AddFile(path.string());
    return Load(path, file, Place{file, 1, 1});
  }

 private:
  struct Include {
    std::string path;
    Place place;
  };

  // `named_at` is the place to show if the file cannot be read.
  Node Load(const std::filesystem::path& path, int file,
            const Place& named_at) {
    std::string text;
    try {
      text = read_file_(path);
    } catch (const IoError& error) {
      return Fail(named_at, error.what() + RecipeHint(path));
    }
    std::optional<Node> node = ParseYaml(text, file, problems_);
    if (!node) {
      ok_ = false;
      return EmptyMap(file);
    }
    if (node->kind != Node::Kind::kMap) {
      return Fail(node->place, "the file is " + DescribeNode(*node) +
                                   "; expected a map of keys and values");
    }

    open_.push_back(path);
    Node merged = EmptyMap(file);
    for (const Include& base : TakeBases(&*node)) {
      Merge(LoadBase(path.parent_path() / base.path, base.place), &merged);
    }
    Merge(std::move(*node), &merged);
    open_.pop_back();
    return merged;
  }

  Node LoadBase(std::filesystem::path path, const Place& named_at) {
    path = path.lexically_normal();
    if (std::find(open_.begin(), open_.end(), path) != open_.end()) {
      std::string chain;
      for (const auto& file : open_) chain += file.string() + " -> ";
      return Fail(named_at,
                  "a file cannot be its own base: " + chain + path.string());
    }
    if (++num_files_ > Document::kMaxFiles) {
      return Fail(named_at,
                  fmt::format("more than {} files", Document::kMaxFiles));
    }
    const int file = problems_->AddFile(path.string());
    return Load(path, file, named_at);
  }

  // Removes the key `base` from a file and returns the files that it names.
  std::vector<Include> TakeBases(Node* root) {
    const Node::Entry* entry = root->Find("base");
    if (entry == nullptr) return {};
    std::vector<Include> bases;
    const Node& value = entry->value;
    if (value.kind == Node::Kind::kList) {
      for (const Node& item : value.items) AddBase(item, item.place, &bases);
    } else {
      AddBase(value, entry->value_place(), &bases);
    }
    root->entries.erase(root->entries.begin() + (entry - root->entries.data()));
    return bases;
  }

  void AddBase(const Node& node, const Place& place,
               std::vector<Include>* bases) {
    if (node.kind != Node::Kind::kScalar || node.text.empty()) {
      Fail(place, "is " + DescribeNode(node) +
                      "; expected the name of a file, or a list of names");
      return;
    }
    bases->push_back({node.text, place});
  }

  Node Fail(const Place& place, const std::string& message) {
    // the first file is not included by a key
    problems_->Add(place, open_.empty() ? "" : "base", message);
    ok_ = false;
    return EmptyMap(place.file);
  }

  static Node EmptyMap(int file) {
    Node node;
    node.kind = Node::Kind::kMap;
    node.place = {file, 1, 1};
    return node;
  }

  const FileReader& read_file_;
  Problems* problems_;
  bool ok_ = true;
  int num_files_ = 1;
  // the files being loaded, each named by the one before it
  std::vector<std::filesystem::path> open_;
};

void SetPlace(const Place& place, Node* node) {
  node->place = place;
  for (Node& item : node->items) SetPlace(place, &item);
  for (Node::Entry& entry : node->entries) {
    entry.key_place = place;
    SetPlace(place, &entry.value);
  }
}

// Whether the value of an override is a list, a map or quoted text.
bool BeginsAsYaml(std::string_view text) {
  return !text.empty() &&
         std::string_view("[{\"'").find(text.front()) != std::string_view::npos;
}

// Whether the value of an override is none, where its key allows that.
bool IsNullWord(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" ||
         text == "NULL";
}

// Applies one "a.b=value".
class Override {
 public:
  Override(const std::string& text, Problems* problems)
      : text_(text), problems_(problems) {}

  void Apply(Node* root) {
    place_ = {problems_->AddOption("--set " + Printable(text_)), 1, 1};
    const size_t equals = text_.find('=');
    const std::string path = text_.substr(0, equals);
    if (equals == std::string::npos || !SplitPath(path)) {
      problems_->Add(place_, "", "expected KEY=VALUE, as in replay.shards=2");
      return;
    }
    if (keys_.front() == "base") {
      problems_->Add(place_, "base", "is only allowed in a file");
      return;
    }
    std::optional<Node> value = ParseValue(text_.substr(equals + 1));
    if (!value) return;
    if (Node* target = Descend(root)) Merge(std::move(*value), target);
  }

 private:
  bool SplitPath(const std::string& path) {
    size_t begin = 0;
    while (true) {
      const size_t end = path.find('.', begin);
      keys_.push_back(path.substr(begin, end - begin));
      if (keys_.back().empty()) return false;
      if (end == std::string::npos) break;
      begin = end + 1;
    }
    return keys_.size() < static_cast<size_t>(YamlLimits::kDepth);
  }

  std::optional<Node> ParseValue(const std::string& text) {
    if (BeginsAsYaml(text)) return ParseYamlValue(text);
    // plain text is the value as it stands, whatever YAML would make of it
    if (const std::string problem = ProblemOfText(text); !problem.empty()) {
      problems_->Add(place_, Printable(text_.substr(0, text_.find('='))),
                     problem);
      return std::nullopt;
    }
    Node value;
    value.kind = IsNullWord(text) ? Node::Kind::kNull : Node::Kind::kScalar;
    value.text = text;
    value.place = place_;
    return value;
  }

  // A value is parsed as the only element of a list, which allows the same
  // forms as in a list.
  std::optional<Node> ParseYamlValue(const std::string& text) {
    // a flow list would end at a ']' of the value; a block list does not
    std::optional<Node> list = ParseYaml("- " + text, place_.file, problems_);
    if (!list) return std::nullopt;
    if (list->kind != Node::Kind::kList || list->items.size() != 1) {
      problems_->Add(place_, Printable(text_.substr(0, text_.find('='))),
                     "more than one value");
      return std::nullopt;
    }
    Node value = std::move(list->items.front());
    SetPlace(place_, &value);
    return value;
  }

  // The node at the path, made with its parents if it is missing. Adds a
  // problem and returns nullptr for a list element that does not exist.
  Node* Descend(Node* node) {
    std::string path;
    for (const std::string& key : keys_) {
      if (!path.empty()) path += '.';
      path += Printable(key);
      if (node->kind == Node::Kind::kList) {
        node = Element(key, path, node);
        if (node == nullptr) return nullptr;
        continue;
      }
      // a map replaces a scalar in the path; the reader reports its type later
      if (node->kind != Node::Kind::kMap) {
        *node = Node{};
        node->kind = Node::Kind::kMap;
        node->place = place_;
      }
      Node::Entry* entry = node->Find(key);
      if (entry == nullptr) {
        node->entries.push_back({key, place_, Node{}});
        entry = &node->entries.back();
        entry->value.place = place_;
      }
      entry->key_place = place_;
      node = &entry->value;
    }
    return node;
  }

  Node* Element(const std::string& key, const std::string& path, Node* list) {
    size_t index = 0;
    const auto [end, error] =
        std::from_chars(key.data(), key.data() + key.size(), index);
    if (error == std::errc() && end == key.data() + key.size() &&
        index < list->items.size()) {
      return &list->items[index];
    }
    problems_->Add(place_, path,
                   fmt::format("the list there has {} elements, counted from 0",
                               list->items.size()));
    return nullptr;
  }

  const std::string& text_;
  Problems* problems_;
  Place place_;
  std::vector<std::string> keys_;
};

}  // namespace

std::string Setting(std::string_view key, std::string_view text) {
  const bool is_plain =
      !BeginsAsYaml(text) && !IsNullWord(text) && ProblemOfText(text).empty();
  return fmt::format("{}={}", key, is_plain ? text : QuotedToYaml(text));
}

Document::Document() {
  root_.kind = Node::Kind::kMap;
  root_.place = {problems_.AddFile("(defaults)"), 1, 1};
}

Document Document::FromFile(const std::filesystem::path& path,
                            const std::vector<std::string>& overrides) {
  return FromFile(path, overrides, [](const std::filesystem::path& file) {
    return ReadFile(file, YamlLimits::kFileBytes);
  });
}

Document Document::FromFile(const std::filesystem::path& path,
                            const std::vector<std::string>& overrides,
                            const FileReader& read_file) {
  Document document;
  document.problems_ = Problems();
  FileLoader loader(read_file, &document.problems_);
  document.root_ = loader.LoadMain(path.lexically_normal());
  for (const std::string& text : overrides) {
    Override(text, &document.problems_).Apply(&document.root_);
  }
  // an incomplete tree would give many false problems
  if (!loader.ok()) document.problems_.ThrowIfAny();
  return document;
}

Document Document::FromText(const std::string& name, std::string_view text,
                            const std::vector<std::string>& overrides) {
  const std::filesystem::path path =
      std::filesystem::path(name).lexically_normal();
  return FromFile(
      name, overrides, [&path, text](const std::filesystem::path& file) {
        if (file != path) {
          throw IoError("open: " + file.string() +
                        ": a configuration given as text has no base files");
        }
        return std::string(text);
      });
}

}  // namespace replicant::config
