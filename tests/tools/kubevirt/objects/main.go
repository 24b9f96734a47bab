// Program objects prints the objects with which an administrator installs KubeVirt, as a list for `kubectl apply`: the kind of its
// configuration, the permissions and the Deployment of its operator. KubeVirt's own packages define them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/client-go/version"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

func main() {
	namespace := flag.String("namespace", "kubevirt", "where the operator and all that it installs run")
	node := flag.String("node-image", "", "the image of what runs as root on a node")
	services := flag.String("services-image", "", "the image of all other programs")
	flag.Parse()
	if err := print(*namespace, *node, *services); err != nil {
		fmt.Fprintln(os.Stderr, "cannot print the objects of KubeVirt's operator:", err)
		os.Exit(1)
	}
}

func print(namespace, node, services string) error {
	kind, err := components.NewKubeVirtCrd()
	if err != nil {
		return err
	}
	objects := []any{
		&corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{
				Name:   namespace,
				Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
			},
		},
		kind,
		components.NewKubeVirtPriorityClassCR(),
	}
	for _, object := range rbac.GetAllOperator(namespace) {
		objects = append(objects, object)
	}
	const verbosity = "2"
	// Images that have no name here belong to features that are off.
	deployment := components.NewOperatorDeployment(
		namespace, "", "", "", verbosity, version.Get().GitVersion, "",
		services, services, node, node, services, services,
		"", "", "", "", "", "", services, corev1.PullIfNotPresent,
	)
	// The cluster has one node, which has no label of a control plane.
	replicas := int32(1)
	deployment.Spec.Replicas = &replicas
	deployment.Spec.Template.Spec.Affinity = nil
	objects = append(objects, deployment)
	return printList(objects)
}

// printList leaves out what a server sets.
func printList(objects []any) error {
	items := make([]map[string]any, 0, len(objects))
	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		item := map[string]any{}
		if err := json.Unmarshal(text, &item); err != nil {
			return err
		}
		delete(item, "status")
		items = append(items, item)
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
	return json.NewEncoder(os.Stdout).Encode(list)
}
