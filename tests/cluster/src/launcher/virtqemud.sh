#!/bin/bash
# Debian builds libvirt with one daemon for all drivers. KubeVirt starts the one of QEMU, and asks for its socket.
run=${XDG_RUNTIME_DIR:-/run}/libvirt
mkdir -p "$run"
ln -sfn libvirt-sock "$run/virtqemud-sock"
exec -a virtqemud /usr/sbin/libvirtd "$@"
