package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestSpreadByGoaway: only who speaks HTTP/2 is told to connect again, and about as often as is said. With
// HTTP/1.1 clients make new connections anyway.
func TestSpreadByGoaway(t *testing.T) {
	const requests = 1000
	for _, tt := range []struct {
		name        string
		major       int
		chance      float64
		least, most int
	}{
		{name: "never", major: 2},
		{name: "always", major: 2, chance: 1, least: requests, most: requests},
		{name: "half of them", major: 2, chance: 0.5, least: requests / 4, most: requests * 3 / 4}, // 15 standard deviations
		{name: "over HTTP/1.1", major: 1, chance: 1},
	} {
		handler := SpreadByGoaway(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), tt.chance)
		told := 0
		for range requests {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/version", nil)
			r.ProtoMajor = tt.major
			handler.ServeHTTP(w, r)
			expect.Same(t, http.StatusTeapot, w.Code)
			if w.Header().Get("Connection") == "close" {
				told++
			}
		}
		if told < tt.least || told > tt.most {
			t.Errorf("%s: %d of %d are told, want %d to %d", tt.name, told, requests, tt.least, tt.most)
		}
	}
}
