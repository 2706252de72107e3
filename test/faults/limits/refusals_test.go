package limits

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// tooMany answers as kube-apiserver does when too much is asked of it: not with a Status
// (tooManyRequests in k8s.io/apiserver/pkg/server/filters).
func tooMany(w http.ResponseWriter, after time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// tooManyStatus answers as kube-apiserver does where a handler of its refuses: an eviction, for
// one.
func tooManyStatus(w http.ResponseWriter, after time.Duration) {
	seconds := int(after / time.Second)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"made up by the test",`+
		`"reason":"TooManyRequests","details":{"retryAfterSeconds":%d},"code":429}`+"\n", seconds)
}

// ofCaller reports whether it is a caller's, and not a review of what the caller may.
func ofCaller(r *http.Request) bool { return !strings.HasPrefix(r.UserAgent(), "listproxy") }

// TestTooManyForCallers: a caller who is turned away by kube-apiserver hears it as kube-apiserver
// said it, and listproxy does not ask again in its place.
func TestTooManyForCallers(t *testing.T) {
	harness.Long(t)
	r := newRig(t)
	bare := client{ask.MustNew(r, r.hop.RESTConfig(plane.RESTConfig(controlplane.Admin)), 0)}
	const objects = "/api/v1/namespaces/team-a/configmaps"
	object := configMap("refused", "")
	requests := []struct {
		method, target string
		object         any
	}{
		{http.MethodGet, objects, nil},
		{http.MethodGet, "/api/v1/configmaps?resourceVersion=0", nil},
		{http.MethodGet, objects + "?watch=true", nil},
		{http.MethodGet, objects + "/refused", nil},
		{http.MethodPost, objects, object},
		{http.MethodPatch, objects + "/refused", object},
		{http.MethodDelete, objects + "/refused", nil},
	}
	compared := 0
	for name, answer := range map[string]func(http.ResponseWriter, time.Duration){"text": tooMany, "Status": tooManyStatus} {
		var mu sync.Mutex
		asked := 0
		// Feeds too, so that nothing is in memory.
		r.hop.OnRequest(func(w http.ResponseWriter, req *http.Request) bool {
			if !ofCaller(req) && path.Base(req.URL.Path) != "configmaps" {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			if ofCaller(req) {
				asked++
			}
			answer(w, 7*time.Second)
			return true
		})
		for _, q := range requests {
			want, err := bare.Send(t.Context(), q.method, q.target, q.object)
			r.must(err)
			got, err := r.via.Send(t.Context(), q.method, q.target, q.object)
			r.must(err)
			if diff := cmp.Diff(said(want), said(got)); diff != "" || got.Header.Get("Retry-After") != "7" || got.FromMemory() {
				t.Errorf("%s, %s %s: %s: not as kube-apiserver said it (-want +got):\n%s", name, q.method, q.target, got.Source(), diff)
			}
			compared++
		}
		r.hop.OnRequest(nil)
		if asked != 2*len(requests) {
			t.Errorf("%s: %d requests came, directly and by listproxy, of %d each", name, asked, len(requests))
		}
	}
	r.say("429 to callers: %d of them as they were, with code, headers and body, for one request each", compared)
}

// said is an answer without what is of one answer only, or of listproxy.
func said(a ask.Answer) ask.Answer {
	a.Header = maps.Clone(a.Header)
	a.Header.Del("Date")
	a.Header.Del("Cache-Status")
	return a
}
