#!/bin/sh
# Makes the seeds in corpus/blocks, corpus/vhdx and corpus/tar, each a small image of another kind. Needs qemu-img 7.2 or
# newer, and tar. The smallest vhdx has megabytes, so that its seed is only the fields that fuzz_targets/vhdx.rs names.
# The results differ from run to run only in names and times, so that the kept ones need not be made again.
set -eu
cd "$(dirname "$0")"
mkdir -p corpus/blocks corpus/tar corpus/vhdx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 24 KiB: text, zeroes, one byte repeated, noise.
{
    yes 'bytes flow once' | head -c 6144
    head -c 6144 /dev/zero
    head -c 6144 /dev/zero | tr '\0' '\345'
    awk 'BEGIN { srand(1); for (i = 0; i < 6144; i++) printf "%c", 1 + int(rand() * 120) }'
} > "$work/disk"

make() { # name, format, options
    qemu-img convert -q -f raw -O "$2" -o "$3" "$work/disk" "$work/$1"
    # Blocks of 1 MiB and more hold one short disk: what lies behind it is cut off.
    head -c "$4" "$work/$1" > "corpus/blocks/$1"
}

make vmdk-sparse vmdk subformat=monolithicSparse 200000
make vmdk-zeroed vmdk subformat=monolithicSparse,zeroed_grain=on 200000
make vmdk-stream vmdk subformat=streamOptimized 200000
make vdi vdi static=off 28672
make vhd vpc subformat=dynamic,force_size=on 30720

qemu-img convert -q -f raw -O vhdx -o block_size=1M "$work/disk" "$work/vhdx"
part() { # place, length
    tail -c +$(($1 + 1)) "$work/vhdx" | head -c "$2"
}
{
    part 65536 80
    part 196608 80
    printf '\006\000\100\000' && head -c 28 /dev/zero # the block, which is at 8 MiB, moves to the fourth
    part 3145728 192
    part 3211264 64
    part 8388608 512
} > corpus/vhdx/image

printf 'short' > "$work/file"
ln -sf file "$work/soft"
long=$(printf 'name%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30)
cp "$work/file" "$work/$long"
for format in ustar gnu pax v7; do
    case $format in
        gnu | pax) names="file soft $long" ;;
        *) names="file soft" ;;
    esac
    # shellcheck disable=SC2086
    tar -c --format="$format" -b 2 -C "$work" $names > "corpus/tar/$format"
done
