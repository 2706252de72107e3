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
	return store[string, string]{read: readServerLease, set: s.setHolder, gone: s.holderGone, listed: s.setHolders, heard: heard}
}

// setHolder takes one Lease. Mostly it is a renewal, which is no change.
func (s *Servers) setHolder(name, holder string) {
	s.mu.Lock()
	was, found := s.holders[name]
	if s.holders != nil { // a list comes first
		s.holders[name] = holder
	}
	s.mu.Unlock()
	if !found || was != holder {
		s.serverStarted()
		s.report("an API server announced itself", "lease", name)
	}
}

func (s *Servers) holderGone(name string) {
	s.mu.Lock()
	delete(s.holders, name)
	s.mu.Unlock()
	s.report("an API server took its leave", "lease", name)
}

// setHolders takes a list. The first only tells what there is; a later one comes after a gap, and
// is compared with what was known before.
func (s *Servers) setHolders(listed map[string]string) {
	s.mu.Lock()
	was := s.holders
	s.holders, s.refused = listed, false
	s.mu.Unlock()
	if was != nil && !maps.Equal(was, listed) {
		s.serverStarted()
		s.report("other API servers than before the stream of their Leases broke")
	}
	s.look()
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
