package harness

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
)

// A process that is told to, or that crashes, writes what all its goroutines are doing: nothing of
// what its callers and it itself log in with.
func TestQuitTellsNoSecrets(t *testing.T) {
	const requests = 8
	own, caller := newToken(), newToken()
	arrived := make(chan struct{}, 10*requests)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	upstream := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), caller) {
			arrived <- struct{}{}
		}
		select { // nothing is ever answered
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	}))
	defer upstream.Close()
	defer cancel()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw})
	p, err := LaunchProxy(ctx, ProxyOptions{Upstream: &rest.Config{
		Host: upstream.URL, BearerToken: own, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}})
	expect.NoError(t, err)
	client, err := rest.HTTPClientFor(p.RESTConfig(&rest.Config{BearerToken: caller}))
	expect.NoError(t, err)
	var asking sync.WaitGroup
	defer asking.Wait()
	for i := range requests {
		asking.Go(func() {
			// Forwarded at once, or after a review.
			path := []string{"/api/v1/pods", "/api/v1/namespaces/default/pods?resourceVersion=0"}[i%2]
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Errorf("it was answered: %s", resp.Status)
			}
		})
	}
	for range requests / 2 {
		select {
		case <-arrived:
		case <-p.exited:
			t.Fatalf("it has ended:\n%s", p.Log())
		}
	}
	if err := p.Quit(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"SIGQUIT: quit", "ServeHTTP"} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("there is no %q in what it wrote", want)
		}
	}
}
