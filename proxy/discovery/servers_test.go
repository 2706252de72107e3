package discovery

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

// serverLease is the Lease of an API server, renewed at a revision.
func serverLease(name, holder string, revision int) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",`+
		`"metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"%d"},"spec":{"holderIdentity":%q}}`, name, revision, holder)
}

// newFakeServers is an upstream of two API servers.
func newFakeServers() *proxytest.FakeAPI {
	f := proxytest.NewFakeAPI()
	f.Collections[leasesPath] = &proxytest.FakeCollection{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1", Objects: []string{
		serverLease("one", "one_1", 1), serverLease("two", "two_1", 1),
	}}
	f.Document("/version", proxytest.VersionOf("v1.36.3"))
	return f
}

// serversHeard is what Servers told.
type serversHeard struct{ changed atomic.Int32 }

// runServers runs Servers of f in the bubble.
func runServers(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger) (*Servers, *serversHeard) {
	t.Helper()
	var heard serversHeard
	s, err := newServers(f.Config(), Config{Log: log}, func(string) { heard.changed.Add(1) })
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	return s, &heard
}

// expect holds what was told since the last call against what should have been.
func (h *serversHeard) expect(t *testing.T, when string, changes int32) {
	t.Helper()
	if got := h.changed.Swap(0); got != changes {
		t.Errorf("%s: %d changes, want %d", when, got, changes)
	}
}

// TestServersReadyWaits: nothing is known while the Leases may yet be read, or nobody was asked.
func TestServersReadyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Answer(http.StatusInternalServerError, "list "+leasesPath, "watch "+leasesPath)
		s, heard := runServers(t, f, proxytest.DiscardLog())
		time.Sleep(time.Minute)
		if s.Ready() {
			t.Error("ready without having read the Leases")
		}
		f.Answer(0, "list "+leasesPath, "watch "+leasesPath)
		time.Sleep(time.Minute)
		if !s.Ready() {
			t.Error("not ready")
		}
		heard.expect(t, "first list", 0)
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Takes = time.Second // /version
		f.Answer(http.StatusForbidden, "list "+leasesPath, "watch "+leasesPath)
		s, heard := runServers(t, f, proxytest.DiscardLog())
		if s.Ready() {
			t.Error("ready before /version was asked for")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !s.Ready() {
			t.Error("not ready")
		}
		heard.expect(t, "first answer", 0)
	})
}

// TestServersComeBackSoon: however long the upstream was away, the stream of its Leases is open
// again soon after it is back.
func TestServersComeBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		_, heard := runServers(t, f, proxytest.DiscardLog())
		f.Refuse(true)
		f.Cut(leasesPath)
		time.Sleep(time.Hour)
		heard.expect(t, "away", 0)
		if got := f.Asked("list " + leasesPath); got > 3600 {
			t.Errorf("the stream was tried %d times in an hour", got)
		}
		f.Refuse(false)
		time.Sleep(6 * time.Second)
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 2))
		heard.expect(t, "back", 1)
	})
}
