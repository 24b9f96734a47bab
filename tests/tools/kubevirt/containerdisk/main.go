// Program container-disk takes the place of KubeVirt's program of this name, which is written in C. It keeps a pod running that
// attaches volumes to a machine. virt-handler connects to its socket to learn which process has these volumes mounted.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	path := flag.String("copy-path", "", "the path of the socket, without the ending .sock")
	flag.Parse()
	if err := serve(*path + ".sock"); err != nil {
		fmt.Fprintln(os.Stderr, "cannot serve", *path+".sock:", err)
		os.Exit(1)
	}
}

// serve accepts connections until the pod ends.
func serve(path string) error {
	// A container that was restarted finds the socket of the one before.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			// The client closes it when it has read the credentials of this process.
			go func() {
				_, _ = connection.Read(make([]byte, 1))
				_ = connection.Close()
			}()
		}
	}()
	<-ended
	return listener.Close()
}
