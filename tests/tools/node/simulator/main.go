// Command simulator plays what a cluster without a node lacks: a kubelet whose pods start and end without running
// anything, and a provisioner whose volumes hold nothing. It reports as the real ones do, so that controllers can be
// tried with thousands of objects on a small machine.
package main

import (
	"context"
	"flag"
	"log"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
)

// workers is how many objects of a kind are played at once.
const workers = 8

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster")
	name := flag.String("node", "", "the name of the node to play")
	address := flag.String("address", "", "its address")
	start := flag.Duration("start", 100*time.Millisecond, "what a pod takes to start")
	work := flag.Duration("work", 300*time.Millisecond, "what a pod that ends takes until then")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 500, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	snapshotClient, err := snapshots.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	watches := informers.NewSharedInformerFactory(client, 0)
	snapshotWatches := snapshotinformers.NewSharedInformerFactory(snapshotClient, 0)

	kubelet := &kubelet{client: client, pods: watches.Core().V1().Pods().Lister(), node: *name, start: *start, work: *work}
	provisioner := &provisioner{
		client:  client,
		claims:  watches.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: watches.Core().V1().PersistentVolumes().Lister(),
		classes: watches.Storage().V1().StorageClasses().Lister(),
	}
	snapshotter := &snapshotter{
		client:    snapshotClient,
		claims:    watches.Core().V1().PersistentVolumeClaims().Lister(),
		snapshots: snapshotWatches.Snapshot().V1().VolumeSnapshots().Lister(),
	}
	play(ctx, watches.Core().V1().Pods().Informer(), kubelet.play)
	play(ctx, watches.Core().V1().PersistentVolumeClaims().Informer(), provisioner.playClaim)
	play(ctx, watches.Core().V1().PersistentVolumes().Informer(), provisioner.playVolume)
	play(ctx, snapshotWatches.Snapshot().V1().VolumeSnapshots().Informer(), snapshotter.play)
	watches.Storage().V1().StorageClasses().Informer()
	watches.Start(ctx.Done())
	snapshotWatches.Start(ctx.Done())
	kubelet.beNode(ctx, *address)
}

// play calls a function for an object whenever it changes, and again after the time that the function asks for.
func play(ctx context.Context, informer cache.SharedIndexInformer, change func(context.Context, cache.ObjectName) (time.Duration, error)) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	add := func(object any) {
		if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
			queue.Add(name)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, now any) { add(now) },
	})
	if err != nil {
		log.Fatal(err)
	}
	for range workers {
		go func() {
			cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
			for {
				name, ended := queue.Get()
				if ended {
					return
				}
				again, err := change(ctx, name)
				switch {
				case err != nil && !errors.IsNotFound(err) && !errors.IsConflict(err):
					log.Printf("%s: %v", name, err)
					queue.AddRateLimited(name)
				case err != nil && errors.IsConflict(err):
					queue.AddRateLimited(name)
				case again > 0:
					queue.AddAfter(name, again)
				default:
					queue.Forget(name)
				}
				queue.Done(name)
			}
		}()
	}
}
