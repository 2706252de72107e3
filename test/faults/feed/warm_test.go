package feed

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// Rule 12: a replica is not ready before its eager collections are there.
func TestWarmBeforeReady(t *testing.T) {
	t.Parallel()
	var heldBack atomic.Bool
	heldBack.Store(true)
	r := newRig(t, shared, rigOptions{
		args: []string{"--eager", "pods,deployments.v1.apps"},
		cold: true,
		fault: func(w http.ResponseWriter, req *http.Request) bool {
			return of(req, pods) && heldBack.Load() && status(w, http.StatusServiceUnavailable)
		},
	})
	ns := r.namespace(t, "warm")
	r.create(t, pods, ns, "first")
	r.until("one of the two", func() error {
		ready, text := r.proxy.Ready(t.Context())
		if ready {
			return poll.Wrong("ready without the pods")
		}
		if !strings.Contains(text, "[-]collection/pods not ready") || !strings.Contains(text, "[+]collection/deployments.apps ok") {
			return fmt.Errorf("/readyz says: %s", text)
		}
		return nil
	})
	r.expect(fwdWarming, pods.list(""), anyVersion())
	if n := r.count(pods, func(url.Values) bool { return true }); n == 0 {
		t.Error("the feed has not even asked")
	}

	heldBack.Store(false)
	if err := r.proxy.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.expect(hitAny, pods.list(""), anyVersion())
	r.expect(hitAny, deployments.list(""), anyVersion())
}
