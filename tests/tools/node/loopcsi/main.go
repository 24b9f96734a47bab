// Command loopcsi is the storage driver of the test cluster: a CSI driver whose volumes are sparse files behind loop
// devices. A filesystem volume has a real ext4 of its own size, so it can be full, expanded and snapshotted like one of a
// storage array. Everything it keeps lies in one folder, which the drivers of all nodes share: a lock on it serializes them.
package main

import (
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// kind is what sets one driver apart from another.
type kind struct {
	// Neither snapshots, nor clones, nor expansion.
	plain bool
	// A volume can be reached on the node that it was made for only.
	local bool
	// A volume is attached to one node at a time.
	fenced bool
}

func main() {
	name := flag.String("name", "", "the driver's name, as storage classes call it")
	folder := flag.String("folder", "", "where volumes and snapshots are kept")
	socket := flag.String("socket", "", "the unix socket to serve")
	register := flag.String("register", "", "a socket in kubelet's folder of plugin registrations")
	node := flag.String("node", "", "the name of this node")
	var kind kind
	flag.BoolVar(&kind.plain, "plain", false, "neither snapshots, nor clones, nor expansion")
	flag.BoolVar(&kind.local, "local", false, "volumes that belong to a node")
	flag.BoolVar(&kind.fenced, "fenced", false, "volumes that are attached to one node at a time")
	flag.Parse()

	store := &store{folder: *folder, lock: folderLock{path: filepath.Join(*folder, "lock")}}
	for _, sub := range []string{"volumes", "snapshots", "coming", "devices", "published"} {
		if err := os.MkdirAll(filepath.Join(*folder, sub), 0o700); err != nil {
			log.Fatal(err)
		}
	}
	driver := grpc.NewServer()
	csi.RegisterIdentityServer(driver, &identity{name: *name, kind: kind})
	csi.RegisterControllerServer(driver, &controller{store: store, name: *name, kind: kind})
	csi.RegisterNodeServer(driver, &nodeService{store: store, driver: *name, name: *node, kind: kind})
	go serve(driver, *socket)

	kubelet := grpc.NewServer()
	registration.RegisterRegistrationServer(kubelet, &registrar{name: *name, socket: *socket})
	serve(kubelet, *register)
}

func serve(server *grpc.Server, socket string) {
	if err := os.RemoveAll(socket); err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
