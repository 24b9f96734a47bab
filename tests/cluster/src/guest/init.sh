#!/bin/busybox sh
# The first process of the guest: prints what it finds on the serial console until it is switched off.
# A line for each disk: its name, its size in bytes, and the SHA-256 of its first and last MiB.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in $($b cat /modules/order); do
	$b insmod "/modules/$module"
done
tries=0
while [ $tries -lt 100 ] && ! [ -e /sys/block/vda ] && ! [ -e /sys/block/sda ] && ! [ -e /sys/block/sr0 ]; do
	$b sleep 0.1
	tries=$((tries + 1))
done
sum() {
	$b dd if="/dev/$1" bs=512 skip="$2" count=2048 2>/dev/null | $b sha256sum | $b cut -d ' ' -f 1
}
blocks() {
	for block in /sys/block/vd* /sys/block/sd* /sys/block/sr*; do
		[ -e "$block/size" ] && echo "${block##*/} $($b cat "$block/size")"
	done
}
sector() {
	$b dd if="/dev/$1" bs=512 skip="$2" count=1 2>/dev/null | $b tr -d '\000' | $b head -n 1
}
# The second sector of a disk that begins with this line holds how often a guest was booted with it.
blocks | while read -r name sectors; do
	if [ "$(sector "$name" 0)" = "guest: count boots" ]; then
		printf '%-511d\n' $(($(sector "$name" 1) + 1)) | $b dd of="/dev/$name" bs=512 seek=1 conv=notrunc,fsync 2>/dev/null
	fi
done
# Once, and again when a disk has come, gone or grown.
reported=
while :; do
	found=$(blocks)
	if [ "$found" != "$reported" ]; then
		echo "$found" | while read -r name sectors; do
			echo "guest: disk $name $((sectors * 512)) $(sum "$name" 0) $(sum "$name" $((sectors - 2048)))"
		done
		echo "guest: done"
		reported=$found
	fi
	$b sleep 1
done
