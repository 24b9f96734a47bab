package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// identity prints who the process is and whether it can write to the root of its image.
func identity([]string) error {
	root := "writable"
	if err := os.WriteFile("/probe", nil, 0o600); err != nil {
		root = "read-only"
		if !strings.Contains(err.Error(), "read-only file system") {
			root = err.Error()
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	capabilities := "?"
	for _, line := range strings.Split(string(status), "\n") {
		if value, found := strings.CutPrefix(line, "CapEff:"); found {
			capabilities = strings.TrimSpace(value)
		}
	}
	fmt.Printf("uid=%d gid=%d root=%s capabilities=%s\n", os.Getuid(), os.Getgid(), root, capabilities)
	return nil
}

// pattern is endless and different at every place: a seed's digests, chained.
type pattern struct {
	state [sha256.Size]byte
	used  int
}

func newPattern(seed string) *pattern {
	return &pattern{state: sha256.Sum256([]byte(seed))}
}

func (p *pattern) Read(into []byte) (int, error) {
	done := 0
	for done < len(into) {
		if p.used == len(p.state) {
			p.state, p.used = sha256.Sum256(p.state[:]), 0
		}
		copied := copy(into[done:], p.state[p.used:])
		p.used += copied
		done += copied
	}
	return done, nil
}

// fill PATH BYTES SEED writes a pattern to a file or device and prints its digest. BYTES of "all" writes until the
// volume is full, which is then no failure.
func fill(words []string) error {
	if len(words) != 3 {
		return errors.New("needs PATH BYTES SEED")
	}
	file, err := os.OpenFile(words[0], os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	var source io.Reader = newPattern(words[2])
	if words[1] != "all" {
		bytes, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return err
		}
		source = io.LimitReader(source, bytes)
	}
	sum := sha256.New()
	written, err := io.CopyBuffer(onlyWriter{file}, io.TeeReader(source, sum), make([]byte, 1<<20))
	if words[1] == "all" && err != nil && strings.Contains(err.Error(), "no space left on device") {
		fmt.Printf("full after %d\n", written)
		return nil
	}
	if err == nil {
		err = file.Sync()
	}
	fmt.Printf("%x\n", sum.Sum(nil))
	return err
}

// onlyWriter hides what would make io.CopyBuffer leave our buffer aside.
type onlyWriter struct{ io.Writer }

// digest PATH BYTES prints the digest of the first bytes of a file or device, and its whole size.
func digest(words []string) error {
	if len(words) != 2 {
		return errors.New("needs PATH BYTES")
	}
	bytes, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return err
	}
	file, err := os.Open(words[0])
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.CopyN(sum, file, bytes); err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	fmt.Printf("%x of %d\n", sum.Sum(nil), size)
	return err
}
