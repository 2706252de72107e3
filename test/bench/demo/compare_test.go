package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// listing is a server of one list, which says that it is at revision.
func listing(t *testing.T, revision, items, cacheStatus string) client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := revision
		if r.URL.Query().Get("resourceVersionMatch") == "Exact" {
			at = r.URL.Query().Get("resourceVersion")
		}
		if cacheStatus != "" {
			w.Header().Set("Cache-Status", cacheStatus)
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":%q},"items":[%s]}`, at, items)
	}))
	t.Cleanup(server.Close)
	return client{ask.At(server.URL)}
}

// The demo must be able to fail.
func TestCompare(t *testing.T) {
	const hit, miss = "listproxy; hit; detail=any", "listproxy; fwd=bypass; detail=selector"
	const two, other = `{"name":"a"},{"name":"b"}`, `{"name":"a"},{"name":"c"}`
	tests := []struct {
		name        string
		items       string
		revision    string
		cacheStatus string
		memory      bool
		contains    string
		want        bool
	}{
		{name: "the same from memory", items: two, revision: "7", cacheStatus: hit, memory: true, want: true},
		{name: "another revision, which kube-apiserver is asked for", items: two, revision: "5", cacheStatus: hit, memory: true, want: true},
		{name: "forwarded as it has to be", items: two, revision: "7", cacheStatus: miss, want: true},
		{name: "with the object that it must hold", items: two, revision: "7", cacheStatus: hit, contains: "b", want: true},
		{name: "another object", items: other, revision: "7", cacheStatus: hit, memory: true},
		{name: "an object missing", items: `{"name":"a"}`, revision: "7", cacheStatus: hit, memory: true},
		{name: "without the object that it must hold", items: two, revision: "7", cacheStatus: hit, contains: "c"},
		{name: "not from memory", items: two, revision: "7", cacheStatus: miss, memory: true},
		{name: "without a word where from", items: two, revision: "7", memory: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := question{
				what: "list", path: "/api/v1/pods", query: "resourceVersion=0", name: tt.contains,
				who: pair{direct: listing(t, "7", two, ""), proxied: listing(t, tt.revision, tt.items, tt.cacheStatus)},
			}
			line, err := q.compare(t.Context())
			expect.NoError(t, err)
			line.wantHit = tt.memory
			r := &report{out: io.Discard}
			r.add(line)
			if diff := cmp.Diff(tt.want, r.ok()); diff != "" {
				t.Errorf("as promised (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrigin(t *testing.T) {
	line := row{statuses: []string{"listproxy; hit; detail=exact", "listproxy; hit; detail=continue", "listproxy; hit; detail=continue", ""}}
	want := "1× hit; detail=exact, 2× hit; detail=continue, 1× (none)"
	if diff := cmp.Diff(want, line.origin()); diff != "" {
		t.Errorf("origin (-want +got):\n%s", diff)
	}
}
