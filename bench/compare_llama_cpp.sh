#!/bin/sh
# Compares nibble with llama.cpp on the same machine, in alternating rounds so
# that neighbours and clock changes hit both alike.
#   bench/compare_llama_cpp.sh GENERATE_BENCH DIR LLAMA_BENCH GGUF [ROUNDS]
# GENERATE_BENCH  build directory's bench/nibble_generate_bench
# DIR             an int4 model directory made by nibble quantize
# LLAMA_BENCH     llama.cpp's llama-bench
# GGUF            the same model in Q4_0
# Fails when decoding is slower than 1/3 or reading a prompt slower than 1/5 of
# llama.cpp's speed (medians over the rounds).
set -eu

if [ $# -lt 4 ]; then
  sed -n '2,11s/^# \{0,1\}//p' "$0"
  exit 2
fi
generate_bench=$1
directory=$2
llama_bench=$3
gguf=$4
rounds=${5:-3}
threads=$(nproc)
prompt=512
tokens=64
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# llama-bench writes a line of JSON a test: n_prompt is 0 for decoding.
llama_round() {
  "$llama_bench" -m "$gguf" -p "$prompt" -n "$tokens" -t "$threads" -r 1 \
    -o jsonl 2>/dev/null |
    sed -n -e 's/.*"n_prompt": \([0-9]*\),.*"avg_ts": \([0-9.]*\),.*/\1 \2/p' |
    while read -r n_prompt speed; do
      if [ "$n_prompt" = 0 ]; then
        echo "llama.cpp decode $speed"
      else
        echo "llama.cpp prompt $speed"
      fi
    done
}

nibble_round() {
  "$generate_bench" "$directory" --prompt "$prompt" --tokens "$tokens" \
    --threads "$threads" --rounds 1 |
    sed -n 's|^memory \([0-9.]*\) GB/s, prompt \([0-9.]*\) .*decode \([0-9.]*\) .*|nibble memory \1\nnibble prompt \2\nnibble decode \3|p'
}

round=0
while [ "$round" -lt "$rounds" ]; do
  nibble_round >>"$results"
  llama_round >>"$results"
  round=$((round + 1))
done

median() {
  awk -v who="$1" -v what="$2" '$1 == who && $2 == what { print $3 }' \
    "$results" | sort -n | awk '{ value[NR] = $1 }
      END { if (NR == 0) exit 1; print value[int((NR + 1) / 2)] }'
}

echo "memory: $(median nibble memory) GB/s read by all threads"
status=0
for what in prompt:5 decode:3; do
  name=${what%:*}
  nibble_speed=$(median nibble "$name")
  llama_speed=$(median llama.cpp "$name")
  awk -v name="$name" -v part="${what#*:}" -v ours="$nibble_speed" \
    -v theirs="$llama_speed" 'BEGIN {
      printf "%s: nibble %.1f tokens/s, llama.cpp %.1f: %.2f of it", name,
        ours, theirs, ours / theirs
      printf " (at least 1/%d expected)\n", part
      exit ours * part < theirs
    }' || status=1
done
exit $status
