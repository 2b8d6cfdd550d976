// Holds the table of ARCHITECTURE.md, "Who may include whom": reads every
// #include under src/nibble and fails on one that the table does not allow.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace fs = std::filesystem;

std::set<std::string> with(std::set<std::string> uses, const char* more) {
  uses.insert(more);
  return uses;
}

// A folder, and the folders (or single headers) that its files may include
// besides their own. "quant/schemes/*" stands for each folder in it.
const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::set<std::string> kCoreUses = {"quant/core",
                                                  "model/linear.h",
                                                  "model/family.h",
                                                  "load/layer_builder.h",
                                                  "container",
                                                  "backend",
                                                  "tensor",
                                                  "base"};
  static const std::set<std::string> kJobUses = {"quant/core",
                                                 "quant/recipe",
                                                 "quant/engines",
                                                 "load",
                                                 "model",
                                                 "container",
                                                 "backend",
                                                 "tensor",
                                                 "base"};
  static const std::map<std::string, std::set<std::string>> kTable = {
      {"base", {}},
      {"tensor", {"base"}},
      {"backend", {"tensor", "base"}},
      {"container", {"tensor", "base"}},
      {"model", {"backend", "tensor", "base"}},
      {"text", {"model", "backend", "tensor", "base"}},
      {"load", {"model", "container", "backend", "tensor", "base"}},
      {"quant/core",
       {"quant/schemes/schemes.def",
        "quant/formats/formats.def",
        "quant/algorithms/algorithms.def",
        "model/linear.h",
        "load/layer_builder.h",
        "container",
        "backend",
        "tensor",
        "base"}},
      {"quant/schemes/common", kCoreUses},
      {"quant/schemes/*", with(kCoreUses, "quant/schemes/common")},
      // Formats of files without module names take them from the config.
      {"quant/formats/*", with(kCoreUses, "model/config.h")},
      {"quant/algorithms/*", kCoreUses},
      {"quant/recipe", kCoreUses},
      {"quant/engines", kCoreUses},
      {"quant/attach", kJobUses},
      {"quant/pipeline", kJobUses},
      {"quant/planning", with(kJobUses, "quant/pipeline")},
      {"report", with(kJobUses, "quant/pipeline")},
      {"store", with(kJobUses, "quant/pipeline")},
      {"cli",
       {"store",
        "report",
        "quant/core",
        "quant/recipe",
        "quant/engines",
        "quant/attach",
        "quant/pipeline",
        "quant/planning",
        "load",
        "text",
        "model",
        "container",
        "backend",
        "tensor",
        "base"}},
  };
  return kTable;
}

// "quant/core/scheme.h" -> "quant/core"; "backend/cpu/x.h" -> "backend";
// "quant/schemes/fp8/x.h" -> "quant/schemes/fp8".
std::string folder_of(const std::string& path) {
  const auto cut = [&path](int parts) {
    std::size_t end = 0;
    for (int i = 0; i < parts; ++i) {
      end = path.find('/', end + 1);
      if (end == std::string::npos) {
        return std::string();
      }
    }
    return path.substr(0, end);
  };
  if (!path.starts_with("quant/")) {
    return cut(1);
  }
  const std::string kind = cut(2);
  const bool plugins = kind == "quant/schemes" || kind == "quant/formats" ||
                       kind == "quant/algorithms";
  return plugins ? cut(3) : kind;
}

// The table's row of a folder.
std::string row_of(const std::string& folder) {
  if (allowed().contains(folder)) {
    return folder;
  }
  for (const char* kind :
       {"quant/schemes/", "quant/formats/", "quant/algorithms/"}) {
    if (folder.starts_with(kind)) {
      return std::string(kind) + "*";
    }
  }
  return folder;
}

// Why a file of `folder` may not include `target`, or "".
std::string objection(const std::string& folder, const std::string& target) {
  const auto row = allowed().find(row_of(folder));
  if (row == allowed().end()) {
    return "folder " + folder + " is not in the table";
  }
  const std::string target_folder = folder_of(target);
  if (target_folder == folder || row->second.contains(target) ||
      row->second.contains(target_folder)) {
    return "";
  }
  return folder + " may not include " + target_folder;
}

bool is_source(const fs::path& path) {
  const std::string extension = path.extension();
  return extension == ".h" || extension == ".cc" || extension == ".cu" ||
         extension == ".cuh" || extension == ".def";
}

struct Include {
  std::string file;    // relative to src/nibble
  std::string target;  // as written, without <> or ""
};

// Every #include of the library's own files (tests may include anything).
std::vector<Include> all_includes() {
  static const std::regex kInclude(R"(^\s*#\s*include\s*["<]([^">]+)[">])");
  const fs::path root = fs::path(NIBBLE_SOURCE_DIR) / "src" / "nibble";
  std::vector<Include> includes;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().stem();
    if (!entry.is_regular_file() || !is_source(entry.path()) ||
        name.ends_with("_test")) {
      continue;
    }
    std::ifstream in(entry.path());
    std::smatch match;
    for (std::string line; std::getline(in, line);) {
      if (std::regex_search(line, match, kInclude)) {
        includes.push_back(
            {fs::relative(entry.path(), root).string(), match[1].str()});
      }
    }
  }
  return includes;
}

TEST(Layering, EveryIncludeIsAllowedByTheTable) {
  int seen = 0;
  for (const auto& [file, target] : all_includes()) {
    if (!target.starts_with("nibble/")) {
      continue;
    }
    ++seen;
    EXPECT_EQ(objection(folder_of(file), target.substr(7)), "")
        << file << " includes " << target;
  }
  EXPECT_GT(seen, 50) << "the sources were not found";
}

using Uses = std::map<std::string, std::set<std::string>>;

// The folders that are part of a circle or need one that is: what is left when
// those that use none of the others are taken away, again and again.
Uses left_by_circles(Uses uses) {
  std::size_t before = 0;
  do {
    before = uses.size();
    std::erase_if(uses, [&](const auto& folder) {
      return std::ranges::none_of(folder.second, [&](const std::string& use) {
        return uses.contains(use);
      });
    });
  } while (uses.size() < before);
  return uses;
}

TEST(Layering, TheTableHasNoCircle) {
  Uses uses;
  for (const auto& [folder, allowed_uses] : allowed()) {
    for (const std::string& use : allowed_uses) {
      if (use.ends_with(".def")) {
        continue;
      }
      const std::string used = use.ends_with(".h") ? folder_of(use) : use;
      EXPECT_TRUE(allowed().contains(used)) << used << " is not in the table";
      uses[folder].insert(used);
    }
  }
  EXPECT_GT(uses.size(), 5);
  for (const auto& [folder, targets] : left_by_circles(uses)) {
    ADD_FAILURE() << folder << " is part of a circle or needs one";
  }
}

// A path's first folder below `parent`; "" for what is not in a folder there.
std::string child_of(const std::string& parent, const std::string& path) {
  const std::string prefix = parent.empty() ? "" : parent + "/";
  if (!path.starts_with(prefix)) {
    return "";
  }
  const std::size_t end = path.find('/', prefix.size());
  return end == std::string::npos ? "" : path.substr(0, end);
}

TEST(Layering, FoldersSideBySideDoNotIncludeEachOtherInACircle) {
  const std::vector<Include> includes = all_includes();
  std::set<std::string> parents;
  for (const auto& [file, target] : includes) {
    for (fs::path up = fs::path(file).parent_path(); !up.empty();
         up = up.parent_path()) {
      parents.insert(up.parent_path().string());
    }
  }
  EXPECT_GT(parents.size(), 5) << "the sources were not found";
  for (const std::string& parent : parents) {
    Uses uses;
    for (const auto& [file, target] : includes) {
      const std::string from = child_of(parent, file);
      // Lists (.def) are the registry's business.
      const std::string to =
          target.starts_with("nibble/") && target.ends_with(".h")
              ? child_of(parent, target.substr(7))
              : "";
      if (!from.empty() && !to.empty() && from != to) {
        uses[from].insert(to);
      }
    }
    for (const auto& [folder, targets] : left_by_circles(uses)) {
      ADD_FAILURE() << folder << " is part of a circle or needs one";
    }
  }
}

TEST(Layering, AFolderHasAtMostTwentyFiveSources) {
  const fs::path root = fs::path(NIBBLE_SOURCE_DIR) / "src" / "nibble";
  std::map<fs::path, int> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file() && is_source(entry.path())) {
      ++files[entry.path().parent_path()];
    }
  }
  EXPECT_GT(files.size(), 10) << "the sources were not found";
  for (const auto& [folder, count] : files) {
    EXPECT_LE(count, 25) << folder
                         << ": move what belongs together to a folder";
  }
}

TEST(Layering, EveryHeaderIsIncludedByItsPathBelowSrc) {
  const fs::path root = fs::path(NIBBLE_SOURCE_DIR) / "src";
  for (const auto& [file, target] : all_includes()) {
    if (target.ends_with(".h") && !target.starts_with("nibble/")) {
      const fs::path beside = root / "nibble" / fs::path(file).parent_path();
      EXPECT_FALSE(fs::exists(beside / target))
          << file << " includes " << target << ", expected the full path";
    }
  }
}

TEST(Layering, HeadersDoNotPullInHeavyLibraries) {
  for (const auto& [file, target] : all_includes()) {
    // Helpers of tests are in no program's way.
    if (file.ends_with(".h") && !file.ends_with("_for_tests.h")) {
      EXPECT_FALSE(target == "nlohmann/json.hpp" || target == "fmt/format.h" ||
                   target.starts_with("tbb/") || target.starts_with("oneapi/"))
          << file << " includes " << target << ": only a .cc may";
    }
  }
}

TEST(Layering, TheTableRefusesWhatItShould) {
  EXPECT_EQ(objection("model", "tensor/view.h"), "");
  EXPECT_EQ(objection("quant/core", "model/linear.h"), "");
  EXPECT_NE(objection("quant/core", "model/transformer.h"), "");
  EXPECT_NE(objection("text", "quant/core/scheme.h"), "");
  EXPECT_NE(objection("load", "quant/core/format.h"), "");
  EXPECT_NE(objection("quant/schemes/fp8", "quant/schemes/integer/x.h"), "");
  EXPECT_EQ(objection("quant/schemes/fp8", "quant/schemes/common/x.h"), "");
  EXPECT_NE(objection("quant/schemes/common", "quant/schemes/fp8/x.h"), "");
  EXPECT_NE(objection("quant/formats/gguf", "quant/schemes/fp8/x.h"), "");
  EXPECT_NE(objection("unheard_of", "base/error.h"), "");
  EXPECT_EQ(folder_of("quant/schemes/fp8/scheme.cc"), "quant/schemes/fp8");
  EXPECT_EQ(folder_of("backend/cpu/cpu_backend.h"), "backend");
}

}  // namespace
