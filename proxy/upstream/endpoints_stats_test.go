package upstream

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/version"

	"github.com/listproxy/listproxy/test/expect"
)

// TestEndpointStats: what checks found, without credentials.
func TestEndpointStats(t *testing.T) {
	e := newEndpoints(t, "a:1", "b:1", "c:1", "d:1", "e:1")
	for i, r := range []checkResult{
		{state: endpointUp, said: &version.Info{GitVersion: "v1.36.3"}},
		{state: endpointNotReady, said: &version.Info{GitVersion: "v1.35.4"}, err: errors.New("/readyz answered 500")},
		{state: endpointUnreachable, err: errors.New("Authorization: Bearer hunter2 was refused")},
		{state: endpointUnreachable, late: true, began: time.Now().Add(time.Hour), err: context.DeadlineExceeded},
	} {
		e.take(e.all[i], r, func([]version.Info) {})
	}
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	conn := e.all[0].traffic.count(near)

	begun := time.Now().Add(-time.Hour)
	got, meanings := e.Stats(), []string(nil)
	for i := range got {
		if got[i].Since.Before(begun) || got[i].Since.After(time.Now()) {
			t.Errorf("%s is as it is since %v", got[i].Address, got[i].Since)
		}
		got[i].Since = time.Time{}
		meanings = append(meanings, got[i].Meaning())
	}
	want := []EndpointStats{
		{Address: "a:1", State: "up", Version: "v1.36.3", Connections: 1},
		{Address: "b:1", State: "not-ready", Version: "v1.35.4", Problem: "/readyz answered 500"},
		{Address: "c:1", State: "unreachable", Problem: "Authorization: Bearer MASKED was refused"},
		{Address: "d:1", State: "unreachable", Problem: "context deadline exceeded"},
		{Address: "e:1", State: "unknown"},
	}
	expect.Same(t, want, got)
	if diff := cmp.Diff([]string{"up", "not ready", "down", "down", "not checked yet"}, meanings); diff != "" {
		t.Errorf("in plain words (-want +got):\n%s", diff)
	}
	for range 2 { // net.Conn may be closed twice
		_ = conn.Close()
	}
	if n := e.Stats()[0].Connections; n != 0 {
		t.Errorf("%d connections are open, though the only one was closed", n)
	}
	if (EndpointStats{State: string(endpointSlow)}).Meaning() == "" {
		t.Error("no words for an API server that is slow")
	}
}
