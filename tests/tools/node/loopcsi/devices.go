package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Each node reaches a volume by a loop device of its own, as machines that share storage do. Loop devices belong to the kernel, so
// a record in the driver's folder names the node: devices/NODE/VOLUME holds the path of the device.

func (s *store) record(node, id string) string {
	return filepath.Join(s.folder, "devices", node, id)
}

// deviceOf is the loop device of a node over a volume, or nothing. A record of a device that was detached since is ignored.
func (s *store) deviceOf(ctx context.Context, node, id string) (string, error) {
	record, err := os.ReadFile(s.record(node, id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	devices, err := loopsOver(ctx, s.volume(id))
	if err != nil || !slices.Contains(devices, string(record)) {
		return "", err
	}
	return string(record), nil
}

// attach gives a node a loop device over a volume, the one that it has or a new one.
func (s *store) attach(ctx context.Context, node, id string) (string, error) {
	device, err := s.deviceOf(ctx, node, id)
	if err != nil {
		return "", err
	}
	if device != "" {
		fenced, err := isFenced(device)
		if err != nil || !fenced {
			return device, err
		}
		// The volume has been attached to this node again since.
		if err := s.detach(ctx, node, id); err != nil {
			return "", err
		}
	}
	text, err := run(ctx, "losetup", "--find", "--show", s.volume(id))
	if err != nil {
		return "", err
	}
	device = strings.TrimSpace(text)
	if err := os.MkdirAll(filepath.Dir(s.record(node, id)), 0o700); err != nil {
		return "", err
	}
	return device, os.WriteFile(s.record(node, id), []byte(device), 0o600)
}

// detach removes the loop device of a node over a volume.
func (s *store) detach(ctx context.Context, node, id string) error {
	device, err := s.deviceOf(ctx, node, id)
	if err != nil {
		return err
	}
	if device != "" {
		if _, err := run(ctx, "losetup", "--detach", device); err != nil {
			return err
		}
	}
	return os.RemoveAll(s.record(node, id))
}

// usedExclusively returns an error if the file system of a volume is mounted by another node: a second mount would destroy it.
func (s *store) usedExclusively(ctx context.Context, node, id string) error {
	own, err := s.deviceOf(ctx, node, id)
	if err != nil {
		return err
	}
	devices, err := loopsOver(ctx, s.volume(id))
	if err != nil {
		return err
	}
	for _, device := range devices {
		if device == own || !isMounted(device) {
			continue
		}
		if fenced, err := isFenced(device); err != nil || !fenced {
			return status.Errorf(codes.FailedPrecondition, "the file system of %s is mounted by another node", id)
		}
	}
	return nil
}

// isMounted is also true for a mount in another namespace: a mounted device cannot be opened exclusively.
func isMounted(device string) bool {
	file, err := syscall.Open(device, syscall.O_RDONLY|syscall.O_EXCL|syscall.O_CLOEXEC, 0)
	if err == nil {
		syscall.Close(file)
	}
	return errors.Is(err, syscall.EBUSY)
}

// fence makes every request of a node to a volume fail from now on, also those of a mounted file system: its loop device begins
// where the file ends. What the node has written to the device before is on the volume then.
func (s *store) fence(ctx context.Context, node, id string) error {
	path, err := s.deviceOf(ctx, node, id)
	if err != nil || path == "" {
		return err
	}
	end, _, err := size(s.volume(id))
	if err != nil {
		return err
	}
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	settings, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		return err
	}
	settings.Offset = uint64(end)
	return unix.IoctlLoopSetStatus64(int(device.Fd()), settings)
}

// isFenced is true for a loop device that begins elsewhere than its file: nothing else makes one.
func isFenced(path string) (bool, error) {
	device, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer device.Close()
	settings, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		return false, err
	}
	return settings.Offset != 0, nil
}
