package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodeService brings volumes into pods: a loop device over the file, and on it an ext4 or nothing.
type nodeService struct {
	csi.UnimplementedNodeServer
	store *store
	// The names of the driver and of the node.
	driver, name string
	kind         kind
}

func (n *nodeService) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	info := &csi.NodeGetInfoResponse{NodeId: n.name}
	if n.kind.local {
		info.AccessibleTopology = &csi.Topology{Segments: map[string]string{topologyKey(n.driver): n.name}}
	}
	return info, nil
}

func (n *nodeService) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	kinds := []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	if !n.kind.plain {
		kinds = append(kinds, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range kinds {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return answer, nil
}

func (n *nodeService) NodeStageVolume(ctx context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id := request.GetVolumeId()
	if _, err := n.existing(id); err != nil {
		return nil, err
	}
	if home := request.GetVolumeContext()[homeKey]; n.kind.local && home != n.name {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is on %s, not on %s", id, home, n.name)
	}
	n.store.lock.Lock()
	defer n.store.lock.Unlock()
	if err := n.isAttachedHere(id); err != nil {
		return nil, err
	}
	if request.GetVolumeCapability().GetBlock() != nil {
		_, err := n.store.attach(ctx, n.name, id)
		return &csi.NodeStageVolumeResponse{}, err
	}
	if err := n.store.usedExclusively(ctx, n.name, id); err != nil {
		return nil, err
	}
	device, err := n.store.attach(ctx, n.name, id)
	if err != nil {
		return nil, err
	}
	target := request.GetStagingTargetPath()
	if err := os.MkdirAll(target, 0o750); err != nil {
		return nil, err
	}
	if mounted(target) {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if err := prepare(ctx, device); err != nil {
		return nil, err
	}
	_, err = run(ctx, "mount", "-t", "ext4", device, target)
	return &csi.NodeStageVolumeResponse{}, err
}

// prepare makes an ext4 on a device that is empty, or lets the one that is there fill it: a copy in a larger volume, or
// a volume that grew.
func prepare(ctx context.Context, device string) error {
	if _, err := run(ctx, "blkid", device); err != nil {
		// Reserved blocks would only make a volume smaller than its pod is told.
		_, err := run(ctx, "mkfs.ext4", "-q", "-m", "0", device)
		return err
	}
	// Growing wants a checked file system. 1 says that something was mended, as after a crash.
	var ended *exec.ExitError
	if _, err := run(ctx, "e2fsck", "-f", "-p", device); err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		return err
	}
	_, err := run(ctx, "resize2fs", device)
	return err
}

func (n *nodeService) NodeUnstageVolume(ctx context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := checkName(request.GetVolumeId()); err != nil {
		return nil, err
	}
	n.store.lock.Lock()
	defer n.store.lock.Unlock()
	if mounted(request.GetStagingTargetPath()) {
		if _, err := run(ctx, "umount", request.GetStagingTargetPath()); err != nil {
			return nil, err
		}
	}
	if _, exists, err := size(n.store.volume(request.GetVolumeId())); err != nil || !exists {
		return &csi.NodeUnstageVolumeResponse{}, err
	}
	return &csi.NodeUnstageVolumeResponse{}, n.store.detach(ctx, n.name, request.GetVolumeId())
}

func (n *nodeService) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if _, err := n.existing(request.GetVolumeId()); err != nil {
		return nil, err
	}
	n.store.lock.Lock()
	defer n.store.lock.Unlock()
	if err := n.isAttachedHere(request.GetVolumeId()); err != nil {
		return nil, err
	}
	source, target := request.GetStagingTargetPath(), request.GetTargetPath()
	if request.GetVolumeCapability().GetBlock() != nil {
		var err error
		if source, err = n.store.deviceOf(ctx, n.name, request.GetVolumeId()); err != nil {
			return nil, err
		}
		if source == "" {
			return nil, status.Errorf(codes.FailedPrecondition, "%s is not staged", request.GetVolumeId())
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
			return nil, err
		}
		file, err := os.OpenFile(target, os.O_CREATE, 0o660)
		if err != nil {
			return nil, err
		}
		file.Close()
	} else if err := os.MkdirAll(target, 0o750); err != nil {
		return nil, err
	}
	if mounted(target) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if _, err := run(ctx, "mount", "--bind", source, target); err != nil {
		return nil, err
	}
	var err error
	if request.GetReadonly() && request.GetVolumeCapability().GetBlock() == nil {
		_, err = run(ctx, "mount", "-o", "remount,bind,ro", target)
	}
	return &csi.NodePublishVolumeResponse{}, err
}

func (n *nodeService) NodeUnpublishVolume(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	n.store.lock.Lock()
	defer n.store.lock.Unlock()
	target := request.GetTargetPath()
	if mounted(target) {
		if _, err := run(ctx, "umount", target); err != nil {
			return nil, err
		}
	}
	// Not all of what is below it: if the unmount did not happen, that is the volume.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (n *nodeService) NodeExpandVolume(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	path, err := n.existing(request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	n.store.lock.Lock()
	defer n.store.lock.Unlock()
	device, err := n.store.attach(ctx, n.name, request.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, err := run(ctx, "losetup", "--set-capacity", device); err != nil {
		return nil, err
	}
	if request.GetVolumeCapability().GetBlock() == nil {
		if _, err := run(ctx, "resize2fs", device); err != nil {
			// Kubelet then leaves it to the next pod, for which NodeStageVolume does it before it mounts.
			return nil, status.Errorf(codes.FailedPrecondition,
				"a mounted ext4 grows only with the capability SYS_RESOURCE; this one grows when its next pod starts: %v", err)
		}
	}
	bytes, _, err := size(path)
	return &csi.NodeExpandVolumeResponse{CapacityBytes: bytes}, err
}

func (n *nodeService) existing(id string) (string, error) {
	if err := checkName(id); err != nil {
		return "", err
	}
	path := n.store.volume(id)
	_, exists, err := size(path)
	if err == nil && !exists {
		err = status.Errorf(codes.NotFound, "there is no %s", id)
	}
	return path, err
}

// mounted says whether something is mounted there; paths of kubelet have no blanks.
func mounted(path string) bool {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return false
	}
	for _, line := range strings.Split(string(text), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[1] == path {
			return true
		}
	}
	return false
}
