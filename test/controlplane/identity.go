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
	// identityHook is the check of /readyz that is there if an API server announces itself by a Lease
	// (the feature APIServerIdentity; k8s.io/kubernetes/pkg/controlplane/apiserver/server.go).
	identityHook = "poststarthook/start-kube-apiserver-identity-lease-controller"
	// identityLabel is that of the Leases of all API servers. Those of one host share one.
	identityLabel = "apiserver.kubernetes.io/identity"
	// identityPrefix begins the names of those that API servers made, and no test.
	identityPrefix = "apiserver-"
	// identityTimeout is how long an API server may take to announce itself: it tries again after up
	// to 7 seconds (k8s.io/component-helpers/apimachinery/lease). One that cannot, for whatever is
	// done to it, is ready all the same.
	identityTimeout = 30 * time.Second
)

// await waits until the API server is ready and has announced itself. The latter comes later, in a new
// cluster by seconds: who looks in between sees an API server come that has been there before. The
// caller holds s.mu.
func (s *APIServer) await(ctx context.Context) error {
	config := s.cp.RESTConfig(Admin)
	config.Host = s.URL()
	client, err1 := ask.New(config, 0)
	typed, err2 := kubernetes.NewForConfig(config)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	announces := false
	err := s.process.await(ctx, s.name+" to be ready", func(ctx context.Context) error {
		a, err := client.Do(ctx, http.MethodGet, "/readyz?verbose", nil)
		announces = strings.Contains(string(a.Body), identityHook)
		return err
	})
	if err != nil || !announces {
		return err
	}
	announcing, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	err = s.process.await(announcing, s.name+" to announce itself", func(ctx context.Context) error {
		leases, err := typed.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: identityLabel})
		// The older versions leave the holder of before in it. Their clock is ours.
		if err == nil && !slices.ContainsFunc(leases.Items, func(l coordinationv1.Lease) bool {
			return strings.HasPrefix(l.Name, identityPrefix) && l.Spec.RenewTime != nil && !l.Spec.RenewTime.Time.Before(s.process.started)
		}) {
			err = errors.New("it has not renewed its Lease")
		}
		return err
	})
	if s.process.alive() && ctx.Err() == nil {
		return nil
	}
	return err
}
