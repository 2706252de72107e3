package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestDiffer: the demo fails where an answer is not kube-apiserver's, or not from memory.
func TestDiffer(t *testing.T) {
	of := func(code int, status, body string) ask.Answer {
		return ask.Answer{Code: code, Header: http.Header{"Cache-Status": {status}}, Body: []byte(body)}
	}
	theirs := of(http.StatusOK, "", "a, b")
	for name, tt := range map[string]struct {
		ours ask.Answer
		want string
	}{
		"the same from memory": {of(http.StatusOK, "listproxy; hit; detail=any", "a, b"), ""},
		"an object missing":    {of(http.StatusOK, "listproxy; hit; detail=any", "a"), "listproxy's answer of 1 bytes is not kube-apiserver's of 4"},
		"not from memory":      {of(http.StatusOK, "listproxy; fwd=bypass; detail=not-canonical", "a, b"), "not from memory but listproxy; fwd=bypass; detail=not-canonical"},
		"no word where from":   {of(http.StatusOK, "", "a, b"), "not from memory but "},
		"refused":              {of(http.StatusForbidden, "listproxy; hit", "a, b"), "listproxy answers 403, kube-apiserver 200"},
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

// TestTable: a table has a row of each result, and what listproxy saves beside it.
func TestTable(t *testing.T) {
	direct, proxied := &result{asked: "all", of: straight}, &result{asked: "all", of: "listproxy"}
	direct.take(answer{took: 200 * time.Millisecond, bytes: 2e6})
	direct.kube = 300 * time.Millisecond
	proxied.take(answer{took: 20 * time.Millisecond, bytes: 2e6, hit: true})
	proxied.take(answer{took: 40 * time.Millisecond, bytes: 2e6})
	proxied.proxy = 12 * time.Millisecond
	table := &table{caption: "Lists."}
	table.add(direct, proxied)
	expect.Same(t, `Lists.

| asked | of             | answers | from memory |  bytes | kube-apiserver, CPU | listproxy | both, less |  median |     99% | median, less |
| ----- | -------------- | ------: | ----------: | -----: | ------------------: | --------: | ---------: | ------: | ------: | -----------: |
| all   | kube-apiserver |       1 |             | 2.0 MB |              300 ms |           |            |  200 ms |  200 ms |              |
| all   | listproxy      |       2 |         50% | 2.0 MB |                     |   6.00 ms |     50.00× | 40.0 ms | 40.0 ms |        5.00× |
`, table.String())
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
