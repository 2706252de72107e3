package controlplane

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

func TestPause(t *testing.T) {
	long(t)
	expect.NoError(t, shared.PauseAPIServer())
	// However long one waits, a paused process does not answer.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := shared.request(ctx, Admin, http.MethodGet, "/version", nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("paused: %v", err)
	}
	expect.NoError(t, shared.ResumeAPIServer())
	if code, _ := get(t, shared, Admin, "/version"); code != http.StatusOK {
		t.Errorf("resumed: %d", code)
	}
}

func TestRestoreTakesRevisionsBack(t *testing.T) {
	long(t)
	createConfigMap(t, shared, "before")
	snapshot, err := shared.SnapshotEtcd(t.Context())
	expect.NoError(t, err)
	createConfigMap(t, shared, "after")
	for i := range 20 { // more than restarting writes by itself
		createConfigMap(t, shared, "filler-"+string(rune('a'+i)))
	}
	high, err := shared.EtcdRevision(t.Context())
	expect.NoError(t, err)
	expect.NoError(t, shared.RestoreEtcd(t.Context(), snapshot))
	low, err := shared.EtcdRevision(t.Context())
	expect.NoError(t, err)
	if low < snapshot.Revision || low >= high {
		t.Errorf("revision %d after restore; snapshot at %d, was at %d", low, snapshot.Revision, high)
	}
	for name, want := range map[string]int{"before": http.StatusOK, "after": http.StatusNotFound} {
		if code, _ := get(t, shared, Admin, "/api/v1/namespaces/team-a/configmaps/"+name); code != want {
			t.Errorf("%s: %d, want %d", name, code, want)
		}
	}
	if code, _ := get(t, shared, Alice, "/api/v1/namespaces/team-a/pods"); code != http.StatusOK {
		t.Errorf("alice's pods after restore: %d", code)
	}
	if err := shared.RestoreEtcd(t.Context(), EtcdSnapshot{}); err == nil {
		t.Error("restored from no snapshot")
	}
}

func TestCompactionForgets(t *testing.T) {
	long(t)
	// Waits for the API server's watch cache while tests with control planes of their own run.
	t.Parallel()
	old := createConfigMap(t, shared, "compacted-1")
	createConfigMap(t, shared, "compacted-2")
	exact := func(resource string) (int, []byte) {
		return get(t, shared, Admin, "/api/v1/namespaces/team-a/"+resource+"?resourceVersionMatch=Exact&resourceVersion="+old)
	}
	for _, resource := range []string{"events", "configmaps"} {
		// The watch cache of config maps, which is what is asked, may come to the revision later.
		var code int
		poll.Until(t, patience, resource+" at "+old+" is no revision to come", func() bool {
			var body []byte
			code, body = exact(resource)
			return !ask.NotThereYet(code, body)
		})
		if code != http.StatusOK {
			t.Errorf("%s at %s before: %d", resource, old, code)
		}
	}
	expect.NoError(t, shared.CompactEtcd(t.Context()))
	// Events have no watch cache: the answer is etcd's own.
	if code, _ := exact("events"); code != http.StatusGone {
		t.Errorf("events at %s after: %d, want 410", old, code)
	}
	poll.Until(t, patience, "410 for config maps", func() bool {
		code, _ := exact("configmaps")
		return code == http.StatusGone
	})

	head, err := shared.EtcdRevision(t.Context())
	expect.NoError(t, err)
	if err := shared.CompactEtcdAt(t.Context(), head+1000); err == nil {
		t.Error("compacted at a revision of the future")
	}
}
