#!/bin/bash
# Writes what libvirt and QEMU can do on this node, by software emulation, for the labels that virt-handler gives the node.
set -e -o pipefail
folder=/var/lib/kubevirt-node-labeller
target=(--machine q35 --arch x86_64 --virttype qemu)
virtqemud --daemon
virsh domcapabilities "${target[@]}" > "$folder/virsh_domcapabilities.xml"
virsh hypervisor-cpu-baseline --features "$folder/virsh_domcapabilities.xml" "${target[@]}" > "$folder/supported_features.xml"
virsh capabilities > "$folder/capabilities.xml"
