package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A fenced volume is attached to one node at a time, as a volume of a storage array with one initiator: the file published/VOLUME
// names the node. The controller attaches and detaches, the node service refuses what is not attached to its node.

func (s *store) published(id string) string { return filepath.Join(s.folder, "published", id) }

// holder is the node that a volume is attached to, or nothing.
func (s *store) holder(id string) (string, error) {
	node, err := os.ReadFile(s.published(id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(node), err
}

func (c *controller) ControllerPublishVolume(_ context.Context, request *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	id, node := request.GetVolumeId(), request.GetNodeId()
	if err := checkName(id); err != nil {
		return nil, err
	}
	c.store.lock.Lock()
	defer c.store.lock.Unlock()
	if _, exists, err := size(c.store.volume(id)); err != nil || !exists {
		return nil, status.Errorf(codes.NotFound, "there is no %s to attach", id)
	}
	switch holder, err := c.store.holder(id); {
	case err != nil:
		return nil, err
	case holder != "" && holder != node:
		return nil, status.Errorf(codes.FailedPrecondition, "%s is attached to %s: detach it first", id, holder)
	}
	return &csi.ControllerPublishVolumeResponse{}, os.WriteFile(c.store.published(id), []byte(node), 0o600)
}

// ControllerUnpublishVolume detaches a volume, also from a node that still uses it: its requests fail from then on.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, request *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	id, node := request.GetVolumeId(), request.GetNodeId()
	if err := checkName(id); err != nil {
		return nil, err
	}
	c.store.lock.Lock()
	defer c.store.lock.Unlock()
	holder, err := c.store.holder(id)
	if err != nil || holder != node {
		return &csi.ControllerUnpublishVolumeResponse{}, err
	}
	if err := c.store.fence(ctx, node, id); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, os.Remove(c.store.published(id))
}

// isAttachedHere checks what a node may do with a fenced volume.
func (n *nodeService) isAttachedHere(id string) error {
	if !n.kind.fenced {
		return nil
	}
	holder, err := n.store.holder(id)
	if err == nil && holder != n.name {
		err = status.Errorf(codes.FailedPrecondition, "%s is attached to %q, not to %s", id, holder, n.name)
	}
	return err
}
