package workload

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/controlplane"
)

// ConfigMapName is the name of the i-th config map of [FillConfigMaps].
func ConfigMapName(i int) string { return fmt.Sprintf("config-%06d", i) }

// FillConfigMaps creates a namespace with n config maps that have so many bytes of data: the first
// by the API, the others as copies straight into etcd.
func FillConfigMaps(ctx context.Context, cp *controlplane.ControlPlane, namespace string, n, data int) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	pattern := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName(0)}, Data: map[string]string{"text": strings.Repeat("x", data)}}
	if pattern, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, pattern, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a config map: %w", err)
	}
	store := NewStore(cp)
	defer store.Close()
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(etcdWriters)
	for i := 1; i < n && working.Err() == nil; i++ {
		group.Go(func() error {
			made := pattern.DeepCopy()
			made.Name, made.UID, made.ResourceVersion = ConfigMapName(i), uuid.NewUUID(), ""
			return store.put(working, "/registry/configmaps/"+namespace+"/"+made.Name, made)
		})
	}
	return group.Wait()
}
