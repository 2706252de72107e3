package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// API servers keep a Lease each, in this namespace and with this label
	// (k8s.io/kubernetes/pkg/controlplane/apiserver, server.go).
	serverLeaseNamespace = metav1.NamespaceSystem
	serverLeaseSelector  = "apiserver.kubernetes.io/identity=kube-apiserver"
)

// store returns the store of what follows the Leases: it keeps the holders only.
func (s *Servers) store(heard *heard) store[string, string] {
	return store[string, string]{
		read: readServerLease, known: &s.holders, mu: &s.mu, heard: heard,
		also:    func(list bool, _ string) { s.refused = s.refused && !list },
		changed: s.take,
	}
}

// take reports what changed. Mostly a Lease is renewed, which is no change; and the first list only
// tells what there is.
func (s *Servers) take(c change[string, string]) {
	switch {
	case c.first:
	case c.list && len(c.was)+len(c.is) > 0:
		s.serverStarted()
		s.report("other API servers than before the stream of their Leases broke")
	case c.list:
	case len(c.is) > 0:
		for name := range c.is {
			s.serverStarted()
			s.report("an API server announced itself", "lease", name)
		}
	default:
		for name := range c.was {
			s.report("an API server took its leave", "lease", name)
		}
	}
	if c.list {
		s.look()
	}
}

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
