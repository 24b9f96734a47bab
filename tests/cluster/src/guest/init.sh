#!/bin/busybox sh
# The first process of the guest: prints what it finds on the serial console until it is switched off.
# First its processors and its memory in KiB. Then a line for each disk: its name, its size in bytes, and the SHA-256 of its first and
# last MiB. Of a disk with settings for cloud-init also each line that begins with "# guest: ".
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
# The label of an ISO 9660 file system.
label() {
	$b dd if="/dev/$1" bs=1 skip=32808 count=6 2>/dev/null
}
# The second sector of a disk that begins with this line holds how often a guest was booted with it.
blocks | while read -r name sectors; do
	if [ "$(sector "$name" 0)" = "guest: count boots" ]; then
		printf '%-511d\n' $(($(sector "$name" 1) + 1)) | $b dd of="/dev/$name" bs=512 seek=1 conv=notrunc,fsync 2>/dev/null
	fi
done
# A text that stays in the memory of this process.
for block in /sys/block/vd*; do
	first=$(sector "${block##*/}" 0)
	case $first in "guest: remember "*) remembered=$first ;; esac
done
echo "guest: machine $($b nproc) $($b awk '/MemTotal/ { print $2 }' /proc/meminfo)"
# Once, and again when a disk has come, gone or grown.
reported=
while :; do
	found=$(blocks)
	if [ "$found" != "$reported" ]; then
		echo 1 >/proc/sys/vm/drop_caches # what the disks hold now
		echo "$found" | while read -r name sectors; do
			last=$((sectors > 2048 ? sectors - 2048 : 0))
			echo "guest: disk $name $((sectors * 512)) $(sum "$name" 0) $(sum "$name" $last)"
			if [ "$(label "$name")" = cidata ]; then
				$b grep -a '^# guest: ' "/dev/$name" | $b sed "s/^# guest: /guest: cloud-init $name /"
			fi
		done
		echo "guest: done"
		reported=$found
	fi
	$b sleep 1
done
