#!/bin/sh
# Makes the seeds in corpus/qcow2, each a small image of another kind. Needs qemu-img and qemu-io 7.2 or newer.
# The results differ from run to run only in unused bytes, so that the kept ones need not be made again.
set -eu
cd "$(dirname "$0")/corpus/qcow2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 24 KiB: text, zeroes, one byte repeated, noise.
{
    yes 'bytes flow once' | head -c 6144
    head -c 6144 /dev/zero
    head -c 6144 /dev/zero | tr '\0' '\345'
    awk 'BEGIN { srand(1); for (i = 0; i < 6144; i++) printf "%c", 1 + int(rand() * 120) }'
} > "$work/disk"

make() { # name, options, flags of convert
    name=$1 options=$2
    shift 2
    qemu-img convert -q -O qcow2 -o "$options" "$@" "$work/disk" "$name"
}
io() { # name, commands
    name=$1
    shift
    for command in "$@"; do
        qemu-io -f qcow2 -d unmap -c "$command" "$name" > "$work/log"
    done
}

make plain cluster_size=512
make version-2 cluster_size=1024,compat=0.10
make zlib cluster_size=1024 -c
make zlib-512 cluster_size=512 -c
make zstd cluster_size=1024,compression_type=zstd -c
make preallocated cluster_size=512,preallocation=full
make narrow-refcounts cluster_size=512,refcount_bits=1,lazy_refcounts=on

make zero-clusters cluster_size=512
io zero-clusters 'write -z 2k 3k' 'discard 20k 2k' 'write -P 9 1k 700'

make snapshot cluster_size=512
qemu-img snapshot -c before snapshot
io snapshot 'write -P 7 4k 9k' 'discard 20k 2k'

make grown-zlib cluster_size=512 -c
qemu-img resize -q -f qcow2 grown-zlib 3M
io grown-zlib 'write -P 3 2M 1k'

# A disk of tiny compressed clusters in any order: several to a sector, of several tables.
qemu-img create -q -f qcow2 -o cluster_size=512 shuffled 128k
for at in 60 3 100 61 4 65 101 5 33 66 102 34 70 6 62; do
    io shuffled "write -c -P $at ${at}k 512"
done
qemu-img resize -q -f qcow2 shuffled 4M

qemu-img create -q -f qcow2 -o cluster_size=16k,extended_l2=on subclusters 48k
io subclusters 'write -P 5 0 1k' 'write -P 6 20k 600' 'write -z 20k 512'
