#!/bin/sh
# Makes the seeds in corpus/compressed, each a small stream of another kind. Needs gzip, pigz, xz, zstd, pzstd, bzip2,
# lz4 and python3.
set -eu
cd "$(dirname "$0")/corpus/compressed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 3 KiB: text, zeroes, noise.
{
    yes 'bytes flow once' | head -c 1024
    head -c 1024 /dev/zero
    awk 'BEGIN { srand(1); for (i = 0; i < 1024; i++) printf "%c", 1 + int(rand() * 120) }'
} > "$work/disk"
disk="$work/disk"

gzip -nc "$disk" > gzip
gzip -n1c /dev/null > gzip-empty
{ gzip -nc "$disk"; printf x | gzip -c; head -c 20 /dev/zero; } > gzip-members-padded
head -c 1500 "$disk" | pigz -n0c > gzip-stored
head -c 40 "$disk" | pigz -n11c > gzip-fixed
# Many blocks, and more content than matches reach back.
python3 - > gzip-blocks <<'END'
import random, sys, zlib
random.seed(1)
content = b"".join(random.choice([b"one ", b"two ", b"three "]) * random.randint(1, 9) + random.randbytes(2) for _ in range(3000))
encoder = zlib.compressobj(6, zlib.DEFLATED, 31, 1)
sys.stdout.buffer.write(encoder.compress(content) + encoder.flush())
END
# One byte in BGZF, and the empty member at its end.
printf '\037\213\010\004\0\0\0\0\0\377\006\0BC\002\0\034\0\113\004\0\103\276\267\350\001\0\0\0' > bgzf
printf '\037\213\010\004\0\0\0\0\0\377\006\0BC\002\0\033\0\003\0\0\0\0\0\0\0\0\0' >> bgzf

xz -0c -T1 "$disk" > xz
xz -0c -T2 --block-size=1KiB --check=sha256 "$disk" > xz-blocks
{ xz -0c --check=crc32 "$disk"; head -c 8 /dev/zero; printf x | xz -0c --check=none; } > xz-streams-padded
xz -c --x86 --delta=dist=2 --lzma2=dict=4KiB,lc=0,pb=0 "$disk" > xz-filters

zstd -qc "$disk" > zstd
zstd -qc --no-check --ultra -22 < "$disk" > zstd-unsized
{ head -c 900 "$disk" | zstd -qc --no-check --stream-size=900; zstd -qc "$disk"; } > zstd-frames
pzstd -qc -p 2 "$disk" > zstd-skippable

bzip2 -c "$disk" > bzip2
{ bzip2 -1c "$disk"; printf x | bzip2 -c; } > bzip2-streams
bzip2 -c < /dev/null > bzip2-empty

lz4 -qc "$disk" > lz4
{ lz4 -qc -BD -BX -B4 --content-size "$disk"; printf x | lz4 -qc --no-frame-crc; } > lz4-frames
{ printf '\120\052\115\030\003\0\0\0abc'; lz4 -qc "$disk"; } > lz4-skippable
