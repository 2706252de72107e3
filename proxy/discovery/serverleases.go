package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

const (
	// API servers keep a Lease each, in this namespace and with this label
	// (k8s.io/kubernetes/pkg/controlplane/apiserver, server.go).
	serverLeaseNamespace = metav1.NamespaceSystem
	serverLeaseSelector  = "apiserver.kubernetes.io/identity=kube-apiserver"
)

// serverStore is a Servers as the store of a reflector. It keeps the holders only.
type serverStore struct{ s *Servers }

var _ cache.ReflectorStore = serverStore{}

// Add implements cache.ReflectorStore.
func (t serverStore) Add(obj any) error { return t.Update(obj) }

// Update implements cache.ReflectorStore. Mostly it is a renewal, which is no change.
func (t serverStore) Update(obj any) error {
	name, holder, err := readServerLease(obj)
	if err != nil {
		return err
	}
	t.s.mu.Lock()
	was, found := t.s.holders[name]
	if t.s.holders != nil { // a list comes first
		t.s.holders[name] = holder
	}
	t.s.mu.Unlock()
	if !found || was != holder {
		t.s.serverStarted()
		t.s.report("an API server announced itself", "lease", name)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (t serverStore) Delete(obj any) error {
	name, _, err := readServerLease(obj)
	if err != nil {
		return err
	}
	t.s.mu.Lock()
	delete(t.s.holders, name)
	t.s.mu.Unlock()
	t.s.report("an API server took its leave", "lease", name)
	return nil
}

// Replace implements cache.ReflectorStore. The first list only tells what there is; a later one
// comes after a gap, and is held against what there was.
func (t serverStore) Replace(objs []any, _ string) error {
	listed := make(map[string]string, len(objs))
	for _, obj := range objs {
		name, holder, err := readServerLease(obj)
		if err != nil {
			return err
		}
		listed[name] = holder
	}
	t.s.mu.Lock()
	was := t.s.holders
	t.s.holders, t.s.refused = listed, false
	t.s.mu.Unlock()
	if was != nil && !maps.Equal(was, listed) {
		t.s.serverStarted()
		t.s.report("other API servers than before the stream of their Leases broke")
	}
	t.s.look()
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (serverStore) Resync() error { return nil }

// readServerLease returns the name of a Lease and who holds it.
func readServerLease(obj any) (name, holder string, err error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return "", "", fmt.Errorf("a Lease came as %T", obj)
	}
	holder, _, err = unstructured.NestedString(u.Object, "spec", "holderIdentity")
	if err != nil {
		return "", "", errors.New("a Lease whose holderIdentity is not a string")
	}
	return u.GetName(), holder, nil
}

// Same reports whether the API servers are still those that were known before, and none of them was
// restarted: it reads their Leases now and compares them. It is false if that cannot be known,
// because the Leases may not be read or there are none. (Kubernetes' procedure stops all API
// servers before etcd is restored, so with the same servers it was not.)
func (s *Servers) Same(ctx context.Context) (bool, error) {
	s.mu.Lock()
	known, refused := maps.Clone(s.holders), s.refused
	s.mu.Unlock()
	if len(known) == 0 || refused {
		return false, nil
	}
	list, err := s.leases.List(ctx, metav1.ListOptions{LabelSelector: serverLeaseSelector})
	switch {
	case isRefused(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the API servers' Leases could not be read: %w", err)
	}
	now := make(map[string]string, len(list.Items))
	for i := range list.Items {
		name, holder, err := readServerLease(&list.Items[i])
		if err != nil {
			return false, err
		}
		now[name] = holder
	}
	return maps.Equal(known, now), nil
}
