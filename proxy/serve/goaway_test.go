package serve

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestGoawayChance: CloseConnections closes the connection of an HTTP/2 request with the given chance. It never closes that of
// an HTTP/1.1 request, since such clients make new connections anyway.
func TestGoawayChance(t *testing.T) {
	const requests = 1000
	for _, tt := range []struct {
		name                string
		protoMajor          int
		chance              float64
		wantLeast, wantMost int // how many of 1000 requests close their connection
	}{
		{name: "never", protoMajor: 2, chance: 0, wantLeast: 0, wantMost: 0},
		{name: "always", protoMajor: 2, chance: 1, wantLeast: 1000, wantMost: 1000},
		{name: "about half", protoMajor: 2, chance: 0.5, wantLeast: 250, wantMost: 750}, // 500 ± 15 standard deviations
		{name: "over HTTP/1.1", protoMajor: 1, chance: 1, wantLeast: 0, wantMost: 0},
	} {
		notDraining := func() bool { return false }
		handler := CloseConnections(http.NotFoundHandler(), notDraining, tt.chance)
		closed := 0
		for range requests {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/version", nil)
			r.ProtoMajor = tt.protoMajor
			handler.ServeHTTP(w, r)
			expect.Same(t, http.StatusNotFound, w.Code)
			if w.Header().Get("Connection") == "close" { // net/http turns it into a GOAWAY
				closed++
			}
		}
		if closed < tt.wantLeast || closed > tt.wantMost {
			t.Errorf("%s: %d of %d requests close their connection, want %d to %d", tt.name, closed, requests, tt.wantLeast, tt.wantMost)
		}
	}
}

// TestCloseWhileDraining: while draining, each answer makes its client close the connection, except an upgrade, which
// takes over the connection.
func TestCloseWhileDraining(t *testing.T) {
	for _, tt := range []struct {
		draining      bool
		upgrade, want string
	}{
		{draining: false, want: ""},
		{draining: true, want: "close"},
		{draining: true, upgrade: "websocket", want: ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api", http.NoBody)
		w := httptest.NewRecorder()
		if tt.upgrade != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", tt.upgrade)
		}
		isDraining := func() bool { return tt.draining }
		const noGoaway = 0 // the chance of a GOAWAY while not draining
		CloseConnections(http.NotFoundHandler(), isDraining, noGoaway).ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != tt.want {
			t.Errorf("draining %t, upgrade %q: Connection is %q, want %q", tt.draining, tt.upgrade, got, tt.want)
		}
	}
}
