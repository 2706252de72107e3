package discovery

import (
	"context"
	"fmt"

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
		s.askAgain()
	}
	s.report(what, "lease", c.name)
}
