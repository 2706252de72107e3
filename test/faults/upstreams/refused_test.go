package upstreams

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestRefused: a token of a page that is refused is a mistake, whoever says so, and one of a user;
// that the API server is gone, or not there yet, is none.
func TestRefused(t *testing.T) {
	for code, want := range map[int]int{
		http.StatusBadRequest:         1,
		http.StatusUnauthorized:       1,
		http.StatusForbidden:          1,
		http.StatusGone:               1,
		http.StatusServiceUnavailable: 0,
		http.StatusGatewayTimeout:     0,
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
			defer server.Close()
			r := &rig{T: t, Load: load.New(), gaps: newGaps()}
			q := question{Collection: collection{Kind: load.Pods, Form: load.AsJSON}, Query: ask.NextPage(pageSize, "token")}
			if _, _, err := r.put(t.Context(), ask.At(server.URL), q, 0); err == nil {
				t.Error("no error")
			}
			if got := r.Tally.Mistakes(); len(got) != want {
				t.Errorf("mistakes: %q, want %d", got, want)
			}
		})
	}
}
