package main

import (
	"context"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	snapshotapi "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotlisters "github.com/kubernetes-csi/external-snapshotter/client/v8/listers/volumesnapshot/v1"
)

const (
	// The drivers of the whole cluster end in this.
	drivers = ".csi.cdi.test"
	// Set by the scheduler on a claim that waited for a pod.
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
)

// provisioner makes a volume of every claim that asks a driver of the cluster for one, and grows it when asked.
type provisioner struct {
	client  kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
}

func (p *provisioner) playClaim(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	claim, err := p.claims.PersistentVolumeClaims(name.Namespace).Get(name.Name)
	if err != nil || claim.DeletionTimestamp != nil || claim.Spec.StorageClassName == nil {
		return 0, err
	}
	if claim.Spec.VolumeName != "" {
		return 0, p.grow(ctx, claim)
	}
	if isForOthers(claim) {
		return 0, nil
	}
	class, err := p.classes.Get(*claim.Spec.StorageClassName)
	if err != nil || !strings.HasSuffix(class.Provisioner, drivers) {
		return 0, err
	}
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storage.VolumeBindingWaitForFirstConsumer
	if waits && claim.Annotations[selectedNode] == "" {
		return 0, nil
	}
	volume := &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{provisionedBy: class.Provisioner},
		},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{
				Driver: class.Provisioner, VolumeHandle: "pvc-" + string(claim.UID),
			}},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	_, err = p.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return 0, nil
	}
	return 0, err
}

// isForOthers says whether a populator fills a claim. Real provisioners leave such claims alone.
func isForOthers(claim *core.PersistentVolumeClaim) bool {
	reference := claim.Spec.DataSourceRef
	if reference == nil || reference.APIGroup == nil {
		return false
	}
	return *reference.APIGroup != "" && *reference.APIGroup != snapshotapi.GroupName
}

func (p *provisioner) grow(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	wanted := claim.Spec.Resources.Requests[core.ResourceStorage]
	have, bound := claim.Status.Capacity[core.ResourceStorage]
	if !bound || wanted.Cmp(have) <= 0 {
		return nil
	}
	volume, err := p.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return err
	}
	if volume.Spec.CSI == nil || !strings.HasSuffix(volume.Spec.CSI.Driver, drivers) {
		return nil
	}
	larger := volume.DeepCopy()
	larger.Spec.Capacity[core.ResourceStorage] = wanted
	if _, err := p.client.CoreV1().PersistentVolumes().Update(ctx, larger, meta.UpdateOptions{}); err != nil {
		return err
	}
	grown := claim.DeepCopy()
	grown.Status.Capacity[core.ResourceStorage] = wanted
	_, err = p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, grown, meta.UpdateOptions{})
	return err
}

// playVolume removes a volume whose claim is gone.
func (p *provisioner) playVolume(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	volume, err := p.volumes.Get(name.Name)
	if err != nil {
		return 0, err
	}
	ours := strings.HasSuffix(volume.Annotations[provisionedBy], drivers)
	released := volume.Status.Phase == core.VolumeReleased
	if !ours || !released || volume.DeletionTimestamp != nil ||
		volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete {
		return 0, nil
	}
	return 0, p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
}

// snapshotter says of every snapshot that it is there. It has no content: nobody restores bytes here.
type snapshotter struct {
	client    snapshots.Interface
	claims    corelisters.PersistentVolumeClaimLister
	snapshots snapshotlisters.VolumeSnapshotLister
}

func (s *snapshotter) play(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	snapshot, err := s.snapshots.VolumeSnapshots(name.Namespace).Get(name.Name)
	if err != nil || snapshot.Status != nil || snapshot.Spec.Source.PersistentVolumeClaimName == nil {
		return 0, err
	}
	claim, err := s.claims.PersistentVolumeClaims(name.Namespace).Get(*snapshot.Spec.Source.PersistentVolumeClaimName)
	if errors.IsNotFound(err) || (err == nil && claim.Spec.VolumeName == "") {
		// As the real one: it waits for the claim.
		return time.Second, nil
	}
	if err != nil {
		return 0, err
	}
	ready, now, size := true, meta.Now(), claim.Status.Capacity[core.ResourceStorage]
	content := "snapcontent-" + string(snapshot.UID)
	taken := snapshot.DeepCopy()
	taken.Status = &snapshotapi.VolumeSnapshotStatus{
		BoundVolumeSnapshotContentName: &content, CreationTime: &now, ReadyToUse: &ready, RestoreSize: &size,
	}
	_, err = s.client.SnapshotV1().VolumeSnapshots(name.Namespace).UpdateStatus(ctx, taken, meta.UpdateOptions{})
	return 0, err
}
