#!/bin/bash
# train.sh first  DATA OUT SECONDS             VAE, then transformer + text encoder from scratch
# train.sh second DATA OUT SECONDS PREVIOUS    decoder alone for a while, transformer + text encoder to the end
# The third run needs no script: README.md.
#
# DATA holds pictures.pkl, names.json (build_data.py) and tokenizer.json (build_tokenizer.py). The two programs share one GPU:
# the second compiles while the first trains. COMPILE= (empty) and EXTRA="--limit 24" make a small run on a CPU.
set -e
cd "$(dirname "$0")"
stage=$1 data=$2 out=$3 end=$(( $(date +%s) + $4 )) previous=$5
python=${PYTHON:-python3} compile=${COMPILE---compile}
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
mkdir -p "$out"
if [ "$stage" = first ]; then
    { $python train_vae.py $compile $EXTRA --data "$data" --deadline $(( end - $4 * 52 / 100 )) --mse 2 --out "$out/vae.pt" > "$out/vae.log" 2>&1 || touch "$out/vae.pt.failed"; } &
    $python train_model.py $compile $EXTRA $MODEL --data "$data" --vae "$out/vae.pt" --deadline $(( end - 5 )) --out "$out"
else
    $python train_vae.py $compile $EXTRA --data "$data" --decoder-only --init "$previous/vae.pt" --lr 6e-4 --noise 0.08 --mse 3 \
        --deadline $(( end - $4 * 50 / 100 )) --out "$out/vae.pt" > "$out/vae.log" 2>&1 &
    $python train_model.py $compile $EXTRA $MODEL --data "$data" --vae "$previous/vae.pt" --init "$previous"/model_[ab].pt \
        --deadline $(( end - 5 )) --out "$out" --seed 2 --decay-from 0.4 --late-from 0.68 --guidance 1.5 \
        --sigmas 1.0 0.96875 0.921875 0.859375 0.765625 0.625 0.4375 0.21875
fi
wait
