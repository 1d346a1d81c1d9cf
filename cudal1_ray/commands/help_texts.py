"""Descriptions and examples that `cudal1 COMMAND --help` prints."""

from __future__ import annotations

TRAIN_HELP = """\
Trains a policy: supervised fine-tuning, self-supervised, then contrastive reinforcement learning.

With no argument it runs the demo: a small model trained from scratch on this machine's CPU, in minutes.
The run is a folder, runs/<name>. Interrupt it at any moment; the same command continues it.
"""
TRAIN_EXAMPLES = """\
settings are `key=value`, presets are `group=name` (a file of conf/<group>/); a recipe chooses presets and settings for
one purpose:
  cudal1 train                                     the demo
  cudal1 train name=kb recipe=kernelbench_one_gpu policy.path=FOLDER problems.path=FILE.parquet
  cudal1 train name=mine recipe=my_problems_cpu policy.path=FOLDER problems.path=FOLDER
  cudal1 train name=b seed=2 contrastive.steps=40
  cudal1 train name=b stage=sft                    one stage; then stage=self_supervised, stage=contrastive
  cudal1 train name=plain-grpo init_from=runs/demo stage=contrastive exemplars=none
  cudal1 train name=longer init_from=runs/demo/checkpoints/contrastive-final stage=contrastive   on from there
  cudal1 train name=control stage=contrastive init_from=runs/demo contrastive.learning_rate=0   the control row
  cudal1 train name=mine max_minutes=25            end in time, with a checkpoint; the same command continues
settings are explained:
  cudal1 train --cfg                               print the composed configuration, run nothing
  cudal1 train --cfg --explain                     the same, each setting with its explanation, bounds and presets
  cudal1 train --help contrastive.steps            one setting; --help contrastive a section; --help presets
  cudal1 train --help island                       a preset: every value of its section, and what sets it
  cudal1 train --help learner recipe=kernelbench_one_gpu    a section under other settings
sweeps: with -m every combination of `key=a,b,c` is a run of its own, side by side where the Ray cluster has room:
  cudal1 train -m exemplars=uniform,bucket,island seed=1,2,3 name=which-exemplars
  cudal1 train -m --cfg exemplars=uniform,bucket seed=1,2    print the configuration of each run, start none
  cudal1 report --sweep runs/which-exemplars       its table again
"""
SERVE_EXAMPLES = """\
settings are `key=value`; presets are `serving=cpu`, `serving=one_gpu` and `serving=gpu` (conf/serving/):
  cudal1 serve policy=runs/demo                              a run: its last finished stage
  cudal1 serve policy=runs/mine/checkpoints/sft-final port=9000
  cudal1 serve serving=gpu policy=FOLDER replicas.max=8 host=0.0.0.0 security.keys_file=keys.json
  cudal1 serve --add-key alice security.keys_file=keys.json  a key, shown once and kept as a hash
  cudal1 serve --cfg policy=runs/demo                        print every setting (--explain: with its meaning)
  cudal1 serve --help security                               explain a section, a setting or presets
"""
OPTIMIZE_EXAMPLES = """\
  cudal1 optimize module.py policy=runs/demo                 on this machine; the winner goes to module_fast.py
  cudal1 optimize module.py policy=FOLDER serving=one_gpu optimize.rounds=8 optimize.samples_per_round=32
  cudal1 optimize net.py --inputs "randn(64, 128)" --init "128, depth=2" policy=runs/demo
  cudal1 optimize module.py policy=endpoint policy.url=http://host:8000/v1 policy.model=NAME policy.key_env=MY_KEY
  cudal1 optimize module.py --server http://host:8000 --key-file mykey optimize.rounds=8
A file is a problem (Model, get_inputs(), get_init_inputs()), or any nn.Module together with --inputs and --init, which
are written as in a call; randn is torch.randn. Exit code 0: something faster was saved; 1: nothing faster found; 2: a
mistake.
"""

COLLECT_EXAMPLES = """\
settings are those of `cudal1 train`; the accepted candidates go to collect.out, a table for sft.corpus:
  cudal1 collect problems=kernelbench_hub policy=endpoint policy.url=http://host:8000/v1 policy.model=NAME
  cudal1 collect recipe=kernelbench_one_gpu problems.path=kernelbench.parquet policy.path=FOLDER collect.out=my.parquet
  cudal1 collect recipe=my_problems_cpu problems.path=FOLDER policy.path=FOLDER collect.show_earlier=true
policy.key_env=NAME sends the key in that environment variable. With collect.successes=0 and collect.show_earlier=true
it is an evolutionary search. After a kill the same command continues. Exit code 0: done; 2: a mistake, or the server
gives no answers.
"""

EVALUATE_EXAMPLES = """\
  cudal1 evaluate candidate.py --problem problem.py
  cudal1 evaluate candidate.py --problem problem.py --device cuda --against all
  cudal1 evaluate candidate.py --problem problem.py --device cuda --no-certain
  cudal1 evaluate candidate.py --problem problem.py evaluation.timing.budget_s=5
  cudal1 evaluate --manifest pairs.jsonl --out verdicts.jsonl --device cuda
  cudal1 evaluate --manifest pairs.jsonl --out verdicts.jsonl --device cuda --ray
  cudal1 evaluate --manifest pairs.jsonl --out portability --device cuda --ray --on A100 --on H100
  cudal1 evaluate --run DIR problems=kernelbench_parquet problems.path=FILE.parquet --device cuda
The verdict is against the first baseline of --against (eager, compile, compile_reduce_overhead, cuda_graph,
tuned_eager; several with commas). Paths in a manifest are relative to it. After a kill the same command continues: what
has a row in VERDICTS is not evaluated again. Exit code 0 whatever the verdicts (1 for those that --fail-on names);
2 for a mistake.
Settings are those of `cudal1 train --cfg`: evaluation.*, and cluster.* with --ray; --help evaluation explains them.
"""

SAMPLES_EXAMPLES = """\
  cudal1 samples runs/demo                                   the latest 20
  cudal1 samples runs/demo --reason wrong_output --problem softmax
  cudal1 samples runs/demo --best --limit 3 --prompt
  cudal1 samples runs/demo --assessed --worst --list         held-out problems too
  cudal1 samples runs/demo --stage contrastive --step 30-32 --json > samples.jsonl
"""

ASSESS_EXAMPLES = """\
  cudal1 assess runs/demo                                    the last checkpoint, on all problems
  cudal1 assess runs/kb --split held_out --samples 8 --policy base --policy sft-final --policy latest
  cudal1 assess runs/kb --split train --with-exemplars       without and with exemplars in the prompts
Rows go to assessments_asked.jsonl in the run's folder; what is there already is not sampled again. After a kill the
same command continues.
"""
