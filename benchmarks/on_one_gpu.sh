#!/usr/bin/env bash
# Many results on one GPU: parts run beside each other, which CUDA MPS makes worth while.
# usage: benchmarks/on_one_gpu.sh FOLDER PART[,PART ...] ...
# Parts with commas between them run one after another, others at the same time. Parts: paper (four cells of
# results/policies.md), weights (of Q, in LBRAC-v; weights:brac_v, in BRAC-v), medium (LBRAC-v on the medium sets),
# heterogeneous, varying-k (sets of five agents first, then three, one, four, two; K = 10 is taken from heterogeneous),
# baselines, model-based, tuning, d3rlpy; evaluation and speed, for which the GPU should be idle
# (speed:lbrac_v+cql, learners). Of baselines a part may be asked for: 'baselines:*/bc+iql', words as `--only` takes them ('baselines:*hopper*/bcq' makes Hopper's sets alone); of
# model-based one learner (model-based:mopo); of mopp+tuning a task is tuned as soon as its own fleets have ended. Of
# heterogeneous and model-based one task (heterogeneous:hopper,model-based:mopp+tuning+hopper).
# Data sets are made once, in FOLDER/data, and a part waits for those that it needs. Whatever is finished is a line of a
# .jsonl in FOLDER, and all of these are, with the logs, in FOLDER/results.tgz, made anew every 15 seconds; and at once by
# `on_one_gpu.sh FOLDER collect`. A second call goes on.
# environment: PYTHON (python3); D3RLPY, an interpreter that has d3rlpy; to try it, SIZE and TRANSITIONS: updates, and
#              rows of every data set
set -uf  # words may hold a *
folder=${1:?usage: on_one_gpu.sh FOLDER PART[,PART ...] ...}; shift
python=${PYTHON:-python3}
steps=${SIZE:-200000}
export XLA_PYTHON_CLIENT_PREALLOCATE=false OMP_NUM_THREADS=1
export XLA_FLAGS="${XLA_FLAGS:---xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false}"
mkdir -p "$folder/data" "$folder/logs"
command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d

# Sets in the order in which parts need them. Those of one task have episodes in common: a process for each task.
sets_of() { # NAME[:WORDS]
  case ${1%%:*} in
    paper) echo {halfcheetah,hopper,walker2d}-heterogeneous-1 halfcheetah-heterogeneous-3 ;;
    medium) echo {hopper,halfcheetah,walker2d}-medium ;;
    weights) echo {hopper,halfcheetah,walker2d}-{medium,heterogeneous-5,heterogeneous-1} ;;
    heterogeneous) echo {hopper,walker2d,halfcheetah}-heterogeneous-{1,2,3,4,5} ;;
    varying-k) echo {hopper,walker2d,halfcheetah}-heterogeneous-{5,3,1,4,2} ;;
    baselines)
      for task in hopper halfcheetah; do
        case ${1#*:} in *hopper* | *halfcheetah*) [[ $1 == *$task* ]] || continue ;; esac
        echo $task-{medium-replay,medium-expert,heterogeneous-5,medium}
      done ;;
    model-based) echo {hopper,halfcheetah,walker2d}-{medium,medium-replay,heterogeneous-5} ;;
  esac
}

make_sets() {
  local cores=$(env -u OMP_NUM_THREADS nproc) share first=0 task names
  share=$(((cores + 2) / 3))
  for task in hopper walker2d halfcheetah; do
    names=$(for part in "$@"; do sets_of "$part"; done | tr ' ' '\n' | grep "^$task-" | awk '!seen[$0]++')
    JAX_PLATFORMS=cpu taskset -c "$((first % cores))-$((first + share < cores ? first + share - 1 : cores - 1))" \
      $python - "$folder/data" "${TRANSITIONS:-}" $names <<'END' &
import sys
from pathlib import Path
import manyhands as mh
folder, size, *names = sys.argv[1:]
takes = {}
for name in names:
    file = Path(folder) / f"zoo-{name}.npz"
    if not file.exists():
        mh.save(mh.make(name, int(size) if size else None, takes=takes), file)
END
    first=$(((first + share) % cores))
  done
  wait
}

tasks_in() { # WORDS: those named in them, or all
  local task named=
  for task in hopper walker2d halfcheetah; do [[ $1 == *$task* ]] && named+=" $task"; done
  echo ${named:-hopper walker2d halfcheetah}
}

wait_for() { # PART [TASK]
  local name
  for name in $(sets_of "$1"); do
    [[ $name == ${2:-}* ]] || continue
    until [ -e "$folder/data/zoo-$name.npz" ]; do sleep 0.5; done
  done
}

# A benchmark in a folder of its own, with the data sets of all.
benchmark() { # OUT PRESET JOBS [--only ...]
  local out=$1 preset=$2 jobs=$3; shift 3
  mkdir -p "$out"; [ -e "$out/data" ] || ln -s "$(realpath "$folder/data")" "$out/data"
  # What is known already need not be found again. Of a trial with other data it is not.
  [ -e "$out/results.jsonl" ] || [ -n "${SIZE:-}" ] || cp "results/$preset/results.jsonl" "$out/" 2>/dev/null
  if [ -n "${SIZE:-}" ]; then
    sed -E "s/= [0-9]+_000$/= $SIZE/; s/episodes = 20/episodes = 2/" "src/manyhands/sweep/presets/$preset.toml" > "$folder/$preset.toml"
    preset=$folder/$preset.toml
  fi
  $python -m manyhands benchmark "$preset" --out "$out" --jobs "$jobs" --resume "$@"
}

tune() { # DATA
  $python benchmarks/mopp_tuning.py --data $1 --out "$folder/mopp_tuning-$1.jsonl" --benchmark "$folder" \
    --replay "$folder/mopp_tuned-$1.jsonl" --runs "$folder/tuning" \
    ${SIZE:+--steps $SIZE --transitions $TRANSITIONS --episodes 1} > "$folder/logs/tuning-$1" 2>&1
}

part() { # NAME [WORD+WORD ...]
  case $1 in heterogeneous | varying-k | model-based) ;; *) wait_for "$1${2:+:$2}" ;; esac  # these wait for one task's at a time
  case $1 in
    paper)
      mkdir -p "$folder/paper"
      for name in $(sets_of paper); do ln -sf "$(realpath "$folder/data/zoo-$name.npz")" "$folder/paper/$name.npz"; done
      $python benchmarks/policies.py --cases {halfcheetah,hopper,walker2d}-heterogeneous-1/lbrac_v-paper \
        halfcheetah-heterogeneous-3/lbrac_v-paper --out "$folder/paper.jsonl" --data "$folder/paper" --seeds 0 1 2 \
        --steps "$steps" --behavior-steps "$steps" --evaluations 5 --episodes 20 --jobs 4 --workers 3 ;;
    weights | medium)
      mkdir -p "$folder/$1"
      for name in $(sets_of $1); do ln -sf "$(realpath "$folder/data/zoo-$name.npz")" "$folder/$1/$name.npz"; done
      $python benchmarks/policies.py --cases $(for task in hopper halfcheetah walker2d; do case $1 in
          weights) echo $task-medium+$task-heterogeneous-5+$task-heterogeneous-1/${2:+$2-}weights ;;
          medium) echo $task-medium/lbrac_v ;; esac; done) --out "$folder/$1.jsonl" \
        --data "$folder/$1" --seeds 0 1 2 --steps "$steps" --behavior-steps "$steps" --evaluations 5 --episodes 20 --jobs 3 --workers 4 ;;
    heterogeneous)
      for task in $(tasks_in "${2:-}"); do
        {
          wait_for heterogeneous $task
          benchmark "$folder/heterogeneous-$task" heterogeneous 2 --only "$task" > "$folder/logs/heterogeneous-$task" 2>&1
        } &
      done
      wait ;;
    varying-k)
      for task in $(tasks_in "${2:-}"); do
        {
          local out=$folder/varying-k-$task
          mkdir -p "$out"
          [ -e "$out/results.jsonl" ] || [ -n "${SIZE:-}" ] || cat results/{heterogeneous,varying-k}/results.jsonl 2>/dev/null |
            grep '"label": "lbrac_v",' > "$out/results.jsonl"
          for agents in 5 3 1 4 2; do
            wait_for varying-k $task-heterogeneous-$agents
            benchmark "$out" varying-k 1 --together 1 --only "$task-heterogeneous-$agents"
          done > "$folder/logs/varying-k-$task" 2>&1
        } &
      done
      wait ;;
    # Two data sets a fleet, of the long ones one: less is lost where time runs out.
    baselines)
      local jobs=6 together=2
      case ${2:-} in *cql* | *bcq*) jobs=5 together=1 ;; esac
      benchmark "$folder/baselines" baselines $jobs --together $together ${2:+--only ${2//+/ }} ;;
    # One data set a fleet of MOPP: its long dynamics end when they are done, not when those of all are.
    model-based)
      local together=1 learner= tuned=
      case ${2:-} in *mopo*) learner=mopo together=3 ;; *mopp*) learner=mopp ;; esac
      [[ ${2:-} == *tuning* ]] && tuned=1
      for task in $(tasks_in "${2:-}"); do
        local name=model-based-$task${learner:+-$learner}
        {
          wait_for model-based $task
          benchmark "$folder/$name" model-based 2 --together $together --only "*$task*/${learner:-*}" > "$folder/logs/$name" 2>&1
          [ -z "$tuned" ] || [ $task = hopper ] || tune $task-medium
        } &
      done
      wait ;;
    tuning)  # of what model-based has trained, if it has: model-based:mopp,tuning
      for name in halfcheetah-medium walker2d-medium; do tune $name & done
      wait ;;
    evaluation)  # by as many processes as let it take longer than the updates between two
      $python benchmarks/evaluation.py --turns 1 --workers 2 --updates ${SIZE:-30000} --evaluations 6 ;;
    speed) timeout 60 $python benchmarks/train.py --updates ${SIZE:-300} --algos ${2//+/ } ;;
    d3rlpy)
      for algo in bc td3_bc iql plas rebrac bcq cql; do
        cp --update=none results/scores_d3rlpy.jsonl "$folder/d3rlpy-$algo.jsonl"
        $python benchmarks/scores_d3rlpy.py --d3rlpy "$D3RLPY" --algos $algo --out "$folder/d3rlpy-$algo.jsonl" \
          ${SIZE:+--updates $SIZE --transitions $TRANSITIONS --episodes 1} > "$folder/logs/d3rlpy-$algo" 2>&1 &
      done
      wait ;;
  esac
}

collect() {
  (cd "$folder" && find . -name data -prune -o \( -name '*.jsonl' -o -path './logs/*' -o -name log.txt \) -type f -print |
    tar czf .results.tgz --files-from - && mv .results.tgz results.tgz)
}

chain() { for one in ${1//,/ }; do part ${one/:/ } > "$folder/logs/${one//[!a-z0-9_-]/-}" 2>&1; done; }

if [ "$*" = collect ]; then collect; exit; fi
make_sets ${*//,/ } > "$folder/logs/data" 2>&1 &
(while sleep 15; do collect; done) &
collecting=$!
chains=()
for chain in "$@"; do
  chain "$chain" &
  chains+=($!)
done
wait "${chains[@]}"
kill $collecting
echo "all parts have ended" > "$folder/logs/end"
collect
