#!/bin/busybox sh
# The first process of the guest: prints what it finds on the serial console, then waits to be switched off.
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
for block in /sys/block/vd* /sys/block/sd* /sys/block/sr*; do
	[ -e "$block/size" ] || continue
	name=${block##*/}
	sectors=$($b cat "$block/size")
	last=$((sectors - 2048))
	echo "guest: disk $name $((sectors * 512)) $(sum "$name" 0) $(sum "$name" $last)"
done
echo "guest: done"
while :; do
	$b sleep 3600
done
