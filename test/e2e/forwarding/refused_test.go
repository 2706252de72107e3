package forwarding

import (
	"regexp"
	"strings"
	"testing"
)

func isHit(r reply) bool { return strings.HasPrefix(r.cacheStatus, "listproxy; hit") }

func wantRefused(t *testing.T, r reply, status int, reason string) {
	t.Helper()
	wantForwarded(t, r, reason)
	if r.Status != status {
		t.Errorf("status %d, want %d: %s", r.Status, status, r.Body)
	}
}

// agree asks as same does, but for a list that may come from memory: then the flow control's
// headers are not there, and a list that is not exact may have another revision, since other
// resources' changes move it.
func agree(t *testing.T, ask func(*door) reply) reply {
	t.Helper()
	listRevision := regexp.MustCompile(`"metadata":\{"resourceVersion":"[0-9]+"`)
	for range 50 {
		before, got, after := ask(direct), ask(via), ask(direct)
		r := got
		if isHit(got) {
			for _, a := range []*reply{&before, &got, &after} {
				a.Header.Del("X-Kubernetes-Pf-Flowschema-Uid")
				a.Header.Del("X-Kubernetes-Pf-Prioritylevel-Uid")
				a.Header.Del("Content-Length")
				if !strings.HasSuffix(got.cacheStatus, "=exact") && !strings.HasSuffix(got.cacheStatus, "=continue") {
					a.Body = listRevision.ReplaceAllString(a.Body, "")
				}
			}
		}
		if diff(before, after) != "" {
			continue
		}
		if d := diff(before, got); d != "" {
			t.Errorf("%s (-direct +via):\n%s", got.cacheStatus, d)
		}
		return r
	}
	t.Fatal("the API server's own answers keep changing")
	return reply{}
}
