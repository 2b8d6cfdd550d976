#include "nibble/cli/shell/scripts.h"

#include "nibble/base/error.h"

namespace nibble::cli {
namespace {

// nibble complete prints a candidate a line, a tab and its description behind
// it, and :files or :directories where names of these may stand.
constexpr std::string_view kBash = R"sh(# bash completion for nibble
_nibble() {
  local line typed=${COMP_WORDS[COMP_CWORD]}
  [[ $typed == = ]] && typed=
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files | :directories)
        local action=-f name
        [[ $line == :directories ]] && action=-d
        compopt -o filenames 2>/dev/null
        while IFS= read -r name; do
          COMPREPLY+=("$name")
        done < <(compgen "$action" -- "$typed")
        ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]}" complete -- \
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _nibble nibble
)sh";

constexpr std::string_view kZsh = R"sh(#compdef nibble
_nibble() {
  local line
  local -a candidates
  while IFS= read -r line; do
    case $line in
      :files) _files ;;
      :directories) _files -/ ;;
      *) candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#candidates} )) && _describe nibble candidates
}
if [[ ${funcstack[1]} == _nibble ]]; then
  _nibble "$@"
else
  compdef _nibble nibble
fi
)sh";

constexpr std::string_view kFish = R"sh(# fish completion for nibble
function __nibble_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :directories
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c nibble -f -a '(__nibble_complete)'
)sh";

}  // namespace

std::string_view completion_script(std::string_view shell) {
  if (shell == "bash") {
    return kBash;
  }
  if (shell == "zsh") {
    return kZsh;
  }
  NIBBLE_CHECK(shell == "fish",
               kInvalidArgument,
               "shell: found {}, expected bash, zsh or fish",
               shell);
  return kFish;
}

}  // namespace nibble::cli
