package main

import (
	"context"
	"encoding/json"
	"log"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// failure is an annotation of a pod that is to fail, with the message that it ends with.
	failure = "simulator.cdi.test/failure"
	// message is an annotation of a pod that succeeds with a message.
	message = "simulator.cdi.test/message"
	// Kubernetes gives a node up after 40 s without a word.
	heartbeat = 10 * time.Second
)

// kubelet says of every pod of its node that it started, is ready, and, if it is one that ends, how it ended.
type kubelet struct {
	client      kubernetes.Interface
	pods        corelisters.PodLister
	node        string
	start, work time.Duration
}

// beNode registers the node and keeps it ready. It does not return.
func (k *kubelet) beNode(ctx context.Context, address string) {
	much := core.ResourceList{
		core.ResourceCPU:    resource.MustParse("10k"),
		core.ResourceMemory: resource.MustParse("100Ti"),
		core.ResourcePods:   resource.MustParse("100k"),
	}
	node := &core.Node{
		ObjectMeta: meta.ObjectMeta{
			Name:   k.node,
			Labels: map[string]string{core.LabelHostname: k.node, core.LabelOSStable: "linux", core.LabelArchStable: "amd64"},
		},
	}
	for {
		now, err := k.client.CoreV1().Nodes().Get(ctx, k.node, meta.GetOptions{})
		if errors.IsNotFound(err) {
			now, err = k.client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
		}
		if err == nil {
			now.Status.Capacity, now.Status.Allocatable = much, much
			now.Status.Addresses = []core.NodeAddress{{Type: core.NodeInternalIP, Address: address}}
			now.Status.Conditions = []core.NodeCondition{{
				Type: core.NodeReady, Status: core.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: meta.Now(),
			}}
			_, err = k.client.CoreV1().Nodes().UpdateStatus(ctx, now, meta.UpdateOptions{})
		}
		pause := heartbeat
		if err != nil {
			log.Printf("node: %v", err)
			pause = time.Second
		}
		time.Sleep(pause)
	}
}

func (k *kubelet) play(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	pod, err := k.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil || pod.Spec.NodeName != k.node {
		return 0, err
	}
	if pod.DeletionTimestamp != nil {
		now := int64(0)
		return 0, k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{GracePeriodSeconds: &now})
	}
	ends := pod.Spec.RestartPolicy != core.RestartPolicyAlways
	switch pod.Status.Phase {
	case core.PodPending, "":
		if wait := time.Until(scheduled(pod).Add(k.start)); wait > 0 {
			return wait, nil
		}
		return 0, k.report(ctx, pod, core.PodRunning)
	case core.PodRunning:
		if !ends || pod.Status.StartTime == nil {
			return 0, nil
		}
		if wait := time.Until(scheduled(pod).Add(k.start + k.work)); wait > 0 {
			return wait, nil
		}
		if _, fails := pod.Annotations[failure]; fails {
			return 0, k.report(ctx, pod, core.PodFailed)
		}
		return 0, k.report(ctx, pod, core.PodSucceeded)
	}
	return 0, nil
}

func scheduled(pod *core.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == core.PodScheduled {
			return condition.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

func (k *kubelet) report(ctx context.Context, pod *core.Pod, phase core.PodPhase) error {
	now := meta.Now()
	ready := core.ConditionFalse
	if phase == core.PodRunning {
		ready = core.ConditionTrue
	}
	status := core.PodStatus{
		Phase:     phase,
		StartTime: &now,
		PodIP:     "10.97.0.2",
		PodIPs:    []core.PodIP{{IP: "10.97.0.2"}},
		Conditions: []core.PodCondition{
			{Type: core.PodInitialized, Status: core.ConditionTrue, LastTransitionTime: now},
			{Type: core.PodReady, Status: ready, LastTransitionTime: now},
			{Type: core.ContainersReady, Status: ready, LastTransitionTime: now},
		},
	}
	if pod.Status.StartTime != nil {
		status.StartTime = pod.Status.StartTime
	}
	for _, container := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, ended(pod, container, 0))
	}
	for _, container := range pod.Spec.Containers {
		one := core.ContainerStatus{Name: container.Name, Image: container.Image, ImageID: container.Image}
		switch phase {
		case core.PodRunning:
			started := true
			one.Ready, one.Started = true, &started
			one.State.Running = &core.ContainerStateRunning{StartedAt: now}
		case core.PodFailed:
			one = ended(pod, container, 1)
		default:
			one = ended(pod, container, 0)
		}
		status.ContainerStatuses = append(status.ContainerStatuses, one)
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
	return err
}

func ended(pod *core.Pod, container core.Container, code int32) core.ContainerStatus {
	said := pod.Annotations[message]
	reason := "Completed"
	if code != 0 {
		said, reason = pod.Annotations[failure], "Error"
	}
	one := core.ContainerStatus{Name: container.Name, Image: container.Image, ImageID: container.Image}
	one.State.Terminated = &core.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: said, StartedAt: meta.Now(), FinishedAt: meta.Now(),
	}
	return one
}
