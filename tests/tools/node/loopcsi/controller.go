package main

import (
	"context"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// A volume that names no size.
	usualSize = 1 << 30
	// Sectors of loop devices, and what ext4 can be made in.
	granule      = 4096
	smallestSize = 1 << 20
)

// controller makes, copies, grows and removes the files.
type controller struct {
	csi.UnimplementedControllerServer
	store *store
	name  string
	kind  kind
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	kinds := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
	if !c.kind.plain {
		kinds = append(kinds,
			csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
			csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
			csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		)
	}
	if c.kind.fenced {
		kinds = append(kinds, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range kinds {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}},
		})
	}
	return answer, nil
}

// wanted is the size to make: what is required, in whole granules, within the limit.
func wanted(limits *csi.CapacityRange, smallest int64) (int64, error) {
	size := max(limits.GetRequiredBytes(), smallest)
	if size == 0 {
		size = usualSize
	}
	size = max(size, smallestSize)
	size = (size + granule - 1) / granule * granule
	if limit := limits.GetLimitBytes(); limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "%d bytes are needed, %d is the limit", size, limit)
	}
	return size, nil
}

func (c *controller) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := checkName(request.GetName()); err != nil {
		return nil, err
	}
	if request.GetVolumeContentSource() != nil {
		if err := willing(ctx, request.GetParameters()["copies"]); err != nil {
			return nil, err
		}
	}
	c.store.lock.Lock()
	defer c.store.lock.Unlock()
	source, sourceSize, err := c.source(request.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	bytes, err := wanted(request.GetCapacityRange(), sourceSize)
	if err != nil {
		return nil, err
	}
	path := c.store.volume(request.GetName())
	have, exists, err := size(path)
	switch {
	case err != nil:
		return nil, err
	case exists && have < bytes:
		return nil, status.Errorf(codes.AlreadyExists, "%s exists with %d bytes", request.GetName(), have)
	case exists:
		bytes = have
	case source == "":
		err = c.store.empty(path, bytes)
	default:
		err = c.store.copyOf(ctx, source, path, bytes)
	}
	if err != nil {
		return nil, err
	}
	volume := &csi.Volume{
		VolumeId:      request.GetName(),
		CapacityBytes: bytes,
		ContentSource: request.GetVolumeContentSource(),
	}
	if c.kind.local {
		preferred := request.GetAccessibilityRequirements().GetPreferred()
		if len(preferred) == 0 {
			return nil, status.Error(codes.InvalidArgument, "a local volume is made on a node: none is preferred")
		}
		volume.AccessibleTopology = preferred[:1]
		volume.VolumeContext = map[string]string{homeKey: preferred[0].GetSegments()[topologyKey(c.name)]}
	}
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

// homeKey is the entry of a local volume's context that names its node.
const homeKey = "node"

// topologyKey is the label of nodes that the volumes of a local driver are bound to.
func topologyKey(driver string) string { return driver + "/node" }

// willing does what the storage class wants to happen to whoever asks for a copy: nothing, a refusal, or no answer.
func willing(ctx context.Context, copies string) error {
	switch copies {
	case "":
		return nil
	case "refused":
		return status.Error(codes.InvalidArgument, "volumes of this class are copies of nothing")
	case "never":
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	default:
		return status.Errorf(codes.InvalidArgument, "copies are \"refused\" or \"never\" made, not %q", copies)
	}
}

// source is the file that a new volume begins as, and its size; nothing for an empty volume.
func (c *controller) source(from *csi.VolumeContentSource) (string, int64, error) {
	var path, id string
	switch {
	case from == nil:
		return "", 0, nil
	case c.kind.plain:
		return "", 0, status.Error(codes.InvalidArgument, "this driver copies nothing")
	case from.GetSnapshot() != nil:
		id = from.GetSnapshot().GetSnapshotId()
		path = c.store.snapshot(id)
	default:
		id = from.GetVolume().GetVolumeId()
		path = c.store.volume(id)
	}
	if err := checkName(id); err != nil {
		return "", 0, err
	}
	bytes, exists, err := size(path)
	if err == nil && !exists {
		err = status.Errorf(codes.NotFound, "there is no %s to copy", id)
	}
	return path, bytes, err
}

func (c *controller) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := checkName(request.GetVolumeId()); err != nil {
		return nil, err
	}
	c.store.lock.Lock()
	defer c.store.lock.Unlock()
	if err := os.RemoveAll(c.store.volume(request.GetVolumeId())); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: request.GetVolumeCapabilities()},
	}, nil
}

func (c *controller) ControllerExpandVolume(_ context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := checkName(request.GetVolumeId()); err != nil {
		return nil, err
	}
	c.store.lock.Lock()
	defer c.store.lock.Unlock()
	path := c.store.volume(request.GetVolumeId())
	have, exists, err := size(path)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, status.Errorf(codes.NotFound, "there is no %s to grow", request.GetVolumeId())
	}
	bytes, err := wanted(request.GetCapacityRange(), have)
	if err == nil && bytes > have {
		err = os.Truncate(path, bytes)
	}
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes, NodeExpansionRequired: true}, nil
}

func (c *controller) CreateSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	for _, name := range []string{request.GetName(), request.GetSourceVolumeId()} {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	c.store.lock.Lock()
	defer c.store.lock.Unlock()
	path, source := c.store.snapshot(request.GetName()), c.store.volume(request.GetSourceVolumeId())
	if _, exists, err := size(path); err != nil {
		return nil, err
	} else if !exists {
		if _, there, err := size(source); err != nil || !there {
			return nil, status.Errorf(codes.NotFound, "there is no %s to keep", request.GetSourceVolumeId())
		}
		if err := c.store.copyOf(ctx, source, path, 0); err != nil {
			return nil, err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId:     request.GetName(),
		SourceVolumeId: request.GetSourceVolumeId(),
		SizeBytes:      info.Size(),
		CreationTime:   timestamppb.New(info.ModTime()),
		ReadyToUse:     true,
	}}, nil
}

func (c *controller) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := checkName(request.GetSnapshotId()); err != nil {
		return nil, err
	}
	c.store.lock.Lock()
	defer c.store.lock.Unlock()
	if err := os.RemoveAll(c.store.snapshot(request.GetSnapshotId())); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}
