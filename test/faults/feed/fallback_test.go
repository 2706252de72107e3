package feed

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// streamsInitialEvents is true for a streaming list.
func streamsInitialEvents(q url.Values) bool { return q.Get("sendInitialEvents") == "true" }

// firstPages is true for the first page of a load page by page.
func firstPages(q url.Values) bool { return fullLoad(q) && !streamsInitialEvents(q) }

// errorOf is an ERROR event of code 500, in the form that a watch wants. From 1.34 on kube-apiserver begins
// streaming lists with one where etcd cannot be asked for progress (before 3.4.31, and from 3.5.0 to 3.5.12).
func errorOf(req *http.Request) []byte {
	const status = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"made up by the test","reason":"InternalError","code":500}`
	event, err := hop.ErrorEvent([]byte(status), strings.Contains(req.Header.Get("Accept"), protobufType))
	if err != nil {
		panic(err)
	}
	return event
}

// TestStreamingListsThatFail: a resource whose streaming lists end with an error is loaded page by page, in every form.
func TestStreamingListsThatFail(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	forms := []string{"application/json", protobufType, "application/json" + metadataOf, protobufType + metadataOf}
	tests := []struct {
		name  string
		kind  kind
		fault func(w http.ResponseWriter, req *http.Request) bool
		line  func(r *rig) func(req *http.Request, line []byte) ([]byte, error)
	}{
		{name: "they begin with an ERROR event", kind: limitRanges, fault: func(w http.ResponseWriter, req *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			if accept := req.Header.Get("Accept"); strings.Contains(accept, protobufType) {
				w.Header().Set("Content-Type", protobufType+";stream=watch")
			}
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write(errorOf(req))
			return true
		}},
		{name: "they are refused with 500", kind: podTemplates, fault: func(w http.ResponseWriter, _ *http.Request) bool {
			return status(w, http.StatusInternalServerError)
		}},
		{name: "an ERROR event comes after some objects", kind: resourceQuotas, line: func(*rig) func(*http.Request, []byte) ([]byte, error) {
			var mu sync.Mutex
			told := map[*http.Request]int{}
			return func(req *http.Request, line []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if told[req]++; told[req] <= 2 {
					return line, nil
				}
				return errorOf(req), io.EOF
			}
		}},
	}
	c := ownCluster(t)
	ns := c.namespace(t, "streams-fail")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i := range 10 {
				c.create(t, tt.kind, ns, fmt.Sprintf("object-%d", i))
			}
			r := newRig(t, c, rigOptions{})
			var failed atomic.Int32
			ofList := func(req *http.Request) bool { return of(req, tt.kind) && streamsInitialEvents(req.URL.Query()) }
			if tt.fault != nil {
				r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
					if !ofList(req) {
						return false
					}
					failed.Add(1)
					return tt.fault(w, req)
				})
			}
			if tt.line != nil {
				change := tt.line(r)
				r.changeLines(func(req *http.Request, line []byte) ([]byte, error) {
					if !ofList(req) {
						return line, nil
					}
					line, err := change(req, line)
					if err != nil {
						failed.Add(1)
					}
					return line, err
				})
			}
			for _, accept := range forms {
				err := poll.Retry(t.Context(), "a list from memory, as "+accept, func() error {
					a, err := r.admin.GetAs(t.Context(), accept, tt.kind.list("")+"?resourceVersion=0")
					if err == nil && a.Source() != hitAny {
						err = fmt.Errorf("after %d streaming lists and %d loads by pages it came from %q",
							r.count(tt.kind, streamsInitialEvents), r.count(tt.kind, firstPages), a.Source())
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d streaming lists, of which %d failed, and %d loads by pages, for %d feeds",
				r.count(tt.kind, streamsInitialEvents), failed.Load(), r.count(tt.kind, firstPages), len(forms))
			if n := int(failed.Load()); n < len(forms) {
				t.Errorf("%d streaming lists failed: this test has shown nothing", n)
			}
			// And the watches go on from there.
			revision := r.touch(t, tt.kind, ns, "object-3", "later")
			for _, accept := range forms {
				r.sameIn(t, accept, tt.kind, ns, revision)
			}
			if !bytes.Contains(r.ask(tt.kind.list(ns), exactly(revision)).Body, []byte("later")) {
				t.Error("the change is not there")
			}
		})
	}
}
