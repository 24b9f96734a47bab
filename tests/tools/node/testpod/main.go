// Command testpod is all that an image of the rig's tests holds: the few things that a test asks of a pod, and the
// pause that keeps a pod's namespaces. It uses the standard library alone.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

var commands = map[string]func(words []string) error{
	"pause":      pause,
	"identity":   identity,
	"fill":       fill,
	"digest":     digest,
	"get":        get,
	"serve":      serve,
	"webhook":    webhook,
	"aggregated": aggregated,
}

func main() {
	words := os.Args[1:]
	if len(words) == 0 {
		words = []string{"pause"}
	}
	// Several commands follow each other with "then" between them.
	for len(words) > 0 {
		var now []string
		now, words = cut(words)
		command, known := commands[now[0]]
		if !known {
			fail(fmt.Errorf("unknown command %q", now[0]))
		}
		if err := command(now[1:]); err != nil {
			fail(fmt.Errorf("%s: %w", strings.Join(now, " "), err))
		}
	}
}

func cut(words []string) (now, later []string) {
	for at, word := range words {
		if word == "then" && at > 0 && at+1 < len(words) {
			return words[:at], words[at+1:]
		}
	}
	return words, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	// Kubelet shows it as the container's message.
	_ = os.WriteFile("/dev/termination-log", []byte(err.Error()), 0o644)
	os.Exit(1)
}

// pause waits to be told to stop, and reaps what a shared process namespace leaves to it.
func pause([]string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return nil
		}
		for {
			if child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); child <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}
