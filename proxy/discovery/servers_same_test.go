package discovery

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
)

// TestServersSame: what is asked now decides, and not what a stream has told so far.
func TestServersSame(t *testing.T) {
	for name, tt := range map[string]struct {
		after  []string
		status int // of the list, if it is not 0
		want   bool
		fails  bool
	}{
		"nothing changed":    {[]string{serverLease("one", "one_1", 7), serverLease("two", "two_1", 8)}, 0, true, false},
		"one went":           {[]string{serverLease("one", "one_1", 7)}, 0, false, false},
		"one restarted":      {[]string{serverLease("one", "one_2", 7), serverLease("two", "two_1", 8)}, 0, false, false},
		"none is left":       {nil, 0, false, false},
		"no right any more":  {nil, http.StatusForbidden, false, false},
		"nobody answers now": {nil, http.StatusInternalServerError, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServers()
				s, _ := runServers(t, f, proxytest.DiscardLog())
				f.Mu.Lock()
				f.Collections[serverLeases].Objects = tt.after
				f.Mu.Unlock()
				f.Answer(tt.status, "list "+serverLeases)
				same, err := s.Same(t.Context())
				if same != tt.want || (err != nil) != tt.fails {
					t.Errorf("got %v, %v", same, err)
				}
			})
		})
	}
}

// TestServersSameWithoutLeases: where nobody announces itself, nobody knows.
func TestServersSameWithoutLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Collections[serverLeases].Objects = nil
		s, _ := runServers(t, f, proxytest.DiscardLog())
		if same, err := s.Same(t.Context()); same || err != nil {
			t.Errorf("got %v, %v", same, err)
		}
	})
}
