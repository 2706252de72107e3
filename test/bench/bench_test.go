package main

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestDiffer: the demo fails where an answer is not kube-apiserver's, or not from memory.
func TestDiffer(t *testing.T) {
	answered := func(code int, status, body string) ask.Answer {
		return ask.Answer{Code: code, Header: http.Header{"Cache-Status": {status}}, Body: []byte(body)}
	}
	theirs := answered(http.StatusOK, "", "a, b")
	for name, tt := range map[string]struct {
		ours ask.Answer
		want string
	}{
		"the same from memory": {answered(http.StatusOK, "listproxy; hit; detail=any", "a, b"), ""},
		"an object missing":    {answered(http.StatusOK, "listproxy; hit; detail=any", "a"), "listproxy's answer of 1 bytes is not kube-apiserver's of 4"},
		"not from memory":      {answered(http.StatusOK, "listproxy; fwd=bypass; detail=not-canonical", "a, b"), "not from memory but listproxy; fwd=bypass; detail=not-canonical"},
		"no word where from":   {answered(http.StatusOK, "", "a, b"), "not from memory but "},
		"refused":              {answered(http.StatusForbidden, "listproxy; hit", "a, b"), "listproxy answers 403, kube-apiserver 200"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := differ(tt.ours, theirs); err != nil {
				got = err.Error()
			}
			expect.Same(t, tt.want, got)
		})
	}
}

// TestWholeLists: only lists from their beginning, of all pods, count as whole ones.
func TestWholeLists(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/pods?resourceVersion=0":                   true,
		"/api/v1/pods?watch=true&sendInitialEvents=true":   true,
		"/api/v1/pods?watch=true&resourceVersion=7":        false,
		"/api/v1/pods?limit=500":                           true,
		"/api/v1/pods?limit=500&continue=x":                false,
		"/api/v1/pods?limit=500&resourceVersion=7":         false,
		"/api/v1/pods?limit=1":                             false,
		"/api/v1/pods?limit=20&shardSelector=x":            false,
		"/api/v1/pods?fieldSelector=metadata.name%3Dprobe": false,
		"/api/v1/nodes?resourceVersion=0":                  false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com"+path, nil)
		expect.NoError(t, err)
		if got := isWhole(r); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
