package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/controlplane"
)

const (
	// HundredthLabel is a label with a hundred values, each of which a hundredth of the pods has.
	HundredthLabel = "bench.listproxy.io/hundredth"
	// etcdWriters is the number of concurrent writes.
	etcdWriters = 8
)

// keyOf returns kube-apiserver's key of a pod in etcd.
func keyOf(pod *corev1.Pod) string { return "/registry/pods/" + pod.Namespace + "/" + pod.Name }

// Fill creates the namespaces and n pods, fast. It creates only one pod of each application by the API, so that its defaults
// and managed fields are kube-apiserver's. It puts the other pods directly into etcd: they are copies of these first ones,
// encoded as kube-apiserver does. Each pod has its own revision.
func Fill(ctx context.Context, cp *controlplane.ControlPlane, pods Pods, n int) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for _, name := range Namespaces() {
		if err := createNamespace(ctx, client, name); err != nil {
			return err
		}
	}
	patterns := make([]*corev1.Pod, min(n, Applications()))
	for i := range patterns {
		if patterns[i], err = create(ctx, client, pods, i); err != nil {
			return fmt.Errorf("create a pod: %w", err)
		}
	}
	return putAll(ctx, cp, len(patterns), n, func(i int) (string, runtime.Object) {
		pod := pods.copyOf(patterns[i%len(patterns)], i)
		return keyOf(pod), pod
	})
}

// ConfigMapName returns the name of the i-th ConfigMap of [FillConfigMaps].
func ConfigMapName(i int) string { return fmt.Sprintf("config-%06d", i) }

// FillConfigMaps creates a namespace with n ConfigMaps of dataBytes each: the first by the API, and copies directly in etcd.
func FillConfigMaps(ctx context.Context, cp *controlplane.ControlPlane, namespace string, n, dataBytes int) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := createNamespace(ctx, client, namespace); err != nil {
		return err
	}
	pattern := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName(0)}, Data: map[string]string{"text": strings.Repeat("x", dataBytes)}}
	if pattern, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, pattern, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a config map: %w", err)
	}
	return putAll(ctx, cp, 1, n, func(i int) (string, runtime.Object) {
		made := pattern.DeepCopy()
		made.Name, made.UID = ConfigMapName(i), uuid.NewUUID()
		made.ResourceVersion = ""
		return "/registry/configmaps/" + namespace + "/" + made.Name, made
	})
}

// createNamespace creates a namespace by the API.
func createNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// putAll puts objects directly into etcd: those that newObject returns for from ≤ i < to.
func putAll(ctx context.Context, cp *controlplane.ControlPlane, from, to int, newObject func(i int) (key string, object runtime.Object)) error {
	store := NewStore(cp)
	defer store.Close()
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(etcdWriters)
	for i := from; i < to && working.Err() == nil; i++ {
		group.Go(func() error {
			key, object := newObject(i)
			return store.put(working, key, object)
		})
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// create creates the i-th pod by the API and sets the status of a running pod.
func create(ctx context.Context, client kubernetes.Interface, pods Pods, i int) (*corev1.Pod, error) {
	namespace := NamespaceOf(i)
	pod := pods.Pod(i, namespace)
	pod.Labels[HundredthLabel] = strconv.Itoa(i % 100)
	created, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	created.Status = pods.Running(i, created)
	return client.CoreV1().Pods(namespace).UpdateStatus(ctx, created, metav1.UpdateOptions{})
}

// copyOf returns the i-th pod as kube-apiserver would store it. pattern is a stored pod of the same application.
func (p Pods) copyOf(pattern *corev1.Pod, i int) *corev1.Pod {
	pod := p.Pod(i, NamespaceOf(i))
	made := pattern.DeepCopy()
	made.Name, made.Namespace = pod.Name, pod.Namespace
	made.UID, made.ResourceVersion = uuid.NewUUID(), ""
	made.Labels = pod.Labels
	made.Labels[HundredthLabel] = strconv.Itoa(i % 100)
	made.OwnerReferences = pod.OwnerReferences
	made.Spec.NodeName = pod.Spec.NodeName
	made.Status = p.Running(i, made)
	made.Status.QOSClass = pattern.Status.QOSClass
	return made
}

// Store writes directly into etcd, so that the writes cost kube-apiserver nothing but its watch. Safe for concurrent use.
type Store struct {
	url    string
	client *http.Client
}

// NewStore returns the store of a control plane.
func NewStore(cp *controlplane.ControlPlane) *Store {
	return &Store{url: cp.EtcdURL(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: etcdWriters}}}
}

// Put writes a pod as kube-apiserver would. The pod's resourceVersion must be empty, as it is in etcd.
func (s *Store) Put(ctx context.Context, pod *corev1.Pod) error {
	return s.put(ctx, keyOf(pod), pod)
}

// Close closes the store's connections.
func (s *Store) Close() { s.client.CloseIdleConnections() }

// put writes an object by etcd's JSON gateway, which takes bytes in base64, as encoding/json writes them.
func (s *Store) put(ctx context.Context, key string, object runtime.Object) error {
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	value, err := runtime.Encode(encoder, object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": value})
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/put", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("write %s into etcd: %w", key, err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err != nil {
		return fmt.Errorf("write %s into etcd: %w", key, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("write %s into etcd: HTTP %d", key, resp.StatusCode)
	}
	return nil
}
