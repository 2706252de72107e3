package controlplane

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

func TestUsersGetWhatTheyMay(t *testing.T) {
	const (
		teamA   = "/api/v1/namespaces/team-a/pods"
		teamB   = "/api/v1/namespaces/team-b/pods"
		all     = "/api/v1/pods"
		secrets = "/api/v1/secrets"
		review  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
		apis    = "/apis"
	)
	question := map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": "list", "resource": "pods", "namespace": TeamA,
		}},
	}
	const ok, no = http.StatusOK, http.StatusForbidden
	want := map[string]map[string]int{
		Admin:     {teamA: ok, teamB: ok, all: ok, secrets: ok, apis: ok, review: ok},
		Alice:     {teamA: ok, teamB: no, all: no, secrets: no, apis: ok, review: ok},
		Carol:     {teamA: no, teamB: no, all: no, secrets: no, apis: ok, review: ok},
		Nobody:    {teamA: no, teamB: no, all: no, secrets: no, apis: no, review: no},
		Feed:      {teamA: ok, teamB: ok, all: ok, secrets: ok, apis: ok, review: ok},
		Anonymous: {teamA: no, teamB: no, all: no, secrets: no, apis: no, review: no},
	}
	got := map[string]map[string]int{}
	for user := range want {
		got[user] = map[string]int{}
		for _, path := range []string{teamA, teamB, all, secrets, apis} {
			got[user][path], _ = get(t, shared, user, path)
		}
		got[user][review], _ = call(t, shared, user, http.MethodPost, review, question)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	// The feed reads, and only as far as it needs to.
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/no-such.example.com"
	if code, _ := get(t, shared, Feed, crds); code != no {
		t.Errorf("feed gets a CRD: %d, want 403", code)
	}
	if code, _ := get(t, shared, Feed, "/api/v1/namespaces/default"); code != no {
		t.Errorf("feed gets a namespace: %d, want 403", code)
	}
	if code, _ := call(t, shared, Feed, http.MethodPost, teamA, map[string]any{}); code != no {
		t.Errorf("feed creates a pod: %d, want 403", code)
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	long(t)
	url := shared.URL()
	wantAnnounced(t, shared)
	createConfigMap(t, shared, "kept")
	for name, end := range map[string]func() error{
		"stopped": shared.StopAPIServer,
		"killed":  shared.KillAPIServer,
	} {
		expect.NoError(t, end())
		if _, err := shared.request(t.Context(), Admin, http.MethodGet, "/readyz", nil); err == nil {
			t.Fatalf("the %s API server answers", name)
		}
		if err := end(); !errors.Is(err, errNotRunning) {
			t.Errorf("a second time: %v, want %v", err, errNotRunning)
		}
		expect.NoError(t, shared.StartAPIServer(t.Context()))
		if code, _ := get(t, shared, Admin, "/api/v1/namespaces/team-a/configmaps/kept"); code != http.StatusOK {
			t.Errorf("after it was %s: %d", name, code)
		}
		wantAnnounced(t, shared)
	}
	if err := shared.StartAPIServer(t.Context()); err != nil {
		t.Errorf("start of a running API server: %v", err)
	}
	if diff := cmp.Diff(url, shared.URL()); diff != "" {
		t.Error(diff)
	}
}

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
