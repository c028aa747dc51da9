#include "base/config/yaml_parser.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/node/node.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace replicant::config {
namespace {

// Ends the parsing of a file; ParseYaml() turns it into a problem.
struct ParseFailure {
  Place place;
  std::string message;
};

Place ToPlace(const YAML::Mark& mark, int file) {
  if (mark.is_null()) return {file, 1, 1};
  return {file, mark.line + 1, mark.column + 1};
}

// The memory of a node and its descendants.
size_t TreeBytes(const Node& node) {
  size_t bytes = sizeof(Node::Entry) + node.text.size();
  for (const Node& item : node.items) bytes += TreeBytes(item);
  for (const Node::Entry& entry : node.entries) {
    bytes += entry.key.size() + TreeBytes(entry.value);
  }
  return bytes;
}

// Builds the tree from the parser's events. The open lists and maps lie on a
// stack, the innermost on top.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(int file, Problems* problems)
      : file_(file), problems_(problems) {}

  // The document; an empty one is an empty map.
  Node TakeRoot() {
    if (root_.kind == Node::Kind::kNull) root_.kind = Node::Kind::kMap;
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) {
      Fail(mark, "a second document; hint: remove the line '---' before it");
    }
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (WantsKey()) Fail(mark, "a key without text");
    Node node;
    node.place = ToPlace(mark, file_);
    Close(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (WantsKey()) Fail(mark, "an alias cannot be a key");
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      Fail(mark, "an alias inside the value it stands for");
    }
    // the expanded tree is measured before it is copied
    SpendOnAliases(ToPlace(mark, file_), TreeBytes(found->second));
    if (static_cast<int>(stack_.size()) + Depth(found->second) >
        YamlLimits::kDepth) {
      FailDepth(mark);
    }
    Close(Node(found->second), YAML::NullAnchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor, const std::string& value) override {
    // "?" is a plain scalar, "!" a quoted one
    if (tag != "?" && tag != "!") FailTag(mark, tag);
    if (WantsKey()) {
      TakeKey(mark, value, /*is_plain=*/tag == "?");
      return;
    }
    Spend(ToPlace(mark, file_), sizeof(Node::Entry) + value.size());
    Node node;
    node.kind = Node::Kind::kScalar;
    node.place = ToPlace(mark, file_);
    node.text = value;
    node.is_quoted = tag == "!";
    Close(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, Node::Kind::kList);
  }
  void OnSequenceEnd() override { CloseTop(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnMapEnd() override { CloseTop(); }

 private:
  struct Level {
    Node node;
    YAML::anchor_t anchor;
    // of a map: its next scalar is a key, unless one waits for its value
    bool has_key = false;
    bool is_duplicate = false;
    std::string key = "";
    Place key_place = {};
    std::map<std::string, Place> places = {};  // of the keys so far
  };

  [[noreturn]] void Fail(const YAML::Mark& mark, std::string message) const {
    throw ParseFailure{ToPlace(mark, file_), std::move(message)};
  }
  [[noreturn]] void FailTag(const YAML::Mark& mark,
                            const std::string& tag) const {
    Fail(mark, fmt::format("tag {}: tags are not supported; hint: remove it",
                           Quote(tag)));
  }
  [[noreturn]] void FailDepth(const YAML::Mark& mark) const {
    Fail(mark, fmt::format("more than {} levels deep", YamlLimits::kDepth));
  }

  bool WantsKey() const {
    return !stack_.empty() && stack_.back().node.kind == Node::Kind::kMap &&
           !stack_.back().has_key;
  }

  void Spend(const Place& place, size_t bytes) {
    tree_bytes_ += bytes;
    if (tree_bytes_ > YamlLimits::kTreeBytes) {
      throw ParseFailure{place,
                         fmt::format("the file needs more than {} bytes of "
                                     "memory",
                                     YamlLimits::kTreeBytes)};
    }
  }
  void SpendOnAliases(const Place& place, size_t bytes) {
    alias_bytes_ += bytes;
    if (alias_bytes_ > YamlLimits::kAliasBytes) {
      throw ParseFailure{
          place, fmt::format("the file's aliases expand to more than {} bytes",
                             YamlLimits::kAliasBytes)};
    }
  }

  static int Depth(const Node& node) {
    int below = 0;
    for (const Node& item : node.items) below = std::max(below, Depth(item));
    for (const Node::Entry& entry : node.entries) {
      below = std::max(below, Depth(entry.value));
    }
    return below + 1;
  }

  void TakeKey(const YAML::Mark& mark, const std::string& key, bool is_plain) {
    if (key == "<<" && is_plain) {
      Fail(mark,
           "merge keys are not supported; hint: move the shared keys to their "
           "own file and name it with 'base:'");
    }
    Level& map = stack_.back();
    if (map.node.entries.size() >= YamlLimits::kMapKeys) {
      Fail(mark,
           fmt::format("more than {} keys in one map", YamlLimits::kMapKeys));
    }
    Spend(ToPlace(mark, file_), key.size());
    map.has_key = true;
    map.key = key;
    map.key_place = ToPlace(mark, file_);
    const auto [first, is_new] = map.places.try_emplace(key, map.key_place);
    map.is_duplicate = !is_new;
    if (map.is_duplicate) {
      problems_->Add(
          map.key_place, Path(),
          "duplicate key; first at " + problems_->Where(first->second));
    }
  }

  // The dotted path of the key that was read last.
  std::string Path() const {
    std::string path;
    for (const Level& level : stack_) {
      if (!path.empty()) path += '.';
      path += level.node.kind == Node::Kind::kMap
                  ? Printable(level.key)
                  : std::to_string(level.node.items.size());
    }
    return path;
  }

  void Open(const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor, Node::Kind kind) {
    if (tag != "?" && !tag.empty()) FailTag(mark, tag);
    if (WantsKey())
      Fail(mark,
           "a key must be text, not a list or a map; hint: is a ']' or '}' "
           "missing?");
    if (static_cast<int>(stack_.size()) >= YamlLimits::kDepth) FailDepth(mark);
    Spend(ToPlace(mark, file_), sizeof(Node::Entry));
    Level level{.node = {}, .anchor = anchor};
    level.node.kind = kind;
    level.node.place = ToPlace(mark, file_);
    stack_.push_back(std::move(level));
  }

  void CloseTop() {
    Level level = std::move(stack_.back());
    stack_.pop_back();
    Close(std::move(level.node), level.anchor);
  }

  // Puts a value that was read whole into its place.
  void Close(Node node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      // keep a copy of an anchored value
      SpendOnAliases(node.place, TreeBytes(node));
      anchors_[anchor] = node;
    }
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& parent = stack_.back();
    if (parent.node.kind == Node::Kind::kList) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    parent.has_key = false;
    if (parent.is_duplicate) return;
    parent.node.entries.push_back(
        {std::move(parent.key), parent.key_place, std::move(node)});
  }

  int file_;
  Problems* problems_;
  Node root_;
  bool has_document_ = false;
  std::vector<Level> stack_;
  // complete values that an alias may name
  std::map<YAML::anchor_t, Node> anchors_;
  size_t tree_bytes_ = 0;
  size_t alias_bytes_ = 0;
};

// Throws ParseFailure unless `text` is UTF-8 without control characters.
void CheckText(std::string_view text, int file) {
  Place place{file, 1, 1};
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = Utf8Size(text.substr(i));
    if (length == 0) {
      throw ParseFailure{place,
                         fmt::format("byte 0x{:02x} is not UTF-8 text", byte)};
    }
    const bool is_space = byte == '\t' || byte == '\n' || byte == '\r';
    if ((byte < 0x20 && !is_space) || byte == 0x7f) {
      throw ParseFailure{
          place, fmt::format("control character 0x{:02x}; hint: write it as "
                             "\"\\x{:02x}\" in double quotes",
                             byte, byte)};
    }
    place.column += static_cast<int>(length);
    if (byte == '\n') {
      ++place.line;
      place.column = 1;
    }
    i += length;
  }
}

// The first line, from 1, whose indentation holds a tab; 0 if there is none.
int FirstIndentedByTab(const std::string& text) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
    if (line.find('\t') < indent) return number;
  }
  return 0;
}

}  // namespace

std::string ProblemOfText(std::string_view text) {
  try {
    CheckText(text, /*file=*/0);
  } catch (const ParseFailure& failure) {
    return failure.message;
  }
  return "";
}

std::optional<Node> ParseYaml(const std::string& text, int file,
                              Problems* problems) {
  try {
    if (text.size() > YamlLimits::kFileBytes) {
      throw ParseFailure{{file, 1, 1},
                         fmt::format("{} bytes; at most {} are read",
                                     text.size(), YamlLimits::kFileBytes)};
    }
    CheckText(text, file);
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    TreeBuilder builder(file, problems);
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.TakeRoot();
  } catch (const ParseFailure& failure) {
    problems->Add(failure.place, "", failure.message);
  } catch (const YAML::Exception& error) {
    if (const int line = FirstIndentedByTab(text); line > 0) {
      problems->Add({file, line, 1}, "",
                    "YAML: a tab in the indentation; hint: use spaces");
    } else {
      problems->Add(ToPlace(error.mark, file), "", "YAML: " + error.msg);
    }
  }
  return std::nullopt;
}

}  // namespace replicant::config
