package discovery

import (
	"context"
	"fmt"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// API servers keep a Lease each, in this namespace and with this label
	// (k8s.io/kubernetes/pkg/controlplane/apiserver, server.go).
	serverLeaseNamespace = metav1.NamespaceSystem
	serverLeaseSelector  = "apiserver.kubernetes.io/identity=kube-apiserver"
)

// serverLeases lists and watches the Leases of API servers.
func serverLeases(all coordination.LeaseInterface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = serverLeaseSelector
			return all.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = serverLeaseSelector
			return all.Watch(ctx, options)
		},
	}
}

// readHolder returns who holds a Lease. Mostly a Lease is renewed, which is no change.
func readHolder(o runtime.Object) (string, error) {
	lease, ok := o.(*coordinationv1.Lease)
	if !ok {
		return "", fmt.Errorf("a Lease came as %T", o)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}

// leaseChanged reports a change.
func (s *Servers) leaseChanged(c change[string]) {
	what := "an API server announced itself"
	if c.is == nil {
		what = "an API server took its leave"
	} else {
		s.serverStarted()
	}
	s.report(what, "lease", c.name)
}

// Same reports whether the API servers are still those that were known before, and none of them was
// restarted: it reads their Leases now and compares them. It is false if that cannot be known,
// because the Leases may not be read or there are none. (Kubernetes' procedure stops all API
// servers before etcd is restored, so with the same servers it was not.)
func (s *Servers) Same(ctx context.Context) (bool, error) {
	known := s.leases.all()
	if len(known) == 0 || s.leases.isRefused() {
		return false, nil
	}
	now := map[string]string{}
	_, _, err := s.leases.page(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		holder, err := readHolder(o)
		if err != nil {
			return err
		}
		name, err := cache.MetaNamespaceKeyFunc(o)
		now[name] = holder
		return err
	})
	switch {
	case isRefused(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the API servers' Leases could not be read: %w", err)
	}
	return maps.Equal(known, now), nil
}
