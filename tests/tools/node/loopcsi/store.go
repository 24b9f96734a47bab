package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// store keeps volumes and snapshots: a file each, named by the object that wanted it, so that a repeated request finds
// what an earlier one made. A copy is made aside and renamed into its place.
type store struct {
	folder string
	// One change at a time, of the drivers of all nodes: they serve tests, not throughput.
	lock folderLock
}

// folderLock is held by one driver of all that share a folder. The kernel releases the lock of one that was killed.
type folderLock struct {
	path  string
	own   sync.Mutex
	taken *os.File
}

func (l *folderLock) Lock() {
	l.own.Lock()
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR, 0o600)
	for err == nil {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err == nil {
			break
		}
		if errors.Is(err, syscall.EINTR) {
			err = nil
		}
	}
	if err != nil {
		log.Fatalf("cannot lock %s: %v", l.path, err)
	}
	l.taken = file
}

func (l *folderLock) Unlock() {
	l.taken.Close()
	l.own.Unlock()
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

// settle brings what running pods wrote into the backing file, and keeps its file system still until it is called back. A file
// system that is mounted by another node is synchronized, and not frozen.
func settle(ctx context.Context, backing string) (func(), error) {
	devices, err := loopsOver(ctx, backing)
	if err != nil {
		return nil, err
	}
	thaw := func() {}
	for _, device := range devices {
		mount, err := mountOf(device)
		if err != nil {
			return nil, err
		}
		if mount == "" {
			if _, err := run(ctx, "blockdev", "--flushbufs", device); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := run(ctx, "fsfreeze", "--freeze", mount); err != nil {
			return nil, err
		}
		thaw = func() {
			// Whatever became of the request: a file system left frozen would hang its pod.
			_, _ = run(context.WithoutCancel(ctx), "fsfreeze", "--unfreeze", mount)
		}
	}
	return thaw, nil
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

// loopsOver lists the loop devices over a file.
func loopsOver(ctx context.Context, backing string) ([]string, error) {
	text, err := run(ctx, "losetup", "--noheadings", "--output", "NAME", "--associated", backing)
	return strings.Fields(text), err
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
