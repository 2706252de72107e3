package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// identityHook is the check of /readyz that is there if an API server announces itself by a Lease
	// (the feature APIServerIdentity; k8s.io/kubernetes/pkg/controlplane/apiserver/server.go).
	identityHook = "poststarthook/start-kube-apiserver-identity-lease-controller"
	// identityLeases are the Leases of all API servers. Those of one host share one.
	identityLeases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=apiserver.kubernetes.io/identity"
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
	client, err := rest.HTTPClientFor(s.cp.RESTConfig(Admin))
	if err != nil {
		return err
	}
	announces := false
	err = s.process.await(ctx, s.name+" to be ready", func(ctx context.Context) error {
		answer, err := send(ctx, client, http.MethodGet, s.URL()+"/readyz?verbose", nil)
		announces = strings.Contains(string(answer), identityHook)
		return err
	})
	if err != nil || !announces {
		return err
	}
	announcing, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	err = s.process.await(announcing, s.name+" to announce itself", func(ctx context.Context) error {
		answer, err := send(ctx, client, http.MethodGet, s.URL()+identityLeases, nil)
		if err == nil && !announcedSince(answer, s.process.started) {
			err = errors.New("it has not renewed its Lease")
		}
		return err
	})
	if s.process.alive() && ctx.Err() == nil {
		return nil
	}
	return err
}

// announcedSince says whether, by a list of Leases, an API server has made or renewed its own since
// it was started. (The older versions leave the holder of before in it. Their clock is ours.)
func announcedSince(leases []byte, started time.Time) bool {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ RenewTime time.Time }
		}
	}
	if json.Unmarshal(leases, &list) != nil {
		return false
	}
	for _, lease := range list.Items {
		if strings.HasPrefix(lease.Metadata.Name, identityPrefix) && !lease.Spec.RenewTime.Before(started) {
			return true
		}
	}
	return false
}
