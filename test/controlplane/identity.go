package controlplane

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/harness/ask"
)

const (
	// identityHook is the check of /readyz that API servers with a Lease of their own have (the feature APIServerIdentity;
	// k8s.io/kubernetes/pkg/controlplane/apiserver/server.go).
	identityHook = "poststarthook/start-kube-apiserver-identity-lease-controller"
	// identityLabel is the label of the Leases of API servers. API servers on one host share a Lease.
	identityLabel = "apiserver.kubernetes.io/identity"
	// identityPrefix begins the names of Leases that API servers created, and not tests.
	identityPrefix = "apiserver-"
	// identityTimeout bounds the wait for the Lease, which an API server tries to renew every 7 seconds or less
	// (k8s.io/component-helpers/apimachinery/lease). An API server that cannot renew it is ready all the same.
	identityTimeout = 30 * time.Second
)

// await waits until the API server is ready and then until it has renewed its Lease, its entry in the list of API servers that
// listproxy watches. In a new cluster that takes some seconds more. A listproxy that started in between would see an API server
// come although none was started. The caller holds s.mu.
func (s *APIServer) await(ctx context.Context) error {
	config := s.cp.RESTConfig(Admin)
	config.Host = s.URL()
	client, err := ask.New(config, 0)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	hasLease := false
	err = s.process.await(ctx, s.name+" to be ready", func(ctx context.Context) error {
		a, err := client.Do(ctx, http.MethodGet, "/readyz?verbose", nil)
		hasLease = strings.Contains(string(a.Body), identityHook)
		return err
	})
	if err != nil || !hasLease {
		return err
	}
	leaseCtx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	err = s.process.await(leaseCtx, s.name+" to renew its Lease", func(ctx context.Context) error {
		leases, err := typed.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: identityLabel})
		if err == nil && !slices.ContainsFunc(leases.Items, s.hasRenewed) {
			err = errors.New("it has not renewed its Lease")
		}
		return err
	})
	if s.process.alive() && ctx.Err() == nil {
		return nil // ready without a renewed Lease, see identityTimeout
	}
	return err
}

// hasRenewed reports whether an API server has renewed a Lease since the process of s started. It does not compare the holder
// in the Lease with the process: older versions of kube-apiserver keep the holder of the process before.
func (s *APIServer) hasRenewed(l coordinationv1.Lease) bool {
	isOfAPIServer := strings.HasPrefix(l.Name, identityPrefix)
	return isOfAPIServer && l.Spec.RenewTime != nil && !l.Spec.RenewTime.Time.Before(s.process.started)
}
