package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestGoaway: only who speaks HTTP/2 is told to connect again, and about as often as is said. With
// HTTP/1.1 clients make new connections anyway.
func TestGoaway(t *testing.T) {
	const requests = 1000
	for _, tt := range []struct {
		name        string
		major       int
		chance      float64
		least, most int
	}{
		{"never", 2, 0, 0, 0},
		{"always", 2, 1, requests, requests},
		{"half of them", 2, 0.5, requests / 4, requests * 3 / 4}, // 15 standard deviations
		{"over HTTP/1.1", 1, 1, 0, 0},
	} {
		handler := Goaway(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }), tt.chance)
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
