package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// store keeps volumes and snapshots: a file each, named by the object that wanted it, so that a repeated request finds
// what an earlier one made. A copy is made aside and renamed into its place.
type store struct {
	folder string
	// One change at a time: the driver serves tests, not throughput.
	lock sync.Mutex
}

func (s *store) volume(id string) string   { return filepath.Join(s.folder, "volumes", id) }
func (s *store) snapshot(id string) string { return filepath.Join(s.folder, "snapshots", id) }

// checkName refuses what would not be a plain file name.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return status.Errorf(codes.InvalidArgument, "%q cannot name a volume or snapshot", name)
	}
	return nil
}

// size is that of a file; false if there is none.
func size(path string) (int64, bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return info.Size(), true, nil
}

// copyOf makes target a copy of source, holes kept, at least as large as size says.
func (s *store) copyOf(ctx context.Context, source, target string, size int64) error {
	coming := filepath.Join(s.folder, "coming", filepath.Base(target))
	defer os.Remove(coming)
	thaw, err := settle(ctx, source)
	if err != nil {
		return err
	}
	_, err = run(ctx, "cp", "--reflink=auto", "--sparse=always", source, coming)
	thaw()
	if err != nil {
		return err
	}
	return s.place(coming, target, size)
}

// empty makes target a file that is one hole.
func (s *store) empty(target string, size int64) error {
	coming := filepath.Join(s.folder, "coming", filepath.Base(target))
	defer os.Remove(coming)
	if err := os.WriteFile(coming, nil, 0o600); err != nil {
		return err
	}
	return s.place(coming, target, size)
}

func (s *store) place(coming, target string, size int64) error {
	info, err := os.Stat(coming)
	if err != nil {
		return err
	}
	if info.Size() < size {
		if err := os.Truncate(coming, size); err != nil {
			return err
		}
	}
	return os.Rename(coming, target)
}

// settle brings what a running pod wrote into the backing file, and keeps its file system still until it is called back.
func settle(ctx context.Context, backing string) (func(), error) {
	device, err := loopOf(ctx, backing)
	if err != nil || device == "" {
		return func() {}, err
	}
	mount, err := mountOf(device)
	if err != nil {
		return nil, err
	}
	if mount != "" {
		if _, err := run(ctx, "fsfreeze", "--freeze", mount); err != nil {
			return nil, err
		}
		return func() {
			// Whatever became of the request: a file system left frozen would hang its pod.
			_, _ = run(context.WithoutCancel(ctx), "fsfreeze", "--unfreeze", mount)
		}, nil
	}
	_, err = run(ctx, "blockdev", "--flushbufs", device)
	return func() {}, err
}

// mountOf is where the file system of a device is mounted as a whole, or nothing. A file of it may be mounted too, as KubeVirt
// mounts the disk of a volume that it attaches to a running machine: such a mount cannot be frozen.
func mountOf(device string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		mount, fileSystem, _ := strings.Cut(line, " - ")
		where, what := strings.Fields(mount), strings.Fields(fileSystem)
		if len(where) > 4 && len(what) > 1 && where[3] == "/" && what[0] == "ext4" && what[1] == device {
			return where[4], nil
		}
	}
	return "", nil
}

// loopOf is the loop device over a file, or nothing.
func loopOf(ctx context.Context, backing string) (string, error) {
	text, err := run(ctx, "losetup", "--noheadings", "--output", "NAME", "--associated", backing)
	if err != nil {
		return "", err
	}
	device, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(device), nil
}

// attach gives a file its loop device, the one that it has or a new one.
func attach(ctx context.Context, backing string) (string, error) {
	if device, err := loopOf(ctx, backing); err != nil || device != "" {
		return device, err
	}
	text, err := run(ctx, "losetup", "--find", "--show", backing)
	return strings.TrimSpace(text), err
}

func run(ctx context.Context, program string, words ...string) (string, error) {
	var complaint strings.Builder
	command := exec.CommandContext(ctx, program, words...)
	command.Stderr = &complaint
	text, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(words, " "), err, strings.TrimSpace(complaint.String()))
	}
	return string(text), nil
}
