package forwarding

import (
	"net/http"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// legacyToken returns a token of which kube-apiserver warns with every answer, and which may read
// everything.
func legacyToken(t *testing.T) string {
	t.Helper()
	ns := newNamespace(t)
	token, err := cp.CreateLegacyToken(t.Context(), ns, "old")
	expect.NoError(t, err)
	grant(t, controlplane.Grant{To: []string{"system:serviceaccount:" + ns + ":old"}, Role: "cluster-admin"})
	poll.Until(t, patience, "kube-apiserver takes the token, and warns of it", func() bool {
		r := direct.do(t, bearer(token, "/api/v1/pods?resourceVersion=0"))
		return r.Status == http.StatusOK && len(r.Header.Values("Warning")) == 1
	})
	return token
}

// TestWarnedCaller: of whose token kube-apiserver warns gets the Warning with every list, and with
// every watch.
func TestWarnedCaller(t *testing.T) {
	token := legacyToken(t)
	eachDoor(t, func(t *testing.T, d *door) {
		d.do(t, bearer(token, "/version")) // makes it known
		for _, path := range []string{"/api/v1/pods?resourceVersion=0", "/api/v1/configmaps?limit=1&resourceVersion=0"} {
			got := agree(t, func(to *door) reply {
				if to == via {
					to = d
				}
				return to.do(t, bearer(token, path))
			})
			wantForwarded(t, got, "credentials")
			if len(got.Header.Values("Warning")) != 1 {
				t.Errorf("%s: Warning: %q", path, got.Header.Values("Warning"))
			}
		}
	})
}

// TestWarnedOfItsOwnToken: nobody else is warned of listproxy's own token, but everybody of a resource
// that is deprecated.
func TestWarnedOfItsOwnToken(t *testing.T) {
	token := legacyToken(t)
	own := cp.RESTConfig(controlplane.Anonymous)
	own.BearerToken = token
	d := startProxy(t, harness.ProxyOptions{Upstream: own, Args: []string{"--eager", "configmaps,endpoints"}})
	for path, warnings := range map[string]int{"/api/v1/configmaps?resourceVersion=0": 0, "/api/v1/endpoints?resourceVersion=0": 1} {
		var got reply
		poll.Until(t, patience, path+" from memory", func() bool {
			got = d.do(t, call{path: path})
			return isHit(got)
		})
		want := direct.do(t, call{path: path})
		if said := got.Header.Values("Warning"); !slices.Equal(said, want.Header.Values("Warning")) || len(said) != warnings {
			t.Errorf("%s: Warning: %q, directly %q", path, said, want.Header.Values("Warning"))
		}
	}
}
